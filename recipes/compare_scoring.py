"""Scores of many queries with many candidates each, by a compare model: all items stay where the model runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from crosscut.compare import ItemVectors
from crosscut.scorers.torch_models import any_shape

ROOM = {"cuda": 1 << 28, "cpu": 1 << 23}  # numbers of the candidates' rows in a pass


@dataclass(frozen=True)
class Table:
    """Rows of texts (texts, rows, d) where the model runs, and where there is one (None: everywhere)."""

    rows: torch.Tensor
    there: torch.Tensor | None

    @classmethod
    def of(cls, comparer: Any, vectors: ItemVectors) -> Table:
        kind = next(comparer.model.parameters()).dtype
        flat = torch.as_tensor(np.ascontiguousarray(vectors.rows)).to(comparer.device, kind)
        counts = vectors.counts
        longest = max(1, int(counts.max(initial=0)))
        if (counts == longest).all():
            return cls(flat.reshape(len(vectors), longest, -1), None)
        there = torch.as_tensor(np.arange(longest) < counts[:, None]).to(comparer.device)
        rows = flat.new_zeros(len(vectors), longest, flat.shape[1])
        rows[there] = flat
        return cls(rows, there)

    def __getitem__(self, places: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self.rows[places], None if self.there is None else self.there[places]


@dataclass(frozen=True)
class Compared:
    """A compare model with texts where it runs: `scores` of items by position. `bytes`: of one in an index."""

    comparer: Any
    queries: Table
    items: Table
    bytes: float

    @classmethod
    def of(cls, comparer: Any, queries: Sequence[str], items: Sequence[str]) -> Compared:
        encoded = comparer.encode_items(items)
        asked = Table.of(comparer, comparer.encode_queries(queries))
        return cls(comparer, asked, Table.of(comparer, encoded), encoded.rows.nbytes / len(items))

    def scores(self, candidates: np.ndarray, queries: np.ndarray | None = None) -> np.ndarray:
        """Float32, as `candidates` (queries x items); of all queries in order, or of those by position."""
        queries = np.arange(len(candidates)) if queries is None else queries
        place = "cuda" if self.comparer.device.startswith("cuda") else "cpu"
        size = max(1, ROOM[place] // self._numbers(candidates))
        made = []
        with torch.inference_mode(), any_shape():
            for start in range(0, len(candidates), size):
                chosen, places = (
                    torch.as_tensor(part[start : start + size].astype(np.int64)).to(self.comparer.device)
                    for part in (queries, candidates)
                )
                made.append(self.comparer.model.compare(*self.queries[chosen], *self.items[places]).float().cpu())
        return torch.cat(made).numpy()

    def _numbers(self, candidates: np.ndarray) -> int:
        """Of one query."""
        rows = self.items.rows.shape[1]
        if self.comparer.per_item is None:  # such a model may put the query before every candidate
            rows += self.queries.rows.shape[1]
        return candidates.shape[1] * rows * self.comparer.width
