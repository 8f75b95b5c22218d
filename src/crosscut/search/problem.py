"""What a search is about: the item side, which an index keeps, and the query side of one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.first_stage import dense_scores, reciprocal_rank_fusion

if TYPE_CHECKING:
    from crosscut.search.prior import Prior

FIRST_STAGES = ("random", "encoder", "lexical", "rrf")

TermScores = list[tuple[np.ndarray, np.ndarray]]  # per query term: positions of items, its score in each


@dataclass(frozen=True)
class Corpus:
    """What is known of the items before a query comes, by position. Whatever is None is not there."""

    size: int
    vectors: np.ndarray | None = None  # (N, d) encoder vectors of unit length
    words: Any = None  # (N, V) sparse: the items' words, rows of unit length
    anchor_scores: np.ndarray | None = None  # R_anc: (k_q, N)
    anchor_vectors: np.ndarray | None = None  # (k_q, d)
    item_anchors: np.ndarray | None = None  # positions of the anchor items
    item_scores: np.ndarray | None = None  # (anchor items, N)
    compare: tuple[str, ...] = ()  # the compare models whose scores are signals of the default method
    prior: Prior | None = None  # what the default method learned from the anchor queries


@dataclass(frozen=True)
class Queries:
    """A batch of queries as the search sees them. `keys`: a number each, which seeds its random draws."""

    keys: Sequence[int]
    vectors: np.ndarray | None = None  # (Q, d)
    lexical: np.ndarray | None = None  # (Q, N)
    terms: Sequence[TermScores] | None = None
    compare: Mapping[str, np.ndarray] = field(default_factory=dict)  # (Q, N) scores of compare models, by name

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: slice) -> Queries:
        return Queries(
            self.keys[rows],
            None if self.vectors is None else self.vectors[rows],
            None if self.lexical is None else self.lexical[rows],
            None if self.terms is None else self.terms[rows],
            {name: scores[rows] for name, scores in self.compare.items()},
        )


@dataclass(frozen=True)
class Problem:
    """A batch of queries over a corpus. `allowed` marks the items that may be scored; None means all.

    It is (N,), the same for all queries; a pipeline's later stages have (Q, N), as many for each.

    >>> problem = Problem(Corpus(3, vectors=np.eye(3)), Queries([7], vectors=np.array([[0.0, 0.6, 0.8]])))
    >>> print(problem.first_stage(None))
    [[0.  0.6 0.8]]
    """

    corpus: Corpus
    queries: Queries
    allowed: np.ndarray | None = None
    seed: int = 0

    @property
    def n_allowed(self) -> int:
        return self.corpus.size if self.allowed is None else int(self.allowed.sum(axis=-1).max())

    @cached_property
    def generators(self) -> list[np.random.Generator]:
        """One per query, so that a query's draws do not depend on what it is searched together with."""
        return [np.random.default_rng([self.seed, key]) for key in self.queries.keys]

    def random(self) -> np.ndarray:
        return np.stack([generator.random(self.corpus.size) for generator in self.generators])

    @cached_property
    def similarity(self) -> np.ndarray | None:
        """Inner products of query and item vectors, (Q, N)."""
        if self.corpus.vectors is None or self.queries.vectors is None:
            return None
        return dense_scores(self.corpus.vectors, self.queries.vectors)

    def first_stage(self, name: str | None) -> np.ndarray:
        """The cheap ranking as scores (Q, N); None takes the best that is there."""
        parts = {"encoder": self.similarity, "lexical": self.queries.lexical}
        there = [part for part in parts.values() if part is not None]
        if name is not None and name in self.queries.compare:
            return self._compared(self.queries.compare[name])
        if name == "random" or (name is None and not there):
            return self.random()
        if name is None or name == "rrf":
            if name == "rrf" and len(there) < 2:
                raise CrosscutError("first stage 'rrf' fuses encoder and lexical scores, but one is missing")
            return reciprocal_rank_fusion(there) if len(there) > 1 else there[0]
        part = parts[name]
        if part is None:
            raise CrosscutError(f"first stage {name!r} is not possible: the index has no {name} scores")
        return part

    def _compared(self, scores: np.ndarray) -> np.ndarray:
        """Scores of a compare model; the items that it did not compare share the lowest, and keep the order in
        which they would be found without it."""
        lowest = scores.min(axis=1, keepdims=True)
        behind = scores == lowest
        if behind.sum(axis=1).max(initial=0) < 2:
            return scores
        order = self.similarity if self.similarity is not None else self.first_stage(None)
        return np.where(behind, lowest + order - order.max(axis=1, keepdims=True), scores)


def batches(queries: int, items: int, memory: float = 1e9) -> list[slice]:
    """Queries in batches whose working memory (some 160 bytes per query and item) stays near `memory` bytes.

    >>> batches(3, items=1000, memory=320_000)
    [slice(0, 2, None), slice(2, 3, None)]
    """
    size = max(1, int(memory / (160 * items)))
    return [slice(start, min(start + size, queries)) for start in range(0, queries, size)]
