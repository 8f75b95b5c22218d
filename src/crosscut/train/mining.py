"""The first items of each query by words, by vectors or by a run: where negatives and candidates come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.data import read_run
from crosscut.encoders import Encoder, as_encoder
from crosscut.errors import CrosscutError
from crosscut.first_stage import BM25, TFIDF, top
from crosscut.system import cores
from crosscut.train.data import Examples
from crosscut.train.nearest import by_vectors

ENCODER = "encoder:"
RUN = "run:"
RANDOM = "random"
SELF = "self"  # the encoder that is trained
LEXICAL = {"bm25": BM25, "tfidf": TFIDF}

# (examples, queries, pool, depth, without): for these queries the places in the pool of the first items, best
# first, and -1 where there are no more; `without` has the places that are left out for each query.
Find = Callable[[Examples, Sequence[int], range, int, Sequence[np.ndarray]], np.ndarray]


def check_sources(sources: str | Sequence[str], *more: str) -> list[str]:
    """The names of where items come from, `more` among them; words between commas in one string, too.

    >>> check_sources("bm25,random")
    ['bm25', 'random']
    >>> check_sources("bm52")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: items come from random, bm25, tfidf, encoder:MODEL or run:FILE, not from 'bm52'
    """
    names = [name.strip() for name in sources.split(",")] if isinstance(sources, str) else list(sources)
    for name in names or [""]:
        is_named = isinstance(name, str) and any(
            name.startswith(kind) and len(name) > len(kind) for kind in (ENCODER, RUN)
        )
        known = (*more, RANDOM, *LEXICAL)
        if not is_named and name not in known:
            listed = ", ".join((*known, f"{ENCODER}MODEL"))
            raise CrosscutError(f"items come from {listed} or {RUN}FILE, not from {name!r}")
    return names


def finder(source: str | Encoder, device: str | None = None) -> Find:
    """How `source` (bm25, tfidf, encoder:MODEL, run:FILE or an encoder) finds items; `device` is for vectors.

    >>> from crosscut.types import Item, Query
    >>> items = [Item("a", "blue whale"), Item("b", "blue sky"), Item("c", "grey")]
    >>> examples = Examples.of([Query("q", "blue whale")], items, {"q": {"a": 1}})
    >>> finder("bm25")(examples, [0], range(3), 2, [np.array([0])]).tolist()
    [[1, 2]]
    """
    if isinstance(source, str) and source in LEXICAL:
        return partial(_by_words, LEXICAL[source])
    if isinstance(source, str) and source.startswith(RUN):
        path = source.removeprefix(RUN)
        return partial(_by_run, path, _read_run(path, _changed(path)))
    encoder = as_encoder(source.removeprefix(ENCODER), device) if isinstance(source, str) else source
    return partial(_by_encoder, encoder, device)


def mine(examples: Examples, find: Find, depth: int, answers_too: bool = False) -> np.ndarray:
    """For each query its first `depth` items, best first, without those that answer it unless `answers_too`.

    A query with fewer items has -1 at the end of its row.

    >>> from crosscut.types import Item, Query
    >>> items = [Item("a", "blue whale"), Item("b", "blue sky"), Item("c", "grey")]
    >>> examples = Examples.of([Query("q", "blue whale")], items, {"q": {"a": 1}})
    >>> mine(examples, finder("bm25"), depth=3).tolist()
    [[1, 2, -1]]
    """
    mined = np.full((len(examples), depth), -1, np.int32)
    nothing = np.zeros(0, np.int64)
    for pool, queries in examples.by_pool():
        without = [nothing if answers_too else examples.twins(query, pool) - pool.start for query in queries]
        found = find(examples, queries, pool, depth, without)
        mined[queries, : found.shape[1]] = np.where(found < 0, -1, found + pool.start)
    return mined


def vector_finder(queries: np.ndarray, items: np.ndarray, device: str | None = None) -> Find:
    """How vectors of all queries and all items find items.

    >>> from crosscut.types import Item, Query
    >>> examples = Examples.of([Query("q", "blue")], [Item("a", "blue"), Item("b", "grey")], {"q": {"a": 1}})
    >>> mine(examples, vector_finder(np.ones((1, 2)), np.eye(2)), depth=2).tolist()
    [[1, -1]]
    """

    def find(
        _: Examples, some: Sequence[int], pool: range, depth: int, without: Sequence[np.ndarray]
    ) -> np.ndarray:
        return by_vectors(queries[some], items[pool.start : pool.stop], depth, without, device)

    return find


def mine_all(
    examples: Examples,
    sources: Sequence[str],
    depth: int,
    answers_too: bool = False,
    device: str | None = None,
) -> list[np.ndarray]:
    """`mine` with each of the sources that rank.

    >>> from crosscut.types import Item, Query
    >>> examples = Examples.of([Query("q", "blue")], [Item("a", "blue"), Item("b", "grey")], {"q": {"a": 1}})
    >>> [mined.tolist() for mined in mine_all(examples, ["bm25", "random"], depth=1)]
    [[[1]]]
    """
    ranked = [source for source in sources if source != RANDOM]
    return [mine(examples, finder(source, device), depth, answers_too) for source in ranked]


def first_items(
    examples: Examples, sources: Sequence[str], depth: int, seed: int, device: str | None = None
) -> np.ndarray:
    """For each query `depth` items, the first of each source by turns, whether they answer it or not.

    Of `random`, and for a query of which no source knows an item, they are drawn from the query's pool. A query
    with fewer items has -1 at the end of its row.

    >>> from crosscut.types import Item, Query
    >>> items = [Item("a", "blue whale"), Item("b", "blue sky"), Item("c", "grey")]
    >>> examples = Examples.of([Query("q", "blue whale")], items, {"q": {"a": 1}})
    >>> first_items(examples, ["bm25"], depth=2, seed=0).tolist()
    [[0, 1]]
    """
    rankings = mine_all(examples, sources, depth, answers_too=True, device=device)
    unknown = np.all([ranking[:, 0] < 0 for ranking in rankings], axis=0)
    if RANDOM in sources or unknown.any():
        drawn = _some(examples, depth, seed)
        if RANDOM not in sources:
            drawn[~unknown] = -1
        rankings.append(drawn)
    rows = np.full((len(examples), depth), -1, np.int32)
    for start in range(0, len(rows), 4096):
        block = np.full((len(rows[start : start + 4096]), max(r.shape[1] for r in rankings), len(rankings)), -1)
        for place, ranking in enumerate(rankings):
            block[:, : ranking.shape[1], place] = ranking[start : start + 4096]
        rows[start : start + 4096] = _distinct(block.reshape(len(block), -1), depth)
    return rows


def _distinct(table: np.ndarray, count: int) -> np.ndarray:
    """The first `count` different items of each row, and -1 where there are no more."""
    order = np.argsort(table, axis=1, kind="stable")
    ordered = np.take_along_axis(table, order, axis=1)
    again = np.zeros(table.shape, bool)
    np.put_along_axis(again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    again |= table < 0
    first = np.argsort(again, axis=1, kind="stable")[:, :count]
    chosen = np.where(np.take_along_axis(again, first, axis=1), -1, np.take_along_axis(table, first, axis=1))
    return np.pad(chosen, ((0, 0), (0, count - chosen.shape[1])), constant_values=-1)


def _some(examples: Examples, count: int, seed: int) -> np.ndarray:
    """`count` different items of each query's pool or more, if it has as many, and perhaps some of them twice."""
    generator, table = np.random.default_rng(seed), np.full((len(examples), 2 * count), -1, np.int32)
    for pool, queries in examples.by_pool():
        if len(pool) > 16 * count:
            table[queries] = generator.integers(pool.start, pool.stop, size=(len(queries), 2 * count))
            continue
        for query in queries:
            drawn = generator.permutation(len(pool))[: 2 * count]
            table[query, : len(drawn)] = pool.start + drawn
    return table


def _by_words(
    make: Callable[[list[str]], Any],
    examples: Examples,
    queries: Sequence[int],
    pool: range,
    depth: int,
    without: Sequence[np.ndarray],
) -> np.ndarray:
    index = make(examples.items[pool.start : pool.stop])
    found = np.full((len(queries), depth), -1, np.int32)

    def fill(block: range) -> None:
        for place in block:
            scores = index.scores(examples.queries[queries[place]])
            scores[without[place]] = -np.inf
            some = np.flatnonzero(scores)  # few items share a word with the query
            best = some[top(scores[some], depth)]
            best = best[scores[best] > 0]
            rest = np.flatnonzero(scores == 0)[: depth - len(best)] if len(best) < depth else best[:0]
            found[place, : len(best) + len(rest)] = [*best, *rest]

    # Threads, as numpy lets others work meanwhile, and a process that has a GPU is better not copied.
    with ThreadPoolExecutor(len(cores())) as threads:
        places = range(len(queries))
        list(threads.map(fill, [places[start : start + 64] for start in range(0, len(queries), 64)]))
    return found


@lru_cache(maxsize=1)  # for the queries to train on, and again for those to evaluate on
def _read_run(path: str, changed: int) -> dict[str, dict[str, float]]:
    return read_run(path)


def _changed(path: str) -> int:
    return Path(path).stat().st_mtime_ns if Path(path).exists() else 0


def _by_run(
    path: str,
    run: Mapping[str, Mapping[str, float]],
    examples: Examples,
    queries: Sequence[int],
    pool: range,
    depth: int,
    without: Sequence[np.ndarray],
) -> np.ndarray:
    places = {id: place for place, id in enumerate(examples.item_ids[pool.start : pool.stop])}
    found = np.full((len(queries), depth), -1, np.int32)
    if not any(id in run for id in examples.query_ids):
        raise CrosscutError(
            f"the run {path} has none of the {len(examples)} queries that it shall give items for: "
            "is it of this data, and of this split?"
        )
    for row, query, left_out in zip(found, queries, without, strict=True):
        ranked = run.get(examples.query_ids[query], {})
        items = sorted(ranked, key=lambda id: -ranked[id])
        if lost := [id for id in items if id not in places]:
            raise CrosscutError(
                f"the run {path} gives query {examples.query_ids[query]!r} the item {lost[0]!r}, "
                "which is not in the data"
            )
        answers = set(left_out.tolist())
        kept = [place for id in items if (place := places[id]) not in answers][:depth]
        row[: len(kept)] = kept
    return found


def _by_encoder(
    encoder: Encoder,
    device: str | None,
    examples: Examples,
    queries: Sequence[int],
    pool: range,
    depth: int,
    without: Sequence[np.ndarray],
) -> np.ndarray:
    vectors = encoder.encode([examples.queries[query] for query in queries], "query")
    return by_vectors(
        vectors, encoder.encode(examples.items[pool.start : pool.stop], "item"), depth, without, device
    )
