"""Mentions: BLINK's jsonl and ZESHEL's folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.data import (
    Mention,
    read_blink,
    read_items,
    read_zeshel_items,
    read_zeshel_mentions,
    read_zeshel_worlds,
    write_blink,
)
from crosscut.errors import CrosscutError
from crosscut.types import Item

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ID = TEXT.filter(bool)
MENTION = st.builds(Mention, ID, TEXT, TEXT, TEXT, ID, TEXT)
WORD = st.text("abc", min_size=1, max_size=3)


@given(mentions=st.lists(MENTION, min_size=1, max_size=5, unique_by=lambda mention: mention.id), gz=st.booleans())
@settings(deadline=None)  # a slow disk is no failure
def test_blink_round_trip(tmp_path_factory: pytest.TempPathFactory, mentions: list[Mention], gz: bool) -> None:
    path = tmp_path_factory.getbasetemp() / f"any_mentions.jsonl{'.gz' if gz else ''}"
    write_blink(path, mentions)
    assert read_blink(path) == mentions


BLINK = {"context_left": "the", "mention": "bank", "context_right": "of", "label_id": 7, "world": "w"}


@pytest.mark.parametrize(
    ("change", "id", "label_id"),
    [
        ({}, "1", "7"),
        ({"id": "m"}, "m", "7"),
        ({"mention_id": "m", "label": "a description", "label_title": "Bank"}, "m", "7"),
        ({"label_id": None, "label": "D7"}, "1", "D7"),
    ],
)
def test_blink_alternatives(tmp_path: Path, change: dict[str, Any], id: str, label_id: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({**BLINK, **change}))
    assert read_blink(tmp_path / "a.jsonl") == [Mention(id, "the", "bank", "of", label_id, "w")]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "is empty: expected at least one mention"),
        ([{**BLINK, "mention": None}], ':1: no "mention"'),
        ([{**BLINK, "label_id": None}], ':1: no "label_id" or "label"'),
        ([{**BLINK, "context_left": ["the"]}], ':1: "context_left" must be a string'),
        ([{**BLINK, "id": "m"}, {**BLINK, "id": "m"}], "'m' is on lines 1, 2"),
    ],
)
def test_broken_blink(tmp_path: Path, lines: list[dict[str, Any]], message: str) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(CrosscutError) as caught:
        read_blink(tmp_path / "a.jsonl")
    assert message in str(caught.value)


def test_blink_writer_refuses_repeated_ids(tmp_path: Path) -> None:
    with pytest.raises(CrosscutError, match="ids must be unique"):
        write_blink(tmp_path / "a.jsonl", [Mention("m", "", "", "", "7")] * 2)
    assert list(tmp_path.iterdir()) == []


@given(left=st.lists(WORD, max_size=6), right=st.lists(WORD, max_size=6), window=st.integers(0, 8))
def test_window_counts_words_on_each_side(left: list[str], right: list[str], window: int) -> None:
    words = Mention("m", "  ".join(left), "X Y", " ".join(right), "7").text(window, "<", ">").split()
    start, end = words.index("<"), words.index(">")
    assert words[start : end + 1] == ["<", "X", "Y", ">"]
    assert words[:start] == (left[-window:] if window else [])
    assert words[end + 1 :] == right[:window]


def test_window_is_not_negative() -> None:
    with pytest.raises(CrosscutError, match="window must be 0 or more"):
        Mention("m", "", "", "", "7").text(-1)


DOCUMENTS = {
    "lego": [
        {"document_id": "L1", "title": "Brick", "text": "a  red brick\u2028and a stud"},
        {"document_id": "L2", "title": "Stud", "text": "on top"},
    ],
    "muppets": [{"document_id": "M1", "title": "Frog", "text": "Kermit sings"}],
}
MENTIONS = [
    {
        "mention_id": "A",
        "context_document_id": "L1",
        "label_document_id": "L2",
        "corpus": "lego",
        "text": "red brick",
        "start_index": 1,
        "end_index": 2,
        "category": "LOW_OVERLAP",
    },
    {
        "mention_id": "B",
        "context_document_id": "M1",
        "label_document_id": "M1",
        "corpus": "muppets",
        "text": "Kermit",
        "start_index": 0,
        "end_index": 0,
        "category": "LOW_OVERLAP",
    },
]


def write_zeshel(folder: Path, mentions: list[dict[str, Any]] = MENTIONS) -> Path:
    for kind, files in (("documents", DOCUMENTS), ("mentions", {"val": mentions})):
        (folder / kind).mkdir()
        for name, records in files.items():
            lines = (json.dumps(record, ensure_ascii=False) for record in records)
            (folder / kind / f"{name}.json").write_bytes("\n".join(lines).encode())
    return folder


def test_zeshel(tmp_path: Path) -> None:
    folder = write_zeshel(tmp_path)
    lego = Mention("A", "a", "red brick", "and a stud", "L2", "lego")
    muppet = Mention("B", "", "Kermit", "sings", "M1", "muppets")
    assert read_zeshel_worlds(folder) == ["lego", "muppets"]
    assert read_zeshel_items(folder, "muppets") == [Item("M1", "Kermit sings", "Frog")]
    assert read_zeshel_mentions(folder, "val") == [lego, muppet]
    assert read_zeshel_mentions(folder, "val", "muppets") == [muppet]
    assert [item.id for item in read_items(folder)] == ["L1", "L2", "M1"]
    assert read_items(folder / "documents" / "muppets.json") == read_zeshel_items(folder, "muppets")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_index": 0}, "val.json:2: the mention is 'red brick', but words 0 to 2 of document 'L1' are"),
        ({"text": "red  brick", "start_index": -5, "end_index": -4}, "val.json:2: the mention"),
        ({"text": "stud", "start_index": 5, "end_index": 9}, "val.json:2: the mention is 'stud'"),
        ({"text": "", "start_index": 2, "end_index": 1}, "val.json:2: the mention"),
        ({"start_index": "1"}, 'val.json:2: "start_index" must be a whole number'),
        ({"end_index": None}, 'val.json:2: "end_index" must be a whole number'),
        (
            {"context_document_id": "L9"},
            "val.json:2: document 'L9' is not among the documents of world 'lego'",
        ),
        ({"label_document_id": "M1"}, "val.json:2: document 'M1' is not among the documents of world 'lego'"),
        ({"corpus": "mars"}, "has no world 'mars'; it has: lego, muppets"),
        ({"mention_id": "B"}, "'B' is on lines 1, 2"),
    ],
)
def test_broken_zeshel_mentions(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = write_zeshel(tmp_path, [MENTIONS[1], {**MENTIONS[0], **change}])
    with pytest.raises(CrosscutError) as caught:
        read_zeshel_mentions(folder, "val")
    assert message in str(caught.value)


def test_zeshel_parts_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(CrosscutError, match="is not a ZESHEL folder: it has no folder documents"):
        read_zeshel_worlds(tmp_path)
    folder = write_zeshel(tmp_path)
    with pytest.raises(CrosscutError, match="has no world 'mars'; it has: lego, muppets"):
        read_zeshel_items(folder, "mars")
    with pytest.raises(CrosscutError, match="has no split 'test'; it has: val"):
        read_zeshel_mentions(folder, "test")
    with pytest.raises(CrosscutError, match="has no mention of world 'mars'"):
        read_zeshel_mentions(folder, "val", "mars")


def test_ids_are_unique_across_worlds(tmp_path: Path) -> None:
    folder = write_zeshel(tmp_path)
    (folder / "documents" / "mars.json").write_text('{"document_id": "M1", "title": "", "text": "red"}')
    with pytest.raises(CrosscutError, match="'M1' is in mars, muppets; read the worlds one by one"):
        read_items(folder)


def test_documents_folder_without_worlds(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    with pytest.raises(CrosscutError, match="is empty"):
        read_items(tmp_path)
