"""What this machine has: packages, and cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from crosscut.errors import CrosscutError, first_line


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Turn a failing import inside the block into advice.

    >>> with needs_extra("openvino", "this model"):
    ...     raise ImportError("No module named 'openvino'")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: this model needs more packages (No module named 'openvino'): pip install \
"crosscut[openvino]"
    """
    try:
        yield
    except ImportError as error:
        raise CrosscutError(
            f'{what} needs more packages ({first_line(error)}): pip install "crosscut[{extra}]"'
        ) from error


def cores() -> list[int]:
    """The cores that this process may use, by number.

    >>> len(cores()) >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
