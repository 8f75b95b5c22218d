"""Compare models: CMC and its peers, which score all candidates of a query at once. Needs the extra `torch`."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Any

from crosscut.compare.base import Comparer, ItemVectors, QueryVectors
from crosscut.compare.registry import KINDS
from crosscut.errors import CrosscutError
from crosscut.system import needs_extra

__all__ = ["KINDS", "Comparer", "ItemVectors", "QueryVectors", "as_comparer"]


def as_comparer(obj: Any, device: str | None = None) -> Comparer:
    """Make a compare model of what the caller has; `device` is where torch runs it (default: a GPU).

    That is a folder that `crosscut train compare` wrote, or a bi-encoder: `bi:MODEL`, or just its folder or name.

    >>> as_comparer("./no/such/folder")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no model folder ./no/such/folder
    """
    if isinstance(obj, Comparer):
        return obj
    if not isinstance(obj, str | Path):
        raise CrosscutError(
            f"cannot compare with {reprlib.repr(obj)}: give the folder of a compare model, bi:MODEL, or a Comparer"
        )
    with needs_extra("torch", f"the compare model {str(obj)!r}"):
        from crosscut.compare.comparer import load
    return load(obj, device)
