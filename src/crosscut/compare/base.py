"""What every compare model is: vectors of items and of queries, and scores of all candidates at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

import numpy as np
import numpy.typing as npt

from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.scorers.base import unreadable


@dataclass(frozen=True)
class ItemVectors:
    """What a compare model keeps of texts: `rows` (M, d), of which text n has rows[starts[n]:starts[n + 1]].

    >>> two = ItemVectors(np.arange(6.0).reshape(3, 2), np.array([0, 1, 3]))
    >>> len(two), two.rows[two.starts[1] : two.starts[2]].tolist()
    (2, [[2.0, 3.0], [4.0, 5.0]])
    """

    rows: np.ndarray
    starts: np.ndarray

    @classmethod
    def single(cls, rows: np.ndarray) -> ItemVectors:
        """One row per text.

        >>> ItemVectors.single(np.eye(3)).counts.tolist()
        [1, 1, 1]
        """
        return cls(rows, np.arange(len(rows) + 1))

    @classmethod
    def concatenate(cls, parts: Sequence[ItemVectors]) -> ItemVectors:
        """All texts of all parts, of which there is at least one.

        >>> parts = [ItemVectors.single(np.ones((2, 3))), ItemVectors(np.zeros((4, 3)), np.array([0, 4]))]
        >>> ItemVectors.concatenate(parts).starts.tolist()
        [0, 1, 2, 6]
        """
        counts = np.concatenate([part.counts for part in parts])
        return cls(np.concatenate([part.rows for part in parts]), _starts(counts))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def counts(self) -> np.ndarray:
        """Rows of each text."""
        return np.diff(self.starts)

    def take(self, positions: npt.ArrayLike) -> ItemVectors:
        """Some of the texts, in this order. Only their rows are read, as `rows` may be a file.

        >>> two = ItemVectors(np.arange(6.0).reshape(3, 2), np.array([0, 1, 3]))
        >>> two.take([1, 1, 0]).rows.tolist()
        [[2.0, 3.0], [4.0, 5.0], [2.0, 3.0], [4.0, 5.0], [0.0, 1.0]]
        """
        chosen = np.asarray(positions, dtype=np.int64)
        counts = self.starts[chosen + 1] - self.starts[chosen]
        starts = _starts(counts)
        places = np.arange(starts[-1]) + np.repeat(self.starts[chosen] - starts[:-1], counts)
        return ItemVectors(np.asarray(self.rows[places]), starts)


QueryVectors: TypeAlias = ItemVectors  # of queries, and as wide; how many rows a query has is the model's affair


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


class Comparer(ABC):
    """A compare model. A backend implements `_encode` and `_score`, and `name`, `digest` and `save` if it can.

    kind: "cmc", "poly", "sum-of-max", "deformer", "mix" or "bi". width: columns of its rows. per_item: rows of an
    item; None: as many as it has tokens.

    >>> class Letters(Comparer):
    ...     kind, width, per_item = "letters", 2, 1
    ...
    ...     def _encode(self, texts, role, progress):
    ...         return ItemVectors.single(np.array([[text.count("a"), text.count("b")] for text in texts]))
    ...
    ...     def _score(self, queries, candidates):
    ...         return [items.rows @ row for row, items in zip(queries.rows, candidates)]
    >>> model = Letters()
    >>> items = model.encode_items(["aab", "b", "abba"])
    >>> model.score(model.encode_queries(["b", "a"]), [items, items.take([0])])
    [array([1., 1., 2.], dtype=float32), array([2.], dtype=float32)]
    """

    name: str = "comparer"
    kind: str
    width: int
    per_item: int | None

    def digest(self) -> str:
        """A short hex that is the same for the same model; "" when that cannot be known."""
        return ""

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder that `as_comparer` reads."""
        raise CrosscutError(f"the compare model {self.name} cannot be saved")

    @final
    def encode_items(self, texts: Sequence[str], progress: bool = False) -> ItemVectors:
        """What scoring needs of each item, float16. `progress` shows a bar where stderr is a terminal."""
        made = self._checked(texts, "item", progress)
        return ItemVectors(made.rows.astype(np.float16), made.starts)

    @final
    def encode_queries(self, texts: Sequence[str]) -> QueryVectors:
        """What scoring needs of each query, float32."""
        made = self._checked(texts, "query", False)
        return QueryVectors(made.rows.astype(np.float32), made.starts)

    @final
    def score(self, queries: QueryVectors, candidates: Sequence[ItemVectors]) -> list[np.ndarray]:
        """For each query one raw score per candidate, float32; candidates[n] are those of query n.

        All candidates of a query are compared in one pass; where a model has a largest number for one pass, it
        says what it does with more.
        """
        if len(queries) != len(candidates):
            raise CrosscutError(
                f"{len(queries)} queries have {len(candidates)} lists of candidates: give one to each"
            )
        for what, vectors in [("queries", queries), *(("candidates", items) for items in candidates)]:
            self._check_width(vectors, what)
        scores = [np.zeros(0, np.float32) for _ in candidates]
        some = [place for place, items in enumerate(candidates) if len(items)]
        if some:
            made = self._score(queries.take(some), [candidates[place] for place in some])
            for place, values in zip(some, made, strict=True):
                scores[place] = np.asarray(values, dtype=np.float32)
                self._check_scores(scores[place], candidates[place])
        return scores

    @abstractmethod
    def _encode(self, texts: Sequence[str], role: Role, progress: bool) -> ItemVectors:
        """Vectors of at least one text."""

    @abstractmethod
    def _score(self, queries: QueryVectors, candidates: Sequence[ItemVectors]) -> Iterable[np.ndarray]:
        """Scores of at least one query, each with at least one candidate."""

    def _checked(self, texts: Sequence[str], role: Role, progress: bool) -> ItemVectors:
        if isinstance(texts, str):
            raise CrosscutError("a compare model takes a list of texts, but got one string: put it in a list")
        if len(texts) == 0:
            return ItemVectors.single(np.zeros((0, self.width), np.float32))
        for number, text in enumerate(texts):
            if problem := unreadable(text):
                raise CrosscutError(f"text {number} {problem}")
        made = self._encode(texts, role, progress)
        limit = np.finfo(np.float16).max
        if not (np.abs(made.rows) <= limit).all():  # also false where it is no number
            raise CrosscutError(f"the compare model {self.name} gave vectors that are not finite: it is damaged")
        return made

    def _check_width(self, vectors: ItemVectors, what: str) -> None:
        if vectors.rows.ndim != 2 or vectors.rows.shape[1] != self.width:
            raise CrosscutError(
                f"the {what} have vectors of shape {vectors.rows.shape}, but the compare model {self.name} has "
                f"{self.width} dimensions: encode them with this model"
            )
        if what == "candidates" and self.per_item is not None:
            others = vectors.counts[vectors.counts != self.per_item]
            if len(others) or len(vectors.rows) != self.per_item * len(vectors):
                raise CrosscutError(
                    f"{len(vectors)} candidates have {len(vectors.rows)} vectors, of one of them "
                    f"{(others if len(others) else vectors.counts)[0]}, but the compare model {self.name} has "
                    f"{self.per_item} of each: encode them with this model"
                )

    def _check_scores(self, scores: np.ndarray, items: ItemVectors) -> None:
        if scores.shape != (len(items),) or not np.isfinite(scores).all():
            if not np.isfinite(items.rows).all():
                raise CrosscutError(
                    f"the vectors of items for the compare model {self.name} are damaged (not finite): encode "
                    "them anew; in an index, remove the model and add it again "
                    "(`crosscut index --out INDEX --add --remove-compare NAME --compare NAME=MODEL`)"
                )
            raise CrosscutError(
                f"the compare model {self.name} must give {len(items)} finite scores, but gave an array of shape "
                f"{scores.shape} with {np.isfinite(scores).sum()} of them"
            )
