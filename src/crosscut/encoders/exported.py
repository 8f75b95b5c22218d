"""An exported bi-encoder: its vectors without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.encoders.base import Encoder, Role
from crosscut.scorers.exported import ExportedModel, Rows
from crosscut.scorers.tokens import check_limits


class ExportedEncoder(Encoder):
    """A bi-encoder in a folder that `crosscut export` wrote, run on the CPU; for `threads` see `ExportedModel`.

    >>> ExportedEncoder(Path("no/such/folder"))
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no model folder no/such/folder
    """

    def __init__(self, model: str | Path, *, threads: int | None = None) -> None:
        check_limits(threads=threads)
        self.name = str(model)
        self._model = ExportedModel(model, "encoder", threads)
        self._digest = self._model.digest({})

    def digest(self) -> str:
        """Of the exported files."""
        return self._digest

    def _encode(self, texts: Sequence[str], role: Role) -> np.ndarray:
        manifest = self._model.manifest
        prompt = manifest.prompts.get(role, "")
        texts = [prompt + text for text in texts]
        return self._model.run(*text_rows(self._model.tokenizer, texts, manifest.pad, manifest.types))


def text_rows(tokenizer: Any, texts: Sequence[str], pad: int, typed: bool) -> tuple[np.ndarray, Rows]:
    """The lengths of `texts` in tokens, and what gives some of them as arrays, filled up on the right with `pad`.

    `tokenizer` (of the `tokenizers` package) cuts texts as it was told to; unless `typed`, token types are 0.

    >>> from types import SimpleNamespace
    >>> def encode_batch(texts):
    ...     return [SimpleNamespace(ids=list(map(ord, text)), type_ids=[0] * len(text)) for text in texts]
    >>> lengths, rows = text_rows(SimpleNamespace(encode_batch=encode_batch), ["a", "bcd", "ef"], 0, typed=True)
    >>> lengths.tolist(), rows(np.array([0, 2]))[0].tolist()
    ([1, 3, 2], [[97, 0], [101, 102]])
    """
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    encodings = encode(list(texts))
    lengths = np.array([len(encoding.ids) for encoding in encodings])

    def rows(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        shape = (len(positions), max(1, int(lengths[positions].max())))
        ids, types = np.full(shape, pad, np.int64), np.zeros(shape, np.int64)
        for row, position in enumerate(positions):
            ids[row, : lengths[position]] = encodings[position].ids
            if typed:
                types[row, : lengths[position]] = encodings[position].type_ids
        return ids, types, (np.arange(shape[1]) < lengths[positions][:, None]).astype(np.int64)

    return np.maximum(lengths, 1), rows  # to some tokenizers an empty text has no token, but a row needs one
