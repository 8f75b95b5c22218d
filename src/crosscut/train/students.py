"""Models that learn from a cross-encoder's scores: bi-encoders (ANNCUR A.3), and smaller cross-encoders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from crosscut.train.batches import Batch
from crosscut.train.data import Examples
from crosscut.train.folder import kept
from crosscut.train.negatives import Row
from crosscut.train.pairs import PairTask
from crosscut.train.teacher import Taught, TaughtRows
from crosscut.train.trainer import Spread
from crosscut.train.vectors import KS, VectorTask


class MatchTask(VectorTask):
    """L_match: cross-entropy between the two softmaxes over a query's items, the teacher's and the student's."""

    rows: TaughtRows

    def __init__(self, *given: Any, dev_taught: Taught, **more: Any) -> None:
        super().__init__(*given, **more)
        self._dev_taught = dev_taught

    def collate(self, rows: Sequence[Row]) -> Batch:
        queries, items = self.known[id(self.train)]
        table = np.stack([row.items for row in rows])
        there = table >= 0
        chosen, found = np.unique(table[there], return_inverse=True)
        places = np.zeros(table.shape, np.int64)
        places[there] = found
        numbers = np.concatenate([queries[[row.query for row in rows]], items[chosen]])
        batch = {
            "inputs": self.inputs(numbers),
            "places": torch.as_tensor(places),
            "there": torch.as_tensor(there),
        }
        if scores := [row.scores for row in rows if row.scores is not None]:
            batch["target"] = torch.as_tensor(np.stack(scores))
        return batch

    def scores(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The student's scores of each query's items, whatever where there is none."""
        queries, items = output.split([len(batch["places"]), len(output) - len(batch["places"])])
        return self.scale * torch.einsum("qd,qnd->qn", queries, items[batch["places"]])

    def loss(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        own, teacher = (
            scores.masked_fill(~batch["there"], -torch.inf)
            for scores in (self.scores(output, batch), batch["target"])
        )
        # Where there is no item, the teacher's share is 0, and 0 times infinity is no number.
        logs = own.log_softmax(dim=1).masked_fill(~batch["there"], 0)
        return -(teacher.softmax(dim=1) * logs).sum(dim=1).mean()

    def evaluate(self, spread: Spread) -> dict[str, float]:
        """Top-k-recall: of the teacher's first k items, how many are among the student's first k."""
        return top_recalls(self._dev_taught.items, self.nearest(self.dev, max(KS), spread), self.dev)


def top_recalls(wanted: np.ndarray, best: np.ndarray, dev: Examples) -> dict[str, float]:
    """Of the first k `wanted` items of each query, the share that is among its first k of `best`."""
    found = {}
    largest = max(10, min(wanted.shape[1], max(map(len, dev.pools)) - 1))
    for k in (k for k in KS if k <= largest):
        hits = [np.isin(items[:k][items[:k] >= 0], row[:k]) for items, row in zip(wanted, best, strict=True)]
        found[f"recall@{k}"] = float(np.mean([hit.mean() for hit in hits]))
    return found


class PairwiseTask(MatchTask):
    """L_pair: each of the teacher's first items before one of the student's first that is not among them.

    The latter are found anew when an epoch begins, and kept in `work`.
    """

    def __init__(self, *given: Any, work: Path, **more: Any) -> None:
        super().__init__(*given, **more)
        self._work = work
        self.rows: PairwiseRows = PairwiseRows(self.rows.taught)

    def begin_epoch(self, epoch: int, spread: Spread) -> None:
        super().begin_epoch(epoch, spread)
        count = self.rows.taught.items.shape[1]
        first = kept(self._work / f"mined-{epoch}.npy", lambda: self.nearest(self.train, 2 * count, spread))
        self.rows.set_negatives(first)

    def loss(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        positive, negative = self.scores(output, batch).chunk(2, dim=1)
        there = batch["there"].chunk(2, dim=1)[1]
        # A batch of queries that have no pair teaches nothing.
        return (F.softplus(negative - positive) * there).sum() / there.sum().clamp(min=1)


class PairwiseRows(TaughtRows):
    """Training rows: the teacher's first items, then as many of the student's.

    Where the student's are fewer they come again, and a query that has no other items than the teacher's has none.
    """

    def __init__(self, taught: Taught) -> None:
        super().__init__(taught, None, 0)
        self._table = np.zeros((0, 0), np.int64)

    def set_negatives(self, first: np.ndarray) -> None:
        """From the student's `first` items, those that are not the teacher's."""
        first_of_teacher = self.taught.items
        self._table = np.full((len(first), 2, first_of_teacher.shape[1]), -1, np.int64)
        for row, own, items in zip(self._table, first, first_of_teacher, strict=True):
            items = items[items >= 0]
            others = own[(own >= 0) & ~np.isin(own, items)]
            if len(others):
                row[0, : len(items)], row[1, : len(items)] = items, np.resize(others, len(items))

    def __getitem__(self, query: int) -> Row:
        return Row(query, self._table[query].ravel())


class RegressionTask(PairTask):
    """The teacher's scores themselves: mean squared error (ADACUR B.1.2)."""

    best = "mse"
    lower_is_better = True

    def loss(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        return F.mse_loss(output, batch["target"])

    def evaluate(self, spread: Spread) -> dict[str, float]:
        """Mean squared error, and how often teacher and student have the same item first."""
        rows = [self.dev[query] for query in range(len(self.dev))]
        there = np.stack([row.items for row in rows]) >= 0
        scores = self.dev_scores(spread)
        target = np.where(there, np.stack([row.scores for row in rows]), -np.inf)
        same = scores.argmax(axis=1) == target.argmax(axis=1)
        return {
            "mse": float(np.square(scores[there] - target[there]).mean()),
            "same_first": float(same.mean()),
        }
