"""BEIR folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.data import Beir, read_beir, write_beir
from crosscut.errors import CrosscutError
from crosscut.types import Item, Query

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ID = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n"), min_size=1, max_size=8)
ITEMS = st.lists(st.builds(Item, ID, TEXT, TEXT), min_size=1, max_size=5, unique_by=lambda item: item.id)
QUERIES = st.lists(st.builds(Query, ID, TEXT), min_size=1, max_size=5, unique_by=lambda query: query.id)

ONE_ITEM, ONE_QUERY = [Item("a1", "covers floods", "Policy")], [Query("q1", "floods?")]


@given(items=ITEMS, queries=QUERIES, compress=st.booleans(), data=st.data())
@settings(deadline=None)  # a slow disk is no failure
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    items: list[Item],
    queries: list[Query],
    compress: bool,
    data: st.DataObject,
) -> None:
    # The same folder each time: new data, plain or packed, must wholly replace the old.
    folder = tmp_path_factory.getbasetemp() / "beir"
    judged = data.draw(st.sets(st.sampled_from(queries), min_size=1))
    judgements = st.dictionaries(st.sampled_from([item.id for item in items]), st.integers(0, 3), min_size=1)
    qrels = {query.id: data.draw(judgements) for query in judged}
    write_beir(folder, items, queries, {"test": qrels}, compress)
    assert read_beir(folder) == Beir(items, [query for query in queries if query in judged], qrels)


def test_splits(tmp_path: Path) -> None:
    queries = [Query("q1", "floods?"), Query("q2", "fire?")]
    write_beir(tmp_path, ONE_ITEM, queries, {"train": {"q2": {"a1": 0}}})
    write_beir(tmp_path, ONE_ITEM, queries, {"dev": {"q1": {"a1": 1}}}, compress=True)
    assert read_beir(tmp_path, "train").queries == [Query("q2", "fire?")]
    assert read_beir(tmp_path, "dev").queries == [Query("q1", "floods?")]
    with pytest.raises(CrosscutError, match="has no split 'test'; its splits are: dev, train"):
        read_beir(tmp_path)


def test_standard_files(tmp_path: Path) -> None:
    write_beir(tmp_path, ONE_ITEM, ONE_QUERY, {"test": {"q1": {"a1": 1}}})
    assert (tmp_path / "corpus.jsonl").read_text() == '{"_id": "a1", "title": "Policy", "text": "covers floods"}\n'
    assert (tmp_path / "qrels" / "test.tsv").read_text() == "query-id\tcorpus-id\tscore\nq1\ta1\t1\n"


def test_same_data_same_packed_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_beir(tmp_path / name, ONE_ITEM, ONE_QUERY, {}, compress=True)
    one, two = ((tmp_path / name / "corpus.jsonl.gz").read_bytes() for name in ("one", "two"))
    assert one == two


def test_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CrosscutError, match="there is no folder"):
        read_beir(tmp_path / "nowhere")
    with pytest.raises(CrosscutError, match=r"has no corpus.jsonl"):
        read_beir(tmp_path)
    write_beir(tmp_path, ONE_ITEM, ONE_QUERY, {})
    with pytest.raises(CrosscutError, match="its splits are: none"):
        read_beir(tmp_path)
    write_beir(tmp_path, ONE_ITEM, ONE_QUERY, {"test": {"q9": {"a1": 1}}})
    with pytest.raises(CrosscutError, match=r"judges 1 queries that are not in .*queries.jsonl: 'q9'"):
        read_beir(tmp_path)


@pytest.mark.parametrize(
    ("items", "qrels", "message"),
    [
        (
            [Item("a", ""), Item("a", "")],
            {},
            "cannot write items: ids must be unique, but 'a' is on lines 1, 2",
        ),
        ([Item("a", ""), Item("", "")], {}, "cannot write items: the id at position 2 is empty"),
        ([Item("a", "\ud800")], {}, "half of a surrogate pair"),
        (ONE_ITEM, {"test": {"q\t1": {"a": 1}}}, "has a tab or a line end"),
        (ONE_ITEM, {"test": {"q": {"a": 0.5}}}, "must be a whole number, not 0.5"),
        (ONE_ITEM, {"../test": {}}, "a split is named by"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, items: list[Item], qrels: dict, message: str) -> None:
    with pytest.raises(CrosscutError, match=message):
        write_beir(tmp_path, items, ONE_QUERY, qrels)
    assert not [path for path in tmp_path.rglob("*.tmp")]


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(CrosscutError, match="cannot write"):
        write_beir(tmp_path / "a", ONE_ITEM, ONE_QUERY, {})
