"""Items and queries from whatever the user has: a folder, a file or stdin."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from crosscut.data.lines import find_file, need_file
from crosscut.data.plain import read_item_file, read_query_file
from crosscut.data.zeshel import read_zeshel_items, read_zeshel_worlds
from crosscut.errors import CrosscutError
from crosscut.types import Item, Query


def read_items(path: str | Path) -> list[Item]:
    r"""Read items from a BEIR folder, a ZESHEL folder (all its worlds), a file, or stdin ("-").

    Files, each also with .gz: .jsonl (or .json) with one object a line, .csv and .tsv with a header; all
    hold an id ("_id", "id" or "document_id"), a text ("text" or "contents") and perhaps a "title". A file
    without any ids takes line numbers. A .tsv without a header has two columns, id and text. A .txt has one
    item a line. Stdin is jsonl if it starts with "{", else txt.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "faq.jsonl"
    >>> _ = path.write_text('{"id": "a1", "title": "Policy", "text": "covers floods"}\n')
    >>> read_items(path)
    [Item(id='a1', text='covers floods', title='Policy')]
    """
    folder = Path(path)
    if not folder.is_dir():
        return read_item_file(path)
    if corpus := find_file(folder, "corpus.jsonl"):
        return read_item_file(corpus)
    if (folder / "documents").is_dir():
        return _all_worlds(folder)
    raise CrosscutError(f"{folder} has neither corpus.jsonl (as BEIR has) nor a folder documents (as ZESHEL has)")


def _all_worlds(folder: Path) -> list[Item]:
    found: list[Item] = []
    worlds_of: dict[str, list[str]] = defaultdict(list)
    for world in read_zeshel_worlds(folder):
        for item in read_zeshel_items(folder, world):
            found.append(item)
            worlds_of[item.id].append(world)
    if not found:
        raise CrosscutError(f"{folder / 'documents'} is empty: expected at least one WORLD.json")
    if repeated := [f"{id!r} is in {', '.join(worlds)}" for id, worlds in worlds_of.items() if len(worlds) > 1]:
        named = "; ".join(repeated[:5])
        raise CrosscutError(f"{folder}: ids must be unique, but {named}; read the worlds one by one")
    return found


def read_queries(path: str | Path) -> list[Query]:
    r"""Read queries from a BEIR folder, a file, or stdin ("-"): as `read_items`, without titles.

    Ids may be called "query_id" and texts "query" as well.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "queries.txt"
    >>> _ = path.write_text("does it cover floods?\n\nand fire?\n")
    >>> [(query.id, query.text) for query in read_queries(path)]
    [('1', 'does it cover floods?'), ('3', 'and fire?')]
    """
    folder = Path(path)
    return read_query_file(need_file(folder, "queries.jsonl") if folder.is_dir() else path)
