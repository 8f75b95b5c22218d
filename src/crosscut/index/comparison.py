"""A compare model over the vectors that an index keeps for it: few rows in memory at a time."""

from __future__ import annotations

import numpy as np

from crosscut.compare.base import Comparer, QueryVectors
from crosscut.first_stage import top
from crosscut.index.ragged import StoredVectors
from crosscut.search.problem import Problem

LARGEST_PASS = 16_384  # items that are compared at once
MEMORY = 1 << 28  # bytes of items' rows that are in memory at once


class Comparison:
    """Scores of a compare model for items by position.

    >>> from crosscut.compare.base import ItemVectors
    >>> class Product(Comparer):
    ...     kind, width, per_item = "product", 1, 1
    ...
    ...     def _encode(self, texts, role, progress):
    ...         return ItemVectors.single(np.array([[len(text)] for text in texts], np.float32))
    ...
    ...     def _score(self, queries, candidates):
    ...         return [items.rows[:, 0] * row[0] for row, items in zip(queries.rows, candidates)]
    >>> model = Product()
    >>> comparison = Comparison(model, StoredVectors([model.encode_items(["a", "bb", "ccc"])]))
    >>> comparison.scores(model.encode_queries(["xx"]), np.array([[2, 0]])).tolist()
    [[6.0, 2.0]]
    """

    def __init__(self, comparer: Comparer, vectors: StoredVectors) -> None:
        self.comparer, self.vectors = comparer, vectors

    def scores(self, queries: QueryVectors, positions: np.ndarray) -> np.ndarray:
        """Raw scores (Q, n) of the items (Q, n) of each query.

        More than 16,384 items come in several passes of equal size, dealt out like cards, so that each pass has
        its share of good and bad ones.
        """
        count = positions.shape[1]
        scores = np.empty(positions.shape, np.float32)
        per_item = max(1.0, self.vectors.rows_per_item * self.vectors.width * 2)  # bytes
        passes = -(-count // LARGEST_PASS)
        if self.comparer.per_item is None:  # such a model scores items apart, so it may as well have few at a time
            passes = max(passes, int(np.ceil(count * per_item / MEMORY)))
        for number in range(passes):
            part = positions[:, number::passes]
            together = max(1, int(MEMORY / (part.shape[1] * per_item)))
            for start in range(0, len(positions), together):
                rows = slice(start, min(start + together, len(positions)))
                scores[rows, number::passes] = self._pass(
                    queries.take(np.arange(rows.start, rows.stop)), part[rows]
                )
        return scores

    def nearest(self, queries: QueryVectors, problem: Problem, count: int, there: np.ndarray | None) -> np.ndarray:
        """Scores (Q, N) for a search: those of the `count` items nearest by the encoder; others have a floor.

        The floor is the lowest of a query's scores. Only items that are `there` (N,) are compared; None: all.
        Without an encoder the items are those that the first stage puts first.
        """
        size = problem.corpus.size
        there = np.ones(size, bool) if there is None else there
        if there.sum() <= count:
            live = np.flatnonzero(there)
            positions = np.broadcast_to(live, (len(queries), len(live)))
        else:
            order = problem.similarity if problem.similarity is not None else problem.first_stage(None)
            positions = top(np.where(there, order, -np.inf), count)
        if not positions.size:
            return np.zeros((len(queries), size), np.float32)
        values = self.scores(queries, positions)
        scores = np.repeat(values.min(axis=1, keepdims=True), size, axis=1)
        np.put_along_axis(scores, positions, values, axis=1)
        return scores

    def _pass(self, queries: QueryVectors, positions: np.ndarray) -> np.ndarray:
        if len(positions) > 1 and (positions == positions[0]).all():  # such as all items, the same for all queries
            candidates = [self.vectors.take(positions[0])] * len(positions)
        else:
            candidates = [self.vectors.take(row) for row in positions]
        return np.stack(self.comparer.score(queries, candidates))
