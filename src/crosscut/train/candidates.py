"""Candidates of a query for training: an item that answers it, and others that the first stage ranks high."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crosscut.train.data import Examples
from crosscut.train.negatives import Groups, Row

GATHERED = 1 << 26  # numbers of vectors that are gathered together


@dataclass(frozen=True)
class FirstStage:
    """The unit vectors with which a bi-encoder finds candidates; scores are `scale` times their cosines.

    >>> FirstStage(np.eye(2), np.eye(2), 20.0).scores(1, np.array([1, 0, -1])).tolist()
    [20.0, 0.0, 0.0]
    """

    queries: np.ndarray
    items: np.ndarray
    scale: float

    def scores(self, query: int, items: np.ndarray) -> np.ndarray:
        """Of some items, float32; 0 where there is none (-1)."""
        made = self.scale * (self.items[items] @ self.queries[query])
        return np.where(items >= 0, made, 0).astype(np.float32)

    def table(self, ranking: np.ndarray, device: str | None = None) -> np.ndarray:
        """`scores` of a row of items for every query: on a GPU at once, where one row at a time would take longer
        than training on it.

        >>> FirstStage(np.eye(2), np.eye(2), 20.0).table(np.array([[0, 1], [1, -1]]), "cpu").tolist()
        [[20.0, 0.0], [20.0, 0.0]]
        """
        import torch

        chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
        queries, items = (
            torch.as_tensor(part, dtype=torch.float32, device=chosen) for part in (self.queries, self.items)
        )
        made = np.zeros(ranking.shape, np.float32)
        step = max(1, GATHERED // max(1, ranking.shape[1] * items.shape[1]))
        for start in range(0, len(ranking), step):
            places = torch.as_tensor(ranking[start : start + step], dtype=torch.long, device=chosen)
            scores = self.scale * (items[places.clamp(min=0)] @ queries[start : start + step, :, None])[..., 0]
            made[start : start + step] = scores.masked_fill(places < 0, 0).cpu().numpy()
        return made


class Sampled:
    """Training rows: for a query an item that answers it, and up to `count` − 1 that do not.

    Of the latter the share `top_share` are the first of the ranking `mined` (see `mine`), always the same; the
    others are drawn without replacement from the rest of it, by the softmax of the first stage's scores (CMC,
    eq. 6), anew in every epoch. A query whose ranking is shorter has fewer, and -1 after the last. What a query
    gets depends on seed, epoch and query alone.

    >>> from crosscut.types import Item, Query
    >>> items = [Item(str(n), f"text {n}") for n in range(5)]
    >>> examples = Examples.of([Query("q", "text 4")], items, {"q": {"4": 1}})
    >>> stage = FirstStage(np.ones((1, 1)), np.ones((5, 1)), 20.0)
    >>> rows = Sampled(examples, stage, np.array([[3, 0, 1, 2]]), count=4, top_share=0.67, seed=0)
    >>> rows[0].items[:3].tolist(), int(rows[0].items[3]) in (1, 2)
    ([4, 3, 0], True)
    """

    def __init__(
        self,
        examples: Examples,
        stage: FirstStage,
        mined: np.ndarray,
        count: int,
        top_share: float,
        seed: int,
        device: str | None = None,
    ) -> None:
        self.examples, self.stage, self.mined, self.count, self.seed = examples, stage, mined, count, seed
        self._scores = stage.table(mined, device)
        self.top = round(top_share * (count - 1))
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, query: int) -> Row:
        generator = np.random.default_rng([self.seed, self.epoch, query])
        positives = self.examples.positives[query]
        answer = positives[int(generator.integers(len(positives)))]
        ranked = self.mined[query]
        ranked = ranked[ranked >= 0]
        top, rest = ranked[: self.top], ranked[self.top :]
        # The largest of scores with Gumbel noise are a sample without replacement from their softmax.
        noisy = self._scores[query, self.top : len(ranked)] + generator.gumbel(size=len(rest))
        drawn = rest[np.sort(np.argsort(-noisy, kind="stable")[: self.count - 1 - len(top)])]
        items = np.full(self.count, -1, np.int64)
        chosen = [answer, *top, *drawn]
        items[: len(chosen)] = chosen
        return Row(query, items, self.stage.scores(query, items))


class Drawn:
    """Training rows whose negatives are drawn from the whole pool (see `Groups`); scores only with a stage.

    >>> from crosscut.types import Item, Query
    >>> items = [Item(str(n), f"text {n}") for n in range(5)]
    >>> examples = Examples.of([Query("q", "text 4")], items, {"q": {"4": 1}})
    >>> len(Drawn(examples, None, count=4, seed=0)[0].items)
    4
    """

    def __init__(self, examples: Examples, stage: FirstStage | None, count: int, seed: int) -> None:
        self.stage, self._groups = stage, Groups(examples, [], count - 1, seed)

    @property
    def epoch(self) -> int:
        return self._groups.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._groups.epoch = epoch

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, query: int) -> Row:
        items = self._groups[query].items
        return Row(query, items, self.stage.scores(query, items) if self.stage else None)


class Ranked:
    """Rows to evaluate on: the first items of a ranking, whether they answer the query or not.

    >>> Ranked(np.array([[2, 0, -1]]))[0].items.tolist()
    [2, 0, -1]
    """

    def __init__(self, ranking: np.ndarray) -> None:
        self.ranking, self.epoch = ranking, 0

    def __len__(self) -> int:
        return len(self.ranking)

    def __getitem__(self, query: int) -> Row:
        return Row(query, self.ranking[query].astype(np.int64))
