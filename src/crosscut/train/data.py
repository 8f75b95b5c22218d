"""What models are trained on: queries, items, and which items answer a query."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from crosscut.data import Mention
from crosscut.data.mentions import ITEM_MARKER, MENTION_MARKERS, WINDOW, as_entity
from crosscut.errors import CrosscutError
from crosscut.types import Item, Query


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
        cls,
        queries: Sequence[Query],
        items: Sequence[Item],
        qrels: Mapping[str, Mapping[str, int]],
        labelled: bool = True,
    ) -> Examples:
        """Plain queries and items; an item with a relevance above 0 answers the query.

        If `labelled`, queries without such an item are left out.

        >>> Examples.of([Query("q", "water?")], [Item("a", "flood")], {"q": {"b": 1}})
        Traceback (most recent call last):
        crosscut.errors.CrosscutError: 1 labels point to items that are not there, the first: 'b' of query 'q'
        """
        places = {item.id: place for place, item in enumerate(items)}
        wanted = [(query, _relevant(qrels.get(query.id, {}))) for query in queries]
        _check_labels((query.id, id) for query, ids in wanted for id in ids if id not in places)
        kept = [(query, tuple(places[id] for id in ids)) for query, ids in wanted if ids or not labelled]
        if not kept:
            what = (
                "no query has an item that answers it (a relevance above 0)" if labelled else "there is no query"
            )
            raise CrosscutError(f"{what}: nothing to learn from")
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
        cls, mentions: Sequence[Mention], worlds: Mapping[str, Sequence[Item]], window: int = WINDOW
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


def _relevant(judged: Mapping[str, int]) -> list[str]:
    return [id for id, relevance in judged.items() if relevance > 0]


def _check_labels(lost: Iterable[tuple[str, str]]) -> None:
    if missing := list(lost):
        query, item = missing[0]
        raise CrosscutError(
            f"{len(missing)} labels point to items that are not there, the first: {item!r} of query {query!r}"
        )
