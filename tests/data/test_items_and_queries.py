"""Items and queries from files, folders and stdin, and what is said when they are broken."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.data import read_items, read_queries
from crosscut.errors import CrosscutError
from crosscut.types import Item, Query


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        raw = content.encode() if isinstance(content, str) else content
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return path

    return write


JSONL = '{"_id": "a1", "title": "T", "text": "one", "metadata": {}}\n\n{"_id": "a2", "text": "two"}\n'
TWO_ITEMS = [Item("a1", "one", "T"), Item("a2", "two")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", JSONL),
        ("a.json", JSONL),
        ("a.JSONL", JSONL),
        ("a.jsonl.gz", JSONL),
        ("a.jsonl", JSONL.replace("\n", "\r\n")),
        ("a.jsonl", "\ufeff" + JSONL),
        ("a.jsonl", JSONL.rstrip()),
        ("a.jsonl", JSONL.replace("_id", "id").replace('"text"', '"contents"')),
        ("a.jsonl", JSONL.replace("_id", "document_id").replace('"a2"', '"a2", "title": null')),
        ("a.csv", "id,title,text\na1,T,one\na2,,two\n"),
        ("a.csv", "\ufeffID, Title ,Text,other\r\na1,T,one,x\r\n\r\na2,,two,\r\n"),
        ("a.csv.gz", "_id,title,contents\na1,T,one\na2,,two"),
        ("a.tsv", "text\tid\ttitle\none\ta1\tT\ntwo\ta2\t\n"),
        ("corpus.jsonl", JSONL),
    ],
)
def test_every_kind_of_file(write, name: str, content: str) -> None:
    assert read_items(write(name, content)) == TWO_ITEMS


def test_text_file_numbers_its_lines(write) -> None:
    assert read_items(write("a.txt", "one\n\n \ntwo\r\n")) == [Item("1", "one"), Item("4", "two")]


def test_line_numbers_stand_in_when_no_line_has_an_id(write) -> None:
    assert read_items(write("a.jsonl", '{"text": "one"}\n\n{"text": "two"}')) == [
        Item("1", "one"),
        Item("3", "two"),
    ]
    assert read_items(write("a.csv", "text\none\n")) == [Item("2", "one")]


def test_whole_number_ids_become_text(write) -> None:
    assert read_items(write("a.jsonl", '{"_id": 7, "text": ""}')) == [Item("7", "")]


def test_only_newlines_end_lines(write) -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\rh"
    raw = json.dumps({"id": "1\u2028", "text": text}, ensure_ascii=False)
    assert read_items(write("a.jsonl", raw)) == [Item("1\u2028", text)]
    assert read_items(write("a.txt", text + "\n")) == [Item("1", text)]
    assert read_items(write("a.tsv", f"x\t{text}\n")) == [Item("x", text)]


def test_csv_quotes_span_lines_and_long_fields(write) -> None:
    long = "word " * 40_000
    path = write("a.csv", f'id,text\nx,"two\nlines, and ""quotes"""\ny,{long}\n')
    assert read_items(path) == [Item("x", 'two\nlines, and "quotes"'), Item("y", long)]


def test_tsv_knows_no_quotes(write) -> None:
    assert read_queries(write("a.tsv", 'q1\t"open\nq2\ttwo\n')) == [Query("q1", '"open'), Query("q2", "two")]


def test_queries(write) -> None:
    expected = [Query("q1", "floods?")]
    assert read_queries(write("q.tsv", "q1\tfloods?\n")) == expected
    assert read_queries(write("q.tsv", "query_id\tquery\nq1\tfloods?\n")) == expected
    assert read_queries(write("q.jsonl.gz", '{"_id": "q1", "text": "floods?"}')) == expected
    assert read_queries(write("q.csv", "id,text\nq1,floods?")) == expected
    assert read_queries(write("q.txt", "floods?")) == [Query("1", "floods?")]


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_beir_folder(write, name: str) -> None:
    folder = write(name, JSONL).parent
    write(name.replace("corpus", "queries"), '{"_id": "q1", "text": "floods?"}')
    assert read_items(folder) == TWO_ITEMS
    assert read_queries(str(folder)) == [Query("q1", "floods?")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (JSONL.encode(), TWO_ITEMS),
        (b"\n  " + JSONL.encode(), TWO_ITEMS),
        (gzip.compress(JSONL.encode()), TWO_ITEMS),
        (b"one\n\n{two}\n", [Item("1", "one"), Item("3", "{two}")]),
    ],
)
def test_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes, expected: list[Item]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
    assert read_items("-") == expected


def test_stdin_errors_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b'{"id": "a"}'))))
    with pytest.raises(CrosscutError, match='<stdin>:1: no "text" or "contents"'):
        read_items("-")


BAD_FILES = [
    ("a.jsonl", '{"id": "a", "text": "x"}\n{"id": ', "a.jsonl:2: not valid JSON"),
    ("a.jsonl", "[1]", "a.jsonl:1: each line must be one JSON object, but this is a list"),
    ("a.jsonl", "[" * 100_000, "a.jsonl:1: not valid JSON"),
    ("a.jsonl", '{"id": "a"}', 'a.jsonl:1: no "text" or "contents"'),
    ("a.jsonl", '{"id": "a", "text": 3}', 'a.jsonl:1: "text" must be a string, not 3'),
    ("a.jsonl", '{"id": "a", "text": "x", "title": []}', 'a.jsonl:1: "title" must be a string'),
    ("a.jsonl", '{"id": true, "text": "x"}', 'a.jsonl:1: "id" must be'),
    ("a.jsonl", '{"id": 1.5, "text": "x"}', 'a.jsonl:1: "id" must be'),
    ("a.jsonl", '{"_id": "", "text": "x"}', 'a.jsonl:1: "_id" must be a non-empty'),
    ("a.jsonl", '{"id": "a", "text": "\\ud800"}', 'a.jsonl:1: "text" holds half of a surrogate pair'),
    ("a.jsonl", '{"id": "a", "text": "x"}\n{"text": "x"}', "a.jsonl:2: no id, but line 1 has one"),
    ("a.jsonl", '{"text": "x"}\n{"id": "a", "text": "x"}', "a.jsonl:2: an id, but line 1 has none"),
    ("a.jsonl", b'{"id": "a", "text": "x"}\n\xff', "a.jsonl:2: byte 1 of the line is not valid UTF-8"),
    ("a.jsonl", "", "a.jsonl is empty: expected at least one item"),
    ("a.jsonl", "\n\n", "a.jsonl is empty"),
    ("a.txt", " \n", "a.txt is empty"),
    ("a.csv", "", "a.csv is empty"),
    ("a.csv", "id,text\n", "a.csv is empty"),
    (
        "a.csv",
        "id,body\na,b\n",
        "a.csv:1: the header has no column text or contents; its columns are: id, body",
    ),
    ("a.csv", "a,b\n", "a.csv:1: the header has no column text"),
    ("a.csv", "id,text,Text\na,b,c\n", "a.csv:1: the header names a column twice: text"),
    ("a.csv", "id,text\n\na,b,c\n", "a.csv:3: 3 columns, where 2 are expected"),
    ("a.csv", 'id,text\na,b\nc,"d\ne,f\n', "a.csv:3: not valid CSV"),
    ("a.csv", "id,text\n,b\n", 'a.csv:2: "id" must be a non-empty'),
    ("a.tsv", "id\tbody\na\tb\n", "a.tsv:1: the header has no column text"),
    ("a.tsv", "q1\tone\nq2\n", "a.tsv:2: 1 columns, where 2 are expected"),
    ("a.docx", "x", "a.docx: unknown kind of file; known are .jsonl, .json, .csv, .tsv and .txt"),
    ("a.gz", "x", "unknown kind of file"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES)
def test_broken_files(write, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(CrosscutError) as caught:
        read_items(write(name, content))
    assert message in str(caught.value)


def test_duplicate_ids_name_five_with_their_lines(write) -> None:
    lines = [json.dumps({"id": f"a{n}", "text": ""}) for n in [*range(7), *range(7), 0]]
    with pytest.raises(CrosscutError) as caught:
        read_items(write("a.jsonl", "\n".join(lines)))
    message = str(caught.value)
    assert "'a0' is on lines 1, 8, 15; 'a1' is on lines 2, 9" in message
    assert message.endswith("'a4' is on lines 5, 12; and 2 more")


@pytest.mark.parametrize("keep", [5, 60, -1])
def test_truncated_gzip(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "a.jsonl.gz"
    text = "".join(f'{{"id": {n}, "text": "text {n * n}"}}\n' for n in range(1000))
    path.write_bytes(gzip.compress(text.encode())[:keep])
    with pytest.raises(CrosscutError, match="damaged or cut off"):
        read_items(path)


def test_damaged_gzip(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"one\n" * 1000))
    packed[-8] ^= 1  # the checksum
    (tmp_path / "a.txt.gz").write_bytes(packed)
    with pytest.raises(CrosscutError, match="damaged"):
        read_items(tmp_path / "a.txt.gz")


def test_what_is_not_there(tmp_path: Path, write) -> None:
    with pytest.raises(CrosscutError, match=r"there is no file .*a\.jsonl"):
        read_items(tmp_path / "a.jsonl")
    with pytest.raises(CrosscutError, match="there is no file or folder"):
        read_items(tmp_path / "nowhere")
    with pytest.raises(CrosscutError, match=r"neither corpus.jsonl"):
        read_items(tmp_path)
    with pytest.raises(CrosscutError, match=r"has no queries.jsonl \(nor queries.jsonl.gz\)"):
        read_queries(tmp_path)


def test_folder_with_both_plain_and_packed(tmp_path: Path, write) -> None:
    write("corpus.jsonl", JSONL)
    write("corpus.jsonl.gz", JSONL)
    with pytest.raises(CrosscutError, match=r"both corpus.jsonl and corpus.jsonl.gz"):
        read_items(tmp_path)


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.lists(st.tuples(ANY_TEXT.filter(bool), ANY_TEXT, ANY_TEXT), min_size=1, unique_by=lambda row: row[0]))
@settings(deadline=None)  # a slow disk is no failure
def test_jsonl_gives_back_any_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    lines = [json.dumps({"id": i, "text": x, "title": t}, ensure_ascii=False) for i, x, t in rows]
    path.write_bytes("\r\n".join(lines).encode())
    assert read_items(path) == [Item(i, x, t) for i, x, t in rows]
