"""Vectors of compare models in an index: beside the others, tied to their model, made once, safe from kills."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from compare_fakes import OneRow, Words
from hypothesis import given
from hypothesis import strategies as st
from index_fakes import FakeEncoder, FakeScorer, make_items, make_queries, tree
from test_resume import _run_and_die, _without_temporary

from crosscut.compare import ItemVectors
from crosscut.errors import CrosscutError
from crosscut.index import compared, steps
from crosscut.index import store as store_module
from crosscut.index.build import build
from crosscut.index.change import add_anchor_queries, add_items, delete, repair
from crosscut.index.compared import add_compare, remove_compare
from crosscut.index.files import DiskFiles
from crosscut.index.ragged import StoredVectors
from crosscut.index.store import Store

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals and fork")
V1 = Path(__file__).parent / "data" / "v1"
MODELS = {"scorer": FakeScorer(), "encoder": FakeEncoder()}
ITEMS = make_items(7)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(steps, "ENCODE_BATCH", 3)


def start(folder):
    return build(ITEMS, anchor_queries=make_queries(2), folder=folder, **MODELS)


def check_vectors(store, name, model):
    """What is stored is what the model makes of the items, as float16."""
    parts = store.parts()
    expected = type(model)(model.salt, model.width).encode_items([item.content for item in parts.items])
    stored = parts.compared[name].take(range(len(parts.items)))
    np.testing.assert_array_equal(stored.rows, expected.rows)
    np.testing.assert_array_equal(stored.starts, expected.starts)
    assert stored.rows.dtype == np.float16


@pytest.mark.parametrize("kind", [OneRow, Words])
@pytest.mark.parametrize("in_memory", [True, False])
def test_vectors_are_kept_as_the_model_makes_them(tmp_path, monkeypatch, kind, in_memory):
    store, model = start(None if in_memory else tmp_path / "x"), kind()
    assert add_compare(store, model) == model.kind
    assert model.items == len(ITEMS)
    check_vectors(store, model.kind, model)
    add_compare(store, model)
    assert model.items == len(ITEMS)
    if not in_memory:
        check_vectors(Store.open(tmp_path / "x"), model.kind, model)
        for mapped in (False, True):
            monkeypatch.setattr(store_module, "SMALL", 0 if mapped else 1 << 24)
            (segment,) = Store.open(tmp_path / "x").parts().compared[model.kind].segments
            assert isinstance(segment.rows, np.memmap) == mapped  # every one of those keeps a file open
            assert segment.starts.base is None
        assert sorted(path.name for path in (tmp_path / "x/compare" / model.kind).iterdir()) == [
            "rows-000000.npy",
            "starts-000000.npy",
        ]


@pytest.mark.parametrize("kind", [OneRow, Words])
def test_added_items_get_theirs_and_deleted_ones_keep_their_places(tmp_path, kind):
    store, model = start(tmp_path / "x"), kind()
    add_compare(store, model)
    add_items(store, make_items(4, "n"), comparers={model.kind: model}, **MODELS)
    assert model.items == len(ITEMS) + 4
    delete(store, ["i2", "n1"])
    add_items(store, make_items(1, "z"), comparers={model.kind: model}, **MODELS)
    add_anchor_queries(store, make_queries(1, "n"), **MODELS)
    check_vectors(Store.open(tmp_path / "x"), model.kind, model)
    assert model.items == len(ITEMS) + 5


def test_only_an_index_with_compare_models_is_of_the_newest_format(tmp_path):
    store = start(tmp_path / "x")
    before = (tmp_path / "x/index.json").read_bytes()
    assert json.loads(before)["format"] == 1 and b"compare" not in before
    add_compare(store, OneRow())
    keys = json.loads((tmp_path / "x/index.json").read_text())
    assert keys["format"] == 3
    assert keys["compare"]["one-row"] == {
        "model": {"name": "one-row", "digest": OneRow().digest()},
        "kind": "one-row",
        "width": 8,
        "signal": 16384,
        "by_name": True,
        "complete": True,
    }
    remove_compare(store, "one-row")
    assert (tmp_path / "x/index.json").read_bytes() == before
    assert not (tmp_path / "x/compare/one-row").exists()


def test_an_index_of_the_first_version_loads_and_takes_a_compare_model(tmp_path):
    shutil.copytree(V1, tmp_path / "x")
    store = Store.open(tmp_path / "x")
    assert store.parts().compared == {}
    add_compare(store, Words())
    again = Store.open(tmp_path / "x")
    check_vectors(again, "words", Words())
    expected = json.loads((V1.parent / "v1-expected.json").read_text())
    assert again.parts().anchor_scores.tolist() == expected["anchor_scores"]


@pytest.mark.parametrize(
    "changes",
    [
        {"compare": 3},
        {"compare": {"x": {}}},
        {"compare": {"../x": "whole"}},
        {"compare": {"x": "width"}},
    ],
)
def test_an_odd_manifest_is_damaged(tmp_path, changes):
    store = start(tmp_path / "x")
    add_compare(store, OneRow())
    path = tmp_path / "x/index.json"
    keys = json.loads(path.read_text())
    whole = keys["compare"]["one-row"]
    known = {"whole": whole, "width": whole | {"width": "wide"}}
    if isinstance(changes["compare"], dict):
        changes = {"compare": {name: known.get(str(one), one) for name, one in changes["compare"].items()}}
    path.write_text(json.dumps(keys | changes))
    with pytest.raises(CrosscutError, match=r"index\.json is damaged"):
        Store.open(tmp_path / "x")


def test_another_model_under_the_same_name_is_refused(tmp_path):
    store = start(tmp_path / "x")
    add_compare(store, OneRow())
    before = tree(tmp_path / "x")
    for other in (OneRow("other"), OneRow(width=6)):
        with pytest.raises(CrosscutError, match=r"made by the one-row model 'one-row' \(digest .*remove_compare"):
            add_compare(store, other)
        with pytest.raises(CrosscutError, match="use the same, add this one under another name"):
            add_items(store, make_items(1, "n"), comparers={"one-row": other}, **MODELS)
    assert tree(tmp_path / "x") == before
    wide = OneRow(width=6)
    assert add_compare(store, wide, name="wide") == "wide"
    assert add_compare(store, OneRow(width=6)) == "wide"  # known by its digest
    check_vectors(store, "wide", wide)
    check_vectors(store, "one-row", OneRow())


def test_a_model_that_is_not_given_stops_an_addition(tmp_path):
    store = start(tmp_path / "x")
    add_compare(store, OneRow())
    before = tree(tmp_path / "x")
    with pytest.raises(CrosscutError, match=r"vectors of the compare model 'one-row'.*give it too"):
        add_items(store, make_items(1, "n"), **MODELS)
    with pytest.raises(CrosscutError, match="no compare model 'cmc'; it has: one-row"):
        add_items(store, make_items(1, "n"), comparers={"cmc": OneRow()}, **MODELS)
    with pytest.raises(CrosscutError, match="no compare model 'cmc'; it has: one-row"):
        remove_compare(store, "cmc")
    assert tree(tmp_path / "x") == before


@pytest.mark.parametrize("name", ["", "CMC", "a/b", "..", "cmc 2", "-x", 3])
def test_odd_names(name):
    with pytest.raises(CrosscutError, match="named with a-z, 0-9 and hyphens"):
        add_compare(start(None), OneRow(), name=name)


@pytest.mark.parametrize("name", ["dense", "cross", "crosscut", "rrf", "lexical", "random", "encoder"])
def test_names_of_other_stages(name):
    with pytest.raises(CrosscutError, match="the name of another stage"):
        add_compare(start(None), OneRow(), name=name)


@pytest.mark.parametrize("signal", [-1, 1.5, True, "8"])
def test_odd_signals(signal):
    with pytest.raises(CrosscutError, match="signal must be a whole number of at least 0"):
        add_compare(start(None), OneRow(), signal=signal)


def test_which_model_becomes_a_signal():
    store = start(None)
    add_compare(store, Words())
    add_compare(store, OneRow())
    add_compare(store, OneRow("second"), name="second")
    add_compare(store, OneRow("third"), name="third", signal=5)
    signals = {name: one.signal for name, one in store.manifest.compare.items()}
    assert signals == {"words": 0, "one-row": compared.NEAREST, "second": 0, "third": 5}
    add_compare(store, OneRow(), signal=0)
    assert store.manifest.compare["one-row"].signal == 0
    on_cpu, other = OneRow(), start(None)
    on_cpu.device = "cpu"
    add_compare(other, on_cpu)
    assert other.manifest.compare["one-row"].signal == compared.NEAREST_ON_CPU


def test_stopped_in_the_middle_only_the_block_in_work_is_made_again(tmp_path):
    store, model = start(tmp_path / "x"), Words(fail_at=3)
    model.error = CrosscutError("boom")
    with pytest.raises(CrosscutError, match=r"boom \(2 of 3 tiles are done and kept"):
        add_compare(store, model)
    assert not Store.open(tmp_path / "x").parts().compared
    rest = Words()
    add_compare(Store.open(tmp_path / "x"), rest)
    assert (model.items, rest.items) == (6, 1)
    twin = start(tmp_path / "twin")
    add_compare(twin, Words())
    assert tree(tmp_path / "x") == tree(tmp_path / "twin")


def test_unfinished_vectors_survive_other_changes(tmp_path):
    store, model = start(tmp_path / "x"), Words(fail_at=3)
    model.error = CrosscutError("boom")
    with pytest.raises(CrosscutError, match="boom"):
        add_compare(store, model)
    add_items(store, make_items(4, "n"), **MODELS)
    delete(store, ["i0"])
    rest = Words()
    add_compare(store, rest)
    assert rest.items == 1 + 4
    check_vectors(store, "words", Words())


def test_what_a_removed_model_left_is_not_taken_for_anothers(tmp_path):
    store, model = start(tmp_path / "x"), OneRow(fail_at=2)
    model.error = CrosscutError("boom")
    with pytest.raises(CrosscutError, match="boom"):
        add_compare(store, model)
    saved = tmp_path / "saved"
    shutil.copytree(tmp_path / "x/compare", saved)
    remove_compare(store, "one-row")
    shutil.copytree(saved, tmp_path / "x/compare", dirs_exist_ok=True)  # as if the removal had been killed
    other = OneRow("other")
    add_compare(store, other)
    assert other.items == len(ITEMS)
    check_vectors(store, "one-row", other)


def test_overwriting_an_index_leaves_nothing_of_its_compare_models(tmp_path):
    store = start(tmp_path / "x")
    add_compare(store, OneRow())
    build(make_items(7, "other"), folder=tmp_path / "x", overwrite=True, anchor_queries=make_queries(2), **MODELS)
    assert not list((tmp_path / "x").glob("compare/*/*"))
    assert not Store.open(tmp_path / "x").manifest.compare


def grow(folder):
    add_items(Store.open(folder), make_items(4, "n"), comparers={"words": Words(), "one-row": OneRow()}, **MODELS)


def extend(folder):
    add_compare(Store.open(folder), Words(), name="more")


@posix
@pytest.mark.parametrize("change", [grow, extend])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("at", [3, 4, 5])  # a tile takes two writes, and a run must get on
def test_sigkill_at_every_write(tmp_path, change, moment, at):
    store = start(tmp_path / "x")
    add_compare(store, Words())
    add_compare(store, OneRow())
    shutil.copytree(tmp_path / "x", tmp_path / "twin")
    change(tmp_path / "twin")
    expected, survived, kills = tree(tmp_path / "twin"), False, 0
    while not survived:
        survived = _run_and_die(lambda: change(tmp_path / "x"), moment, at)
        kills += not survived
        assert kills < 200
        if moment == "after" and tree(tmp_path / "x")["index.json"] == expected["index.json"]:
            break
    assert kills > 1
    assert _without_temporary(tree(tmp_path / "x")) == expected


@pytest.mark.parametrize("name", ["rows-000000.npy", "starts-000000.npy", "rows-000001.npy"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "not npy", "wrong shape", "not in order"])
def test_damaged_vectors_are_named_and_made_anew(tmp_path, name, damage):
    store, comparers = start(tmp_path / "x"), {"words": Words()}
    add_compare(store, comparers["words"])
    add_items(store, make_items(4, "n"), comparers=comparers, **MODELS)
    path = tmp_path / "x/compare/words" / name
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "wrong shape":
        np.save(path, np.load(path)[:-1])
    elif damage == "not in order":
        array = np.load(path)
        np.save(path, array[::-1] if array.ndim == 1 else array[:, :3])
    else:
        path.write_bytes(whole[:-1] if damage == "truncated" else b"PK\3\4" + whole)
    with pytest.raises(CrosscutError, match=r"compare/words.* is (damaged|missing).*--add --compare words="):
        Store.open(tmp_path / "x").parts()
    repair(store, comparers=comparers, **MODELS)
    assert path.read_bytes() == whole


def test_a_damaged_tile_is_made_again(tmp_path):
    store, model = start(tmp_path / "x"), Words(fail_at=3)
    model.error = CrosscutError("boom")
    with pytest.raises(CrosscutError):
        add_compare(store, model)
    (tmp_path / "x/compare/words/starts-000000.tiles/r000000-c000000.npy").write_bytes(b"")
    rest = Words()
    add_compare(store, rest)
    assert rest.items == 3 + 1
    check_vectors(store, "words", Words())


@given(st.data())
def test_any_items_of_any_segments_come_in_the_order_asked(data):
    counts = data.draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=4))
    number, segments = 0, []
    for segment in counts:
        starts = np.cumsum([0, *segment])
        segments.append(ItemVectors(np.arange(number, number + starts[-1])[:, None], starts))
        number += starts[-1]
    stored, whole = StoredVectors(segments), ItemVectors.concatenate(segments)
    positions = data.draw(st.lists(st.integers(0, len(stored) - 1), max_size=8))
    taken, expected = stored.take(positions), whole.take(positions)
    np.testing.assert_array_equal(taken.rows, expected.rows)
    np.testing.assert_array_equal(taken.starts, expected.starts)


def test_files_know_the_pieces_of_compare_models(tmp_path):
    files = DiskFiles(tmp_path)
    files.write_array("compare/a/rows-000000.tiles/x.npy", (1, 1), np.dtype("<f2"), [np.ones((1, 1))])
    files.write_array("compare/a/starts-000000.npy", (2,), np.dtype("<i8"), [np.array([0, 1])])
    assert files.names() == ["compare/a/rows-000000.tiles", "compare/a/starts-000000.npy"]
