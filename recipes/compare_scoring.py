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
    """Rows of texts (rows, d) where the model runs, as they are kept; text n has those from starts[n] on."""

    rows: torch.Tensor
    starts: torch.Tensor
    dtype: torch.dtype

    @classmethod
    def of(cls, comparer: Any, vectors: ItemVectors) -> Table:
        rows = torch.as_tensor(np.ascontiguousarray(vectors.rows)).to(comparer.device)
        starts = torch.as_tensor(vectors.starts).to(comparer.device)
        return cls(rows, starts, next(comparer.model.parameters()).dtype)

    def __getitem__(self, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Filled up to the longest of these texts, and where there is a row (None: everywhere)."""
        begin, end = self.starts[places], self.starts[places + 1]
        at = begin[..., None] + torch.arange(int((end - begin).max()), device=begin.device)
        there = at < end[..., None]
        rows = self.rows[at.clamp(max=len(self.rows) - 1)].to(self.dtype)
        return rows, None if bool(there.all()) else there

    @property
    def longest(self) -> int:
        return int(self.starts.diff().max())


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
        rows = self.items.longest
        if self.comparer.per_item is None:  # such a model may put the query before every candidate
            rows += self.queries.longest
        return candidates.shape[1] * rows * self.comparer.width
