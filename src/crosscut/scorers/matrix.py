"""A matrix of known scores as a scorer, for research without a model."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.scorers.base import Pair, Scorer


class MatrixScorer(Scorer):
    """Looks scores up: `scores[r, c]` belongs to the texts `queries[r]` and `items[c]`.

    >>> import numpy as np
    >>> scorer = MatrixScorer(np.array([[1.5, -2.0]]), queries=["sky"], items=["blue", "grey"])
    >>> scorer.score([("sky", "grey")]).tolist()
    [-2.0]
    """

    name = "matrix"

    def __init__(self, scores: np.ndarray, queries: Sequence[str], items: Sequence[str]) -> None:
        if np.shape(scores) != (len(queries), len(items)):
            raise CrosscutError(
                f"a score matrix of shape {np.shape(scores)} does not fit {len(queries)} queries (rows) "
                f"and {len(items)} items (columns)"
            )
        self._scores = np.asarray(scores)
        self._rows = _numbered("queries", queries)
        self._columns = _numbered("items", items)

    def digest(self) -> str:
        sha = hashlib.sha256()
        for texts in (self._rows, self._columns):
            for text in texts:
                sha.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        for row in self._scores:  # row by row, as the matrix may be a large memory map
            sha.update(np.asarray(row, dtype="<f4").tobytes())
        return sha.hexdigest()[:16]

    def _score(self, pairs: Sequence[Pair]) -> np.ndarray:
        rows = [_find("query", query, self._rows) for query, _ in pairs]
        columns = [_find("item", item, self._columns) for _, item in pairs]
        return self._scores[rows, columns]


def _numbered(kind: str, texts: Sequence[str]) -> dict[str, int]:
    if repeated := [text for text, count in Counter(texts).items() if count > 1]:
        raise CrosscutError(
            f"the {kind} of a score matrix must differ, but {repeated[0]!r} occurs more than once: "
            "keep one of its rows or columns"
        )
    return {text: position for position, text in enumerate(texts)}


def _find(kind: str, text: str, positions: dict[str, int]) -> int:
    try:
        return positions[text]
    except KeyError:
        raise CrosscutError(f"the score matrix has no {kind} {text!r}") from None
