"""Bi-encoders: text to vectors of unit length."""

from __future__ import annotations

import functools
import reprlib
from pathlib import Path
from typing import Any

from crosscut.encoders.base import Encoder
from crosscut.encoders.exported import ExportedEncoder
from crosscut.encoders.given import GivenVectors
from crosscut.encoders.model import ModelEncoder, sentence_transformer
from crosscut.errors import CrosscutError
from crosscut.scorers.exported import TINY, is_exported

__all__ = ["Encoder", "ExportedEncoder", "GivenVectors", "ModelEncoder", "as_encoder"]


def as_encoder(obj: Any = None, device: str | None = None) -> Encoder:
    """Make an encoder of what the caller has; `device` is where a model runs that torch loads (default: a GPU).

    None is crosscut-tiny, the model that comes with crosscut.

    >>> as_encoder(GivenVectors(["sky"], [[1.0, 0.0]])).name
    'given'
    >>> as_encoder().encode(["a blue sky", "a grey whale"]).shape
    (2, 384)
    """
    if isinstance(obj, Encoder):
        return obj
    if obj is None or (isinstance(obj, str) and obj == TINY):
        return _tiny()
    if isinstance(obj, str | Path):
        return ExportedEncoder(obj) if is_exported(obj) else sentence_transformer(obj, device)
    if callable(getattr(obj, "encode", None)) and not isinstance(obj, type):
        return ModelEncoder(obj)
    raise CrosscutError(
        f"cannot encode with {reprlib.repr(obj)}: give a model name or folder, "
        "an object with .encode(texts), or an Encoder"
    )


@functools.cache
def _tiny() -> Encoder:
    """One for all: it keeps nothing of what it encodes."""
    return ExportedEncoder(TINY)
