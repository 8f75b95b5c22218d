"""Reading an index folder: the format, its version, and what is said about a folder that is not right."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_fakes import FakeEncoder, FakeScorer, make_items, make_queries

from crosscut.errors import CrosscutError
from crosscut.index.build import build
from crosscut.index.change import delete, repair
from crosscut.index.lines import item_lines, parse_items
from crosscut.index.store import Store
from crosscut.index.tiles import Grid
from crosscut.types import Item

V1 = Path(__file__).parent / "data" / "v1"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "some.index"
    build(
        make_items(5),
        scorer=FakeScorer(),
        encoder=FakeEncoder(),
        anchor_queries=make_queries(3),
        anchor_items=2,
        folder=folder,
    )
    return folder


def edit_manifest(folder, **changes):
    path = folder / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_version_1_is_read():
    parts = Store.open(V1).parts()
    expected = json.loads((V1.parent / "v1-expected.json").read_text())
    assert [[item.id, item.title, item.text] for item in parts.items] == expected["items"]
    assert [[query.id, query.text] for query in parts.anchor_queries] == expected["anchor_queries"]
    for name in ("vectors", "anchor_vectors", "anchor_scores", "item_anchors", "item_scores", "deleted"):
        assert getattr(parts, name).tolist() == expected[name], name


def test_version_1_can_be_changed(tmp_path):
    shutil.copytree(V1, tmp_path / "copy")
    store = Store.open(tmp_path / "copy")
    delete(store, ["b"])
    assert Store.open(tmp_path / "copy").parts().positions() == {"c": 2, "a": 3}


def test_one_file_is_memory_mapped(folder):
    parts = Store.open(folder).parts()
    assert isinstance(parts.anchor_scores, np.memmap)
    assert isinstance(parts.vectors, np.memmap)
    assert parts.anchor_scores.dtype == np.float16


def test_unknown_keys_survive(folder):
    edit_manifest(folder, note={"from": "the future"})
    delete(Store.open(folder), ["i0"])
    assert json.loads((folder / "index.json").read_text())["note"] == {"from": "the future"}


def test_no_folder(tmp_path):
    with pytest.raises(CrosscutError, match=r"there is no folder .*nowhere"):
        Store.open(tmp_path / "nowhere")


def test_no_manifest(tmp_path):
    with pytest.raises(CrosscutError, match="not an index"):
        Store.open(tmp_path)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "{}", '"text"', '{"format": "one"}', "\xff", "[" * 9999]
)
def test_damaged_manifest(folder, content):
    (folder / "index.json").write_text(content, encoding="latin-1")
    with pytest.raises(CrosscutError, match=r"index\.json is damaged"):
        Store.open(folder)


def test_every_key_that_is_missing_or_odd_is_noticed(folder):
    whole = json.loads((folder / "index.json").read_text())
    for key in whole.keys() - {"dtype", "counts"}:
        rest = {name: value for name, value in whole.items() if name != key}
        (folder / "index.json").write_text(json.dumps(rest))
        with pytest.raises(CrosscutError, match="damaged"):
            Store.open(folder)
    for changes in (
        {"deleted": [99]},
        {"segments": [3]},
        {"tile": 7},
        {"state": "building"},
        {"anchors": None},
    ):
        (folder / "index.json").write_text(json.dumps(whole | changes))
        with pytest.raises(CrosscutError, match="damaged"):
            Store.open(folder)


def test_newer_format(folder):
    edit_manifest(folder, format=4)
    with pytest.raises(CrosscutError, match=r"newer crosscut .*upgrade"):
        Store.open(folder)


def test_unfinished(tmp_path):
    scorer = FakeScorer(fail_at=1)
    scorer.error = CrosscutError("out of memory")
    with pytest.raises(CrosscutError):
        build(make_items(3), scorer=scorer, anchor_queries=make_queries(1), folder=tmp_path / "x")
    with pytest.raises(CrosscutError, match="run the same build again"):
        Store.open(tmp_path / "x")


ARRAYS = ["scores/q000000-i000000", "scores/items-i000000", "vectors/items-000000", "vectors/anchors-000000"]


@pytest.mark.parametrize("name", [f"{name}.npy" for name in ARRAYS])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "longer", "not npy", "wrong shape"])
def test_damaged_array_is_named_and_can_be_repaired(folder, name, damage):
    # A copy: the file is about to be cut short under its memory map.
    before = Store.open(folder).parts().anchor_scores.copy()
    path = folder / name
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "wrong shape":
        np.save(path, np.zeros((1, 1), np.float16))
    else:
        damaged = {
            "empty": b"",
            "truncated": whole[:-1],
            "longer": whole + b"x",
            "not npy": b"PK\3\4" + whole,
        }
        path.write_bytes(damaged[damage])
    with pytest.raises(CrosscutError, match=rf"{name} is (damaged|missing).*repair"):
        Store.open(folder).parts()
    store = Store.open(folder)
    repair(store, scorer=FakeScorer(), encoder=FakeEncoder())
    assert path.read_bytes() == whole
    np.testing.assert_array_equal(store.parts().anchor_scores, before)


@pytest.mark.parametrize("name", ["items/000000.jsonl", "anchors/000000.jsonl", "item_anchors.json"])
def test_damaged_text_is_named_and_the_same_build_heals_it(folder, name):
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:-3] + b"?" + whole[-2:])
    with pytest.raises(CrosscutError, match=rf"{name} is damaged"):
        Store.open(folder).parts()
    scorer = FakeScorer()
    build(
        make_items(5),
        scorer=scorer,
        encoder=FakeEncoder(),
        anchor_queries=make_queries(3),
        anchor_items=2,
        folder=folder,
    )
    assert (folder / name).read_bytes() == whole
    assert scorer.calls == 0


@given(st.lists(st.builds(Item, *[st.text(st.characters(exclude_categories=["Cs"]))] * 3), max_size=5))
def test_any_text_round_trips(items):
    assert parse_items(item_lines(items)) == items


@given(rows=st.integers(1, 20), columns=st.integers(1, 20), tile=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_tiles_cover_every_cell_once(rows, columns, tile):
    seen = np.zeros((rows, columns), int)
    grid = Grid("scores/x", rows, columns, tile)
    for part in grid.tiles():
        seen[part.rows, part.columns] += 1
    assert (seen == 1).all()
    assert len({part.name for part in grid.tiles()}) == len(grid.tiles())
    assert sum(part.size for part in grid.tiles()) == grid.size
