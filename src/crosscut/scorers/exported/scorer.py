"""An exported cross-encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.scorers.base import Pair, Scorer
from crosscut.scorers.exported.model import ExportedModel
from crosscut.scorers.tokens import PairTokens, check_limits


class ExportedScorer(Scorer):
    """A cross-encoder in a folder that `crosscut export` wrote, run on the CPU.

    For the limits on tokens see `TransformerScorer`, for `threads` see `ExportedModel`; `truncated` counts the
    pairs that lost a token.

    >>> ExportedScorer(Path("no/such/folder"))
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no model folder no/such/folder
    """

    device = "cpu"

    def __init__(
        self,
        model: str | Path,
        *,
        query_tokens: int | None = None,
        item_tokens: int | None = None,
        max_length: int | None = None,
        threads: int | None = None,
    ) -> None:
        limits = {"query_tokens": query_tokens, "item_tokens": item_tokens, "max_length": max_length}
        check_limits(**limits, threads=threads)
        self.name = str(model)
        self.truncated = 0
        self._model = exported = ExportedModel(model, "scorer", threads)
        self.threads = exported.threads
        longest, types = exported.manifest.max_length, exported.manifest.types
        if max_length is not None and longest is not None and max_length > longest:
            raise CrosscutError(f"max_length {max_length} does not suit {model}: it must be at most {longest}")
        self.max_length = longest if max_length is None else max_length
        self.tokens = PairTokens(exported.tokenizer, self.max_length, query_tokens, item_tokens, types=types)
        self._options = {key: value for key, value in limits.items() if value is not None}
        self._digest = exported.digest(self._options)

    def digest(self) -> str:
        """Of the exported files and of every option that changes scores."""
        return self._digest

    def options(self) -> dict[str, Any]:
        """The limits, where they were given."""
        return dict(self._options)

    def _score(self, pairs: Sequence[Pair]) -> np.ndarray:
        encoded = self.tokens.pairs(pairs)
        pad = self._model.manifest.pad
        scores = self._model.run(encoded.lengths, lambda positions: encoded.rows(positions, pad=pad))
        self.truncated += encoded.truncated
        return scores
