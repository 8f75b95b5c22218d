"""Items that do not answer a query, to be told apart from the one that does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.train.data import Examples


@dataclass(frozen=True)
class Row:
    """One query with its candidates, and -1 after the last; `scores`: what a teacher says of them."""

    query: int
    items: np.ndarray
    scores: np.ndarray | None = None


class Groups:
    """Training rows: for a query, an item that answers it and then `count` that do not.

    Negatives are drawn in equal parts from the rows of each of `mined` (see `mine`), and, if `random`, from the
    whole of the query's pool, which also makes up for what is missing. What a query gets depends on seed, epoch
    and query alone, so that a run that was stopped goes on with the same.

    >>> from crosscut.types import Item, Query
    >>> items = [Item(str(n), f"text {n}") for n in range(9)]
    >>> examples = Examples.of([Query("q", "text 4")], items, {"q": {"4": 1}})
    >>> groups = Groups(examples, [], count=3, seed=0)
    >>> row = groups[0]
    >>> row.query, int(row.items[0]), len(set(row.items.tolist()))
    (0, 4, 4)
    """

    def __init__(
        self, examples: Examples, mined: Sequence[np.ndarray], count: int, seed: int, random: bool = True
    ) -> None:
        self.examples, self.mined, self.count, self.seed = examples, list(mined), count, seed
        self.epoch = 0
        parts = len(self.mined) + random
        self._shares = [count // parts + (n < count % parts) for n in range(len(self.mined))]
        self._check()

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, query: int) -> Row:
        generator = np.random.default_rng([self.seed, self.epoch, query])
        positives = self.examples.positives[query]
        positive = positives[int(generator.integers(len(positives)))]
        chosen: list[int] = []
        for mined, share in zip(self.mined, self._shares, strict=True):
            able = [item for item in mined[query].tolist() if item >= 0 and item not in chosen]
            drawn = generator.choice(len(able), min(share, len(able)), replace=False)
            chosen += [able[n] for n in np.sort(drawn)]
        chosen += self._random(query, self.count - len(chosen), chosen, generator)
        return Row(query, np.array([positive, *chosen], np.int64))

    def _random(
        self, query: int, count: int, chosen: list[int], generator: np.random.Generator, few: bool = True
    ) -> list[int]:
        """Looks at a `few` items, and only if too many of them are taken at all: pools can be large."""
        pool, kinds, answers = self.examples.pools[query], self.examples.kinds, self.examples.answers(query)
        if few and len(pool) > 8 * self.count:
            looked_at = generator.integers(pool.start, pool.stop, size=4 * count)
        else:
            looked_at = generator.permutation(np.arange(pool.start, pool.stop))
        taken: set[int] = set(chosen)
        found: list[int] = []
        for item in looked_at.tolist():
            if len(found) == count:
                break
            if item not in taken and kinds[item] not in answers:
                taken.add(item)
                found.append(item)
        return found if len(found) == count else self._random(query, count, chosen, generator, few=False)

    def _check(self) -> None:
        """Enough items for every query, or `_random` would look for ever."""
        examples = self.examples
        for query, pool in enumerate(examples.pools):
            able = len(pool) - len(examples.twins(query, pool))
            if able < self.count:
                raise CrosscutError(
                    f"query {examples.query_ids[query]!r} has only {able} items that do not answer it, but "
                    f"{self.count} are asked for: ask for fewer"
                )
