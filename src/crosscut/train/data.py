"""What models are trained on: queries, items, and which items answer a query."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from crosscut.data import Mention, read_beir, read_blink, read_items, read_zeshel_items, read_zeshel_mentions
from crosscut.data.lines import find_file
from crosscut.data.mentions import ITEM_MARKER, MENTION_MARKERS, as_entity
from crosscut.errors import CrosscutError
from crosscut.train.settings import Settings
from crosscut.types import Item, Query

DEV_SPLITS = ("dev", "valid", "validation", "val")
HELD_OUT = 0.1  # of the training queries, where there is no split for evaluation


@dataclass(frozen=True)
class Examples:
    """Texts as the model reads them.

    `positives`: positions of the items that answer each query. `pools`: where the items lie that the query may be
    compared with (the entities of its world, or all items). `markers`: words that are one token each.

    >>> items, queries = [Item("a", "flood"), Item("b", "fire")], [Query("q", "water?")]
    >>> examples = Examples.of(queries, items, {"q": {"a": 1}})
    >>> examples.queries, examples.items, examples.positives, examples.pools
    (['water?'], ['flood', 'fire'], [(0,)], [range(0, 2)])
    """

    queries: list[str]
    items: list[str]
    positives: list[tuple[int, ...]]
    pools: list[range]
    query_ids: list[str]
    item_ids: list[str]
    markers: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, queries: Sequence[Query], items: Sequence[Item], qrels: Mapping[str, Mapping[str, int]]
    ) -> Examples:
        """Plain queries and items; an item with a relevance above 0 answers the query.

        >>> Examples.of([Query("q", "water?")], [Item("a", "flood")], {"q": {"b": 1}})
        Traceback (most recent call last):
        crosscut.errors.CrosscutError: 1 labels point to items that are not there, the first: 'b' of query 'q'
        """
        places = {item.id: place for place, item in enumerate(items)}
        wanted = [(query, _relevant(qrels.get(query.id, {}))) for query in queries]
        _check_labels((query.id, id) for query, ids in wanted for id in ids if id not in places)
        kept = [(query, tuple(places[id] for id in ids)) for query, ids in wanted if ids]
        if not kept:
            raise CrosscutError(
                "no query has an item that answers it (a relevance above 0): nothing to learn from"
            )
        return cls(
            [query.text for query, _ in kept],
            [item.content for item in items],
            [positions for _, positions in kept],
            [range(len(items))] * len(kept),
            [query.id for query, _ in kept],
            [item.id for item in items],
        )

    @classmethod
    def of_mentions(
        cls, mentions: Sequence[Mention], worlds: Mapping[str, Sequence[Item]], window: int = 32
    ) -> Examples:
        """Mentions between markers, and the entities of each world as `title [ENT] description` (ANNCUR A.1).

        >>> mention = Mention("m1", "on the", "bank", "of the river", label_id="7", world="nature")
        >>> examples = Examples.of_mentions([mention], {"nature": [Item("7", "the side of a river", "Bank")]})
        >>> examples.queries, examples.items
        (['on the [M_s] bank [M_e] of the river'], ['Bank [ENT] the side of a river'])
        """
        pools: dict[str, range] = {}
        places: dict[tuple[str, str], int] = {}
        items: list[Item] = []
        for world, entities in worlds.items():
            pools[world] = range(len(items), len(items) + len(entities))
            places.update({(world, entity.id): len(items) + n for n, entity in enumerate(entities)})
            items += entities
        lost = ((mention.id, mention.label_id) for mention in mentions)
        _check_labels(pair for pair, m in zip(lost, mentions, strict=True) if (m.world, m.label_id) not in places)
        return cls(
            [mention.text(window) for mention in mentions],
            [as_entity(item).text for item in items],
            [(places[mention.world, mention.label_id],) for mention in mentions],
            [pools[mention.world] for mention in mentions],
            [mention.id for mention in mentions],
            [item.id for item in items],
            (*MENTION_MARKERS, ITEM_MARKER),
        )

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, positions: Iterable[int]) -> Examples:
        """The same items with some of the queries.

        >>> queries, qrels = [Query("q", "a?"), Query("r", "b?")], {"q": {"a": 1}, "r": {"a": 1}}
        >>> examples = Examples.of(queries, [Item("a", "")], qrels)
        >>> examples.take([1]).query_ids
        ['r']
        """
        chosen = list(positions)
        return replace(
            self,
            queries=[self.queries[p] for p in chosen],
            positives=[self.positives[p] for p in chosen],
            pools=[self.pools[p] for p in chosen],
            query_ids=[self.query_ids[p] for p in chosen],
        )

    def by_pool(self) -> Iterator[tuple[range, list[int]]]:
        """Each pool with the positions of its queries.

        >>> examples = Examples.of([Query("q", "water?")], [Item("a", "flood")], {"q": {"a": 1}})
        >>> list(examples.by_pool())
        [(range(0, 1), [0])]
        """
        groups: dict[range, list[int]] = {}
        for position, pool in enumerate(self.pools):
            groups.setdefault(pool, []).append(position)
        yield from groups.items()

    @cached_property
    def kinds(self) -> np.ndarray:
        """A number for each item, the same where the text is the same: the twin of a positive is no negative."""
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(text, len(numbers)) for text in self.items])

    @cached_property
    def _by_kind(self) -> tuple[np.ndarray, np.ndarray]:
        """The items in the order of their kinds, and where each kind begins; one more at the end."""
        order = np.argsort(self.kinds, kind="stable")
        return order, np.searchsorted(self.kinds[order], np.arange(self.kinds.max(initial=-1) + 2))

    def answers(self, query: int) -> np.ndarray:
        """The kinds of the items that answer a query."""
        return self.kinds[list(self.positives[query])]

    def twins(self, query: int, pool: range | None = None) -> np.ndarray:
        """Where the items lie, anywhere or in a pool, that answer a query or have the text of one that does.

        >>> items = [Item("a", "flood"), Item("b", "flood")]
        >>> Examples.of([Query("q", "water?")], items, {"q": {"a": 1}}).twins(0).tolist()
        [0, 1]
        """
        order, starts = self._by_kind
        kinds = dict.fromkeys(self.answers(query).tolist())
        found = np.concatenate([order[:0], *(order[starts[kind] : starts[kind + 1]] for kind in kinds)])
        return found if pool is None else found[(found >= pool.start) & (found < pool.stop)]

    def digest(self) -> str:
        """A short hex, the same for the same examples."""
        sha = hashlib.sha256()
        for values in (self.queries, self.items, self.positives, self.pools):
            for value in values:
                sha.update(hashlib.sha256(str(value).encode("utf-8", "surrogatepass")).digest())
        return sha.hexdigest()[:16]


def read_examples(data: str | Path, split: str, *, items: str | Path | None = None, window: int = 32) -> Examples:
    """The examples of one split of a folder.

    The folder is BEIR's, or ZESHEL's (documents/ and mentions/), or has entities/WORLD.jsonl and, in BLINK's form,
    mentions/SPLIT.jsonl. A single file of mentions in BLINK's form needs `items`, the file of its entities, and
    has no splits.

    >>> read_examples("no/such/folder", "train")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no folder or file no/such/folder
    """
    data = Path(data)
    if data.is_file():
        if items is None:
            raise CrosscutError(f"{data} is a file of mentions: name the file of their entities, too, with items=")
        mentions = read_blink(data)
        return Examples.of_mentions(mentions, _shared_world(mentions, read_items(items)), window)
    if not data.is_dir():
        raise CrosscutError(f"there is no folder or file {data}")
    if (data / "documents").is_dir():
        mentions = read_zeshel_mentions(data, split)
        worlds = {world: read_zeshel_items(data, world) for world in sorted({m.world for m in mentions})}
        return Examples.of_mentions(mentions, worlds, window)
    if (data / "entities").is_dir():
        return _read_worlds(data, split, window)
    beir = read_beir(data, split)
    return Examples.of(beir.queries, beir.items, beir.qrels)


def read_splits(data: str | Path, settings: Settings) -> tuple[Examples, Examples]:
    """Examples to train on, and others to evaluate on: see `Settings`.

    >>> import tempfile
    >>> from crosscut.data import write_beir
    >>> folder, queries = tempfile.mkdtemp(), [Query(str(n), "water?") for n in range(20)]
    >>> write_beir(folder, [Item("a", "flood")], queries, {"train": {str(n): {"a": 1} for n in range(20)}})
    >>> [len(part) for part in read_splits(folder, Settings())]
    [18, 2]
    """
    split, dev = settings.split, settings.dev
    read = partial(read_examples, data, items=settings.items, window=settings.window)
    train = read(split)
    if dev is None:
        dev = next((name for name in DEV_SPLITS if name != split and _has_split(Path(data), name)), None)
    if dev is None:
        return hold_out(train, settings)
    found = read(dev)
    drawn = np.random.default_rng(settings.seed).permutation(len(found))[: settings.dev_queries]
    return train, found.take(np.sort(drawn).tolist())


def hold_out(examples: Examples, settings: Settings) -> tuple[Examples, Examples]:
    """Examples to train on, and the tenth of them that is set apart for evaluation.

    >>> items, qrels = [Item("a", "flood")], {str(n): {"a": 1} for n in range(20)}
    >>> examples = Examples.of([Query(str(n), "water?") for n in range(20)], items, qrels)
    >>> [len(part) for part in hold_out(examples, Settings())]
    [18, 2]
    """
    count = min(settings.dev_queries, max(1, round(HELD_OUT * len(examples))))
    if count >= len(examples):
        raise CrosscutError(f"there are {len(examples)} training queries: too few to set one apart for evaluation")
    order = np.random.default_rng(settings.seed).permutation(len(examples))
    return examples.take(np.sort(order[count:]).tolist()), examples.take(np.sort(order[:count]).tolist())


def _relevant(judged: Mapping[str, int]) -> list[str]:
    return [id for id, relevance in judged.items() if relevance > 0]


def _check_labels(lost: Iterable[tuple[str, str]]) -> None:
    if missing := list(lost):
        query, item = missing[0]
        raise CrosscutError(
            f"{len(missing)} labels point to items that are not there, the first: {item!r} of query {query!r}"
        )


def _shared_world(mentions: Sequence[Mention], entities: Sequence[Item]) -> dict[str, Sequence[Item]]:
    worlds = {mention.world for mention in mentions}
    if len(worlds) > 1:
        named = ", ".join(sorted(worlds)[:3])
        raise CrosscutError(
            f"the mentions are of {len(worlds)} worlds ({named}, ...): give a folder with entities/WORLD.jsonl "
            "for each, and mentions/SPLIT.jsonl"
        )
    return {worlds.pop(): entities}


def _read_worlds(data: Path, split: str, window: int) -> Examples:
    path = find_file(data / "mentions", f"{split}.jsonl")
    if path is None:
        raise CrosscutError(f"{data / 'mentions'} has no {split}.jsonl: name one of its files as the split")
    mentions = read_blink(path)
    worlds: dict[str, list[Item]] = {}
    for world in sorted({mention.world for mention in mentions}):
        file = find_file(data / "entities", f"{world}.jsonl")
        if file is None:
            raise CrosscutError(
                f"{path} has mentions of world {world!r}, but {data / 'entities'} has no {world}.jsonl"
            )
        worlds[world] = read_items(file)
    return Examples.of_mentions(mentions, worlds, window)


def _has_split(data: Path, name: str) -> bool:
    places = (("qrels", f"{name}.tsv"), ("mentions", f"{name}.json"), ("mentions", f"{name}.jsonl"))
    return any(find_file(data / folder, file) for folder, file in places)
