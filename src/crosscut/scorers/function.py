"""A plain function as a scorer."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from crosscut.scorers.base import Pair, Scorer, as_scores


class FunctionScorer(Scorer):
    """`function(query, texts)` returns one score per text; it is called once per run of equal queries.

    Stored scores are tied to the function's name, unless that says too little: a lambda, a partial, a method,
    a closure over who knows what. Give `name` to vouch for it.

    >>> def overlap(query, texts):
    ...     return [len(set(query.split()) & set(text.split())) for text in texts]
    >>> scorer = FunctionScorer(overlap)
    >>> scorer.name, scorer.score([("blue sky", "sky"), ("blue sky", "blue sky")]).tolist()
    ('overlap', [1.0, 2.0])
    """

    def __init__(self, function: Callable[[str, list[str]], Any], *, name: str | None = None) -> None:
        self._function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self._is_telling = name is not None or (
            inspect.isfunction(function) and function.__name__ != "<lambda>" and not function.__closure__
        )

    def digest(self) -> str:
        return hashlib.sha256(f"function {self.name}".encode()).hexdigest()[:16] if self._is_telling else ""

    def _score(self, pairs: Sequence[Pair]) -> np.ndarray:
        parts = []
        for query, run in groupby(pairs, key=lambda pair: pair[0]):
            texts = [item for _, item in run]
            # Checked run by run: two wrong lengths could add up to the right one.
            parts.append(as_scores(self._function(query, texts), len(texts), self.name))
        return np.concatenate(parts)
