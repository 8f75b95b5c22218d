"""Items and queries from one file: jsonl, csv, tsv or txt, told apart by its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crosscut.data.lines import STDIN, error_at, read_lines, source_name
from crosscut.data.records import (
    Record,
    collect,
    csv_rows,
    json_records,
    read_json_records,
    table_records,
    text_records,
    tsv_rows,
)
from crosscut.errors import CrosscutError
from crosscut.types import Item, Query


class Names(NamedTuple):
    """What a record is called, and the names its id and its text may have, first match wins."""

    noun: str
    ids: tuple[str, ...]
    texts: tuple[str, ...]


_ITEM = Names("item", ("_id", "id", "document_id"), ("text", "contents"))
_QUERY = Names("query", ("_id", "id", "query_id"), ("text", "contents", "query"))


def read_item_file(path: str | Path) -> list[Item]:
    r"""Items of one file (see `read_items`).

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "faq.csv"
    >>> _ = path.write_text("id,title,text\na1,Policy,covers floods\n")
    >>> read_item_file(path)
    [Item(id='a1', text='covers floods', title='Policy')]
    """

    def make(record: Record, id: str) -> Item:
        return Item(id, record.string(*_ITEM.texts), record.string("title", default=""))

    return collect(path, _records(path, _ITEM), _ITEM.noun, _ITEM.ids, make)


def read_query_file(path: str | Path) -> list[Query]:
    r"""Queries of one file (see `read_queries`).

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "topics.tsv"
    >>> _ = path.write_text("q1\tdoes it cover floods?\n")
    >>> read_query_file(path)
    [Query(id='q1', text='does it cover floods?')]
    """

    def make(record: Record, id: str) -> Query:
        return Query(id, record.string(*_QUERY.texts))

    return collect(path, _records(path, _QUERY), _QUERY.noun, _QUERY.ids, make)


def _records(path: str | Path, names: Names) -> Iterator[Record]:
    if str(path) == STDIN:
        return _stdin_records()
    source = source_name(path)
    name = Path(path).name.lower().removesuffix(".gz")
    if name.endswith((".jsonl", ".json")):
        return read_json_records(path)
    if name.endswith(".csv"):
        return _with_header(source, csv_rows(source, read_lines(path)), names, headerless=False)
    if name.endswith(".tsv"):
        return _with_header(source, tsv_rows(read_lines(path)), names, headerless=True)
    if name.endswith(".txt"):
        return text_records(source, read_lines(path))
    if not Path(path).exists():
        raise CrosscutError(f"there is no file or folder {source}; check the path")
    raise CrosscutError(
        f"{source}: unknown kind of file; known are .jsonl, .json, .csv, .tsv and .txt, each also with .gz"
    )


def _stdin_records() -> Iterator[Record]:
    lines = list(read_lines(STDIN))
    first = next((line for _, line in lines if line.strip()), "")
    parse = json_records if first.lstrip().startswith("{") else text_records
    return parse(source_name(STDIN), lines)


def _with_header(
    source: str, rows: Iterator[tuple[int, list[str]]], names: Names, headerless: bool
) -> Iterator[Record]:
    """Records of a table; `headerless` also takes two columns, id and text, whose first row names neither."""
    number, header = next(rows, (1, []))
    if not header:
        return
    columns = [column.strip().lower() for column in header]
    if headerless and len(columns) == 2 and not set(columns) & {*names.ids, *names.texts, "title"}:
        yield from table_records(source, ["id", "text"], iter([(number, header)]))
        yield from table_records(source, ["id", "text"], rows)
        return
    if not set(columns) & set(names.texts):
        what = f"the header has no column {' or '.join(names.texts)}; its columns are: {', '.join(header)}"
        raise error_at(source, number, what)
    if twice := {column for column in columns if column and columns.count(column) > 1}:
        raise error_at(source, number, f"the header names a column twice: {', '.join(sorted(twice))}")
    yield from table_records(source, columns, rows)
