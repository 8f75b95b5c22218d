"""A guard against a fault of OpenVINO that would turn the next Ctrl-C into a crash."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _Stack(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))  # as on Linux


@contextmanager
def same_signal_stack() -> Iterator[None]:
    """Leave the stack that signals of this thread are handled on as it was before the block.

    OpenVINO gives the thread another one with each model that it compiles, and the one before back when that
    model goes. If models do not go in the reverse order, the thread is left with a stack that is no more.

    >>> with same_signal_stack():
    ...     "compiled here"
    'compiled here'
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    before, swap = _Stack(), ctypes.CDLL(None).sigaltstack
    swap(None, ctypes.byref(before))
    try:
        yield
        gc.collect()  # models that were dropped in the block would otherwise go after it
    finally:
        swap(ctypes.byref(before), None)
