"""Compare models: CMC and its peers, which score all candidates of a query at once. Needs the extra `torch`."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.compare.base import Comparer, ItemVectors, QueryVectors
from crosscut.compare.registry import KINDS
from crosscut.encoders import Encoder
from crosscut.errors import CrosscutError
from crosscut.system import needs_extra

__all__ = ["KINDS", "Comparer", "ItemVectors", "QueryVectors", "as_comparer", "encode_together"]


def as_comparer(obj: Any, device: str | None = None, chunk: int | None = None) -> Comparer:
    """Make a compare model of what the caller has; `device` is where torch runs it (default: a GPU).

    That is a folder that `crosscut train compare` wrote, or a bi-encoder: `bi:MODEL`, or just its folder or name.
    chunk: how many candidates are compared with each other at most; see `ModelComparer`.

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
    return load(obj, device, chunk)


def encode_together(models: Sequence[Comparer | Encoder], texts: Sequence[str]) -> list[QueryVectors | np.ndarray]:
    """Queries as each of the models encodes them: `encode_queries` of a compare model, `encode` of an encoder.

    An encoder that several models share runs once. On a GPU encoders of one architecture run as one, in a single
    batch (see `together.Together`). All others run one after the other.

    >>> from crosscut.encoders import GivenVectors
    >>> encode_together([GivenVectors(["sky"], [[3.0, 4.0]])], ["sky"])
    [array([[0.6, 0.8]], dtype=float32)]
    """
    if any(isinstance(model, Comparer) for model in models) and len(models) > 1 and len(texts):
        try:
            from crosscut.compare.together import together
        except ImportError:  # without torch, no two of them can share anything
            pass
        else:
            return together(tuple(models)).encode(texts)
    return [encode_one(model, texts) for model in models]


def encode_one(model: Comparer | Encoder, texts: Sequence[str]) -> QueryVectors | np.ndarray:
    """Queries as one model encodes them.

    >>> from crosscut.encoders import GivenVectors
    >>> encode_one(GivenVectors(["sky"], [[3.0, 4.0]]), ["sky"])
    array([[0.6, 0.8]], dtype=float32)
    """
    return model.encode_queries(texts) if isinstance(model, Comparer) else model.encode(texts, "query")
