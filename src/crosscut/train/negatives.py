"""Items that do not answer a query, to be told apart from the one that does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from crosscut.encoders import Encoder, as_encoder
from crosscut.errors import CrosscutError
from crosscut.first_stage import BM25, TFIDF, dense_scores, top
from crosscut.train.data import Examples

ENCODER = "encoder:"
SELF = "self"  # the encoder that is trained
LEXICAL = {"bm25": BM25, "tfidf": TFIDF}
BLOCK = 256  # queries whose scores against all items are in memory at once

# The texts of queries and of items in; scores of some queries (rows) with all items out, block after block.
Ranker = Callable[[list[str], list[str]], Iterator[np.ndarray]]


def check_sources(sources: str | Sequence[str], *more: str) -> list[str]:
    """The names of where items come from, `more` among them; words between commas in one string, too.

    >>> check_sources("bm25,random")
    ['bm25', 'random']
    >>> check_sources("bm52")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: items come from random, bm25, tfidf or encoder:MODEL, not from 'bm52'
    """
    names = [name.strip() for name in sources.split(",")] if isinstance(sources, str) else list(sources)
    for name in names or [""]:
        is_encoder = isinstance(name, str) and name.startswith(ENCODER) and len(name) > len(ENCODER)
        known = (*more, "random", *LEXICAL)
        if not is_encoder and name not in known:
            raise CrosscutError(f"items come from {', '.join(known)} or encoder:MODEL, not from {name!r}")
    return names


def ranker(source: str | Encoder) -> Ranker:
    """How `source` (bm25, tfidf, encoder:MODEL or an encoder) ranks items.

    >>> [scores.shape for scores in ranker("bm25")(["water"], ["flood", "fire"])]
    [(1, 2)]
    """
    if isinstance(source, str) and source in LEXICAL:
        return lambda queries, items: _lexical(LEXICAL[source], queries, items)
    encoder = as_encoder(source.removeprefix(ENCODER)) if isinstance(source, str) else source
    return lambda queries, items: dense_blocks(encoder.encode(queries, "query"), encoder.encode(items, "item"))


def dense_blocks(queries: np.ndarray, items: np.ndarray) -> Iterator[np.ndarray]:
    """Inner products of query and item vectors, block after block.

    >>> [scores.tolist() for scores in dense_blocks(np.eye(2), np.eye(2))]
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    for start in range(0, len(queries), BLOCK):
        yield dense_scores(items, queries[start : start + BLOCK])


def _lexical(make: Callable[[list[str]], Any], queries: list[str], items: list[str]) -> Iterator[np.ndarray]:
    index = make(items)
    for query in queries:
        yield index.scores(query)[None]


def mine(examples: Examples, rank: Ranker, depth: int, answers_too: bool = False) -> np.ndarray:
    """For each query its first `depth` items, best first, without those that answer it unless `answers_too`.

    A query with fewer items has -1 at the end of its row.

    >>> from crosscut.types import Item, Query
    >>> items = [Item("a", "blue whale"), Item("b", "blue sky"), Item("c", "grey")]
    >>> examples = Examples.of([Query("q", "blue whale")], items, {"q": {"a": 1}})
    >>> mine(examples, ranker("bm25"), depth=3).tolist()
    [[1, 2, -1]]
    """
    mined = np.full((len(examples), depth), -1, np.int32)
    for pool, queries in examples.by_pool():
        kinds = examples.kinds[pool.start : pool.stop]
        place = 0
        for scores in rank([examples.queries[q] for q in queries], examples.items[pool.start : pool.stop]):
            block = queries[place : place + len(scores)]
            scores = np.array(scores, np.float32)
            if not answers_too:
                for row, query in zip(scores, block, strict=True):
                    row[np.isin(kinds, examples.answers(query))] = -np.inf
            best = top(scores, depth)
            found = np.where(np.isneginf(np.take_along_axis(scores, best, axis=1)), -1, best + pool.start)
            mined[block, : found.shape[1]] = found
            place += len(scores)
    return mined


@dataclass(frozen=True)
class Row:
    """One query with its candidates; `scores`: what a teacher says of them."""

    query: int
    items: np.ndarray
    scores: np.ndarray | None = None


def mine_all(
    examples: Examples, sources: Sequence[str], depth: int, answers_too: bool = False
) -> list[np.ndarray]:
    """`mine` with each of the sources that rank.

    >>> from crosscut.types import Item, Query
    >>> examples = Examples.of([Query("q", "blue")], [Item("a", "blue"), Item("b", "grey")], {"q": {"a": 1}})
    >>> [mined.tolist() for mined in mine_all(examples, ["bm25", "random"], depth=1)]
    [[[1]]]
    """
    return [mine(examples, ranker(source), depth, answers_too) for source in sources if source != "random"]


def first_items(examples: Examples, sources: Sequence[str], depth: int, seed: int) -> np.ndarray:
    """For each query `depth` items, the first of each source by turns, whether they answer it or not.

    Of `random` they are drawn from the query's pool. A query with fewer items has -1 at the end of its row.

    >>> from crosscut.types import Item, Query
    >>> items = [Item("a", "blue whale"), Item("b", "blue sky"), Item("c", "grey")]
    >>> examples = Examples.of([Query("q", "blue whale")], items, {"q": {"a": 1}})
    >>> first_items(examples, ["bm25"], depth=2, seed=0).tolist()
    [[0, 1]]
    """
    mined = mine_all(examples, sources, depth, answers_too=True)
    rows = np.full((len(examples), depth), -1, np.int32)
    for query, row in enumerate(rows):
        rankings = [found[query][found[query] >= 0].tolist() for found in mined]
        if "random" in sources:
            rankings.append(_some(examples.pools[query], depth, np.random.default_rng([seed, query])))
        by_turns = (item for turn in zip_longest(*rankings) for item in turn if item is not None)
        chosen = list(dict.fromkeys(by_turns))[:depth]
        row[: len(chosen)] = chosen
    return rows


def _some(pool: range, count: int, generator: np.random.Generator) -> list[int]:
    """`count` items or more, if there are as many, in any order; without looking at all of a large pool."""
    if len(pool) <= 16 * count:
        return generator.permutation(np.arange(pool.start, pool.stop)).tolist()
    return list(dict.fromkeys(generator.integers(pool.start, pool.stop, size=4 * count).tolist()))


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
        for pool, queries in examples.by_pool():
            counts = np.bincount(examples.kinds[pool.start : pool.stop], minlength=examples.kinds.max() + 1)
            for query in queries:
                able = len(pool) - int(counts[np.unique(examples.answers(query))].sum())
                if able < self.count:
                    raise CrosscutError(
                        f"query {examples.query_ids[query]!r} has only {able} items that do not answer it, but "
                        f"{self.count} are asked for: ask for fewer"
                    )
