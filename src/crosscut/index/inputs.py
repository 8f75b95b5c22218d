"""Items and queries as callers have them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from crosscut.errors import CrosscutError
from crosscut.index.lines import some
from crosscut.types import Item, Query

Record = TypeVar("Record", Item, Query)


def as_items(
    items: Iterable[Item | str | Mapping[str, Any]], start: int = 0, taken: Container[str] = ()
) -> list[Item]:
    """Items of what a caller has. What has no id takes its position, counted from `start` past ids `taken`.

    >>> as_items(["one", {"id": 7, "text": "two", "title": "T"}])
    [Item(id='0', text='one', title=''), Item(id='7', text='two', title='T')]
    """
    made = []
    for position, item in zip(_free(start, taken), listed("items", items), strict=False):
        if isinstance(item, str):
            item = Item(str(position), item)
        elif isinstance(item, Mapping):
            id = item.get("id", item.get("_id", position))
            if not isinstance(item.get("text"), str):
                raise CrosscutError(f"item {id!r} has no text: a mapping needs the keys id and text")
            item = Item(str(id), item["text"], str(item.get("title") or ""))
        elif not isinstance(item, Item):
            raise CrosscutError(f"item {position} is a {type(item).__name__}: give texts, mappings or Items")
        made.append(item)
    return made


def as_queries(queries: Iterable[Query | str], start: int = 0, taken: Container[str] = ()) -> list[Query]:
    """Likewise.

    >>> as_queries(["what?", "why?"], start=1, taken={"1"})
    [Query(id='2', text='what?'), Query(id='3', text='why?')]
    """
    made = []
    for position, query in zip(_free(start, taken), listed("anchor queries", queries), strict=False):
        if isinstance(query, str):
            query = Query(str(position), query)
        elif not isinstance(query, Query):
            raise CrosscutError(f"anchor query {position} is a {type(query).__name__}: give texts or `Query`s")
        made.append(query)
    return made


def only_new(kind: str, given: Sequence[Record], there: Sequence[Record]) -> list[Record]:
    """Those of the given items or queries that are not there yet; one there with another text is an error.

    >>> only_new("item", [Item("a", "one"), Item("b", "two")], [Item("a", "one")])
    [Item(id='b', text='two', title='')]
    """
    by_id = {record.id: record for record in there}
    changed = [record.id for record in given if by_id.get(record.id, record) != record]
    if changed:
        raise CrosscutError(
            f"the index holds another text for the {kind} {some(changed)}: only new ones can be added; "
            "delete the old ones first, or give the new ones other ids"
        )
    return [record for record in given if record.id not in by_id]


def listed(what: str, values: Any) -> list[Any]:
    """A list; one string would fall into letters, and a mapping would lose its values, without a word.

    >>> listed("items", "one")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: items must be a list, but there is one str: put it in a list
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise CrosscutError(f"{what} must be a list, but there is one {type(values).__name__}: put it in a list")
    return list(values)


def _free(start: int, taken: Container[str]) -> Iterator[int]:
    return (number for number in count(start) if str(number) not in taken)
