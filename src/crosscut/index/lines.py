"""Items and queries as lines of JSON."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence

from crosscut.errors import CrosscutError
from crosscut.index.manifest import Block
from crosscut.types import Item, Query


def item_lines(items: Sequence[Item]) -> bytes:
    """
    >>> parse_items(item_lines([Item("a", "text")]))
    [Item(id='a', text='text', title='')]
    """
    for item in items:
        _check_strings("item", item.id, (item.id, item.title, item.text))
    return _lines("item", [{"id": item.id, "title": item.title, "text": item.text} for item in items])


def query_lines(queries: Sequence[Query]) -> bytes:
    """
    >>> parse_queries(query_lines([Query("q", "what?")]))
    [Query(id='q', text='what?')]
    """
    for query in queries:
        _check_strings("anchor query", query.id, (query.id, query.text))
        if not query.text.strip():
            raise CrosscutError(f"anchor query {query.id!r} has an empty text: leave it out")
    return _lines("anchor query", [{"id": query.id, "text": query.text} for query in queries])


# Only "\n" ends a line: str.splitlines would also split at the line separators of Unicode inside a text.
def parse_items(lines: bytes) -> list[Item]:
    return [Item(**json.loads(line)) for line in lines.split(b"\n") if line]


def parse_queries(lines: bytes) -> list[Query]:
    return [Query(**json.loads(line)) for line in lines.split(b"\n") if line]


def block_of(count: int, content: bytes) -> Block:
    """
    >>> block_of(1, b"x").sha256[:8]
    '2d711642'
    """
    return Block(count, hashlib.sha256(content).hexdigest())


def check_unique(kind: str, ids: Iterable[str]) -> None:
    """
    >>> check_unique("item", ["a", "b", "a"])
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: more than one item has the id 'a': ids must be unique
    """
    repeated = [id for id, count in Counter(ids).items() if count > 1]
    if repeated:
        raise CrosscutError(f"more than one {kind} has the id {some(repeated)}: ids must be unique")


def some(ids: Sequence[str]) -> str:
    """The first few ids, for a message.

    >>> some(["a", "b"]), some(list("abcdefg"))
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 2 more")
    """
    more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
    return ", ".join(map(repr, ids[:5])) + more


def _check_strings(kind: str, id: object, values: tuple[object, ...]) -> None:
    if not all(isinstance(value, str) for value in values):
        raise CrosscutError(f"{kind} {id!r}: id, title and text must be strings")


def _lines(kind: str, records: list[dict[str, str]]) -> bytes:
    lines = []
    for record in records:
        try:
            lines.append(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        except UnicodeEncodeError:
            raise CrosscutError(
                f"{kind} {record['id']!r} holds half of a surrogate pair, which is not valid text: "
                "clean it with text.encode('utf-8', 'replace').decode()"
            ) from None
    return b"".join(lines)
