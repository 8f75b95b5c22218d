"""Files as records: one JSON object, table row or text line each, with its place for error messages."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from crosscut.data.lines import error_at, read_lines, source_name
from crosscut.errors import CrosscutError

Made = TypeVar("Made")

_LARGEST_CSV_FIELD = 2**31 - 1  # the csv module's own limit, 131072, is shorter than some documents


@dataclass(frozen=True)
class Record:
    """Named fields, and where they were read.

    >>> record = Record("faq.jsonl", 3, {"id": 17, "text": "covers floods"})
    >>> record.id("_id", "id"), record.string("contents", "text"), record.string("title", default="")
    ('17', 'covers floods', '')
    """

    source: str
    line: int
    fields: dict[str, Any]

    def error(self, what: str) -> CrosscutError:
        return error_at(self.source, self.line, what)

    def id(self, *names: str) -> str | None:
        """The first of `names` that is there, or None; whole numbers become text."""
        name, value = self._first(names)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value:
            raise self.error(f'"{name}" must be a non-empty string or a whole number, not {value!r:.80}')
        return self._encodable(name, value)

    def string(self, *names: str, default: str | None = None) -> str:
        """The first of `names` that is there; an error, or the default if one is given, when none is."""
        name, value = self._first(names)
        if value is None:
            if default is None:
                raise self.error("no " + " or ".join(f'"{name}"' for name in names))
            return default
        if not isinstance(value, str):
            raise self.error(f'"{name}" must be a string, not {value!r:.80}')
        return self._encodable(name, value)

    def integer(self, name: str) -> int:
        value = self.fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(f'"{name}" must be a whole number, not {value!r:.80}')
        return value

    def _first(self, names: Sequence[str]) -> tuple[str, Any]:
        """JSON null counts as not there."""
        for name in names:
            if (value := self.fields.get(name)) is not None:
                return name, value
        return names[0], None

    def _encodable(self, name: str, value: str) -> str:
        # JSON escapes can spell half of a surrogate pair, at which tokenizers and writers fail much later.
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise self.error(f'"{name}" holds half of a surrogate pair; mend the text') from error
        return value


def json_records(source: str, lines: Iterable[tuple[int, str]]) -> Iterator[Record]:
    """One JSON object a line; blank lines are skipped.

    >>> [record.fields for record in json_records("a.jsonl", [(1, '{"id": 1}'), (2, "")])]
    [{'id': 1}]
    """
    for number, line in lines:
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            what = f"not valid JSON ({error}); each line must be one JSON object"
            raise error_at(source, number, what) from error
        if not isinstance(fields, dict):
            kind = type(fields).__name__
            raise error_at(source, number, f"each line must be one JSON object, but this is a {kind}")
        yield Record(source, number, fields)


def read_json_records(path: str | Path) -> Iterator[Record]:
    """`json_records` of a file, whatever it is called."""
    return json_records(source_name(path), read_lines(path))


def json_lines(noun: str, id_name: str, objects: Sequence[dict[str, str]]) -> list[str]:
    """What `json_records` reads back: a line for each object, after a check of the ids.

    >>> json_lines("items", "id", [{"id": "a1", "text": "hello"}])
    ['{"id": "a1", "text": "hello"}\\n']
    """
    ids = [fields[id_name] for fields in objects]
    if "" in ids:
        raise CrosscutError(f"cannot write {noun}: the id at position {ids.index('') + 1} is empty")
    refuse_duplicates(f"cannot write {noun}", ids, range(1, len(ids) + 1))
    return [json.dumps(fields, ensure_ascii=False) + "\n" for fields in objects]


def text_records(source: str, lines: Iterable[tuple[int, str]]) -> Iterator[Record]:
    """A record with the field "text" for each line that is not blank.

    >>> [(record.line, record.fields) for record in text_records("a.txt", [(1, ""), (2, "hello")])]
    [(2, {'text': 'hello'})]
    """
    return (Record(source, number, {"text": line}) for number, line in lines if line.strip())


def csv_rows(source: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Rows of comma-separated values, each with the line on which it starts.

    >>> list(csv_rows("a.csv", [(1, 'a,"two'), (2, 'lines"'), (3, "b,c")]))
    [(1, ['a', 'two\\nlines']), (3, ['b', 'c'])]
    """
    csv.field_size_limit(_LARGEST_CSV_FIELD)
    # Strict, for otherwise a quote that is never closed would swallow the rest of the file.
    reader = csv.reader((line + "\n" for _, line in lines), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise error_at(source, start, f"not valid CSV ({error}); check the quotes of this row") from error
        if row:
            yield start, row


def tsv_rows(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    r"""Rows of tab-separated values, which know no quoting: a quote is a character like any other.

    >>> list(tsv_rows([(1, 'a\t"b')]))
    [(1, ['a', '"b'])]
    """
    return ((number, line.split("\t")) for number, line in lines if line.strip())


def table_records(source: str, columns: list[str], rows: Iterable[tuple[int, list[str]]]) -> Iterator[Record]:
    """Rows under named columns.

    >>> [record.fields for record in table_records("a.csv", ["id", "text"], [(2, ["1", "hello"])])]
    [{'id': '1', 'text': 'hello'}]
    """
    for number, row in rows:
        if len(row) != len(columns):
            what = f"{len(row)} columns, where {len(columns)} are expected ({', '.join(columns)})"
            raise error_at(source, number, what)
        yield Record(source, number, dict(zip(columns, row, strict=True)))


def collect(
    path: str | Path,
    records: Iterable[Record],
    noun: str,
    id_names: Sequence[str],
    make: Callable[[Record, str], Made],
) -> list[Made]:
    """`make(record, id)` for every record; ids are unique, and line numbers if no record has one.

    >>> records = [Record("a.txt", 2, {"text": "hello"})]
    >>> collect("a.txt", records, "item", ["id"], lambda record, id: (id, record.string("text")))
    [('2', 'hello')]
    """
    source = source_name(path)
    made: list[Made] = []
    ids: list[str] = []
    lines: list[int] = []
    with_id: list[bool] = []
    for record in records:
        id = record.id(*id_names)
        with_id.append(id is not None)
        if with_id[-1] != with_id[0]:
            raise _mixed_ids(record, lines[0], with_id[0], id_names)
        ids.append(str(record.line) if id is None else id)
        lines.append(record.line)
        made.append(make(record, ids[-1]))
    if not made:
        raise CrosscutError(f"{source} is empty: expected at least one {noun}")
    refuse_duplicates(source, ids, lines)
    return made


def _mixed_ids(record: Record, first_line: int, first_has_id: bool, id_names: Sequence[str]) -> CrosscutError:
    here, there = ("no id", "has one") if first_has_id else ("an id", "has none")
    names = " or ".join(f'"{name}"' for name in id_names)
    return record.error(f"{here}, but line {first_line} {there}; give {names} on every line or on none")


def refuse_duplicates(source: str, keys: Sequence[Hashable], lines: Sequence[int], noun: str = "ids") -> None:
    """Raise an error that names up to five of the keys that are there more than once.

    >>> refuse_duplicates("a.jsonl", ["x", "y", "x"], [1, 2, 3])
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: a.jsonl: ids must be unique, but 'x' is on lines 1, 3
    """
    if len(set(keys)) == len(keys):
        return
    places: dict[Hashable, list[int]] = defaultdict(list)
    for key, line in zip(keys, lines, strict=True):
        places[key].append(line)
    repeated = [(key, found) for key, found in places.items() if len(found) > 1]
    named = [f"{key!r} is on lines {', '.join(map(str, found))}" for key, found in repeated[:5]]
    if len(repeated) > 5:
        named.append(f"and {len(repeated) - 5} more")
    raise CrosscutError(f"{source}: {noun} must be unique, but {'; '.join(named)}")
