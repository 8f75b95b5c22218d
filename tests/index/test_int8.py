"""Scores kept as int8: how far off they may be, what a folder of them is, and that changing it goes on."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from index_fakes import FakeEncoder, FakeScorer, expected_scores, make_items, make_queries, tree

from crosscut import Index
from crosscut.errors import CrosscutError
from crosscut.index.build import build
from crosscut.index.change import add_anchor_queries, add_items, repair
from crosscut.index.int8 import quantise, restore
from crosscut.index.store import Store

SCORES = "scores/q000000-i000000.npy"
OPTIONS = {"encoder": FakeEncoder(), "anchor_queries": make_queries(3), "anchor_items": 2, "tile": (2, 2)}


def make(folder, dtype="int8", scorer=None):
    return build(make_items(5), scorer=scorer or FakeScorer(), folder=folder, dtype=dtype, **OPTIONS)


def rounding(scores):
    """What float32 itself may lose: a score is stored as two of them."""
    return 4 * np.finfo(np.float32).eps * np.abs(scores.astype(np.float64)).max(axis=1, keepdims=True) + 1e-43


huge = 2.0**127
floats = st.floats(-huge, huge, width=32) | st.floats(-12, 12, width=32) | st.sampled_from([0.0, 65504.0, -1e5])


@given(arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=floats))
def test_no_score_is_off_by_more_than_half_a_step(scores):
    records = quantise(scores)
    half = records["step"].astype(np.float64)[:, None] / 2
    restored = restore(records).astype(np.float64)
    assert (np.abs(restored - scores) <= half * (1 + 1e-6) + rounding(scores)).all()
    spread = scores.max(axis=1).astype(np.float64) - scores.min(axis=1)
    np.testing.assert_allclose(records["step"], spread / 254, rtol=1e-6, atol=1e-44)


@given(arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=floats))
def test_order_is_kept_but_for_ties(scores):
    for before, after in zip(scores, restore(quantise(scores)), strict=True):
        assert (np.diff(after[np.argsort(before)]) >= 0).all()


@pytest.mark.parametrize("value", [0.0, -10.3, 65504.0, 1e6, -3e38])
def test_equal_scores_are_kept_exactly(value):
    scores = np.full((2, 3), value, np.float32)
    assert (restore(quantise(scores)) == scores).all()


def test_rows_do_not_share_their_scale():
    scores = np.array([[0, 1, 2], [0, 1e6, 2e6]], np.float32)
    np.testing.assert_allclose(restore(quantise(scores)), scores, rtol=1e-2)


def test_an_index_of_int8_is_near_to_that_of_float16(tmp_path):
    small, large = make(tmp_path / "x").parts(), make(tmp_path / "y", "float16").parts()
    for name in ("anchor_scores", "item_scores"):
        exact = getattr(large, name).astype(np.float32)
        step = np.ptp(exact, axis=1, keepdims=True) / 254
        off = np.abs(getattr(small, name) - exact)
        assert (off <= step / 2 + 1e-5).all() and off.any()
    assert (small.vectors == large.vectors).all() and small.vectors.dtype == np.float16


def test_the_file_is_a_byte_per_score_and_two_numbers_per_anchor_query(tmp_path):
    build(
        make_items(3000), scorer=FakeScorer(), anchor_queries=make_queries(2), folder=tmp_path / "x", dtype="int8"
    )
    records = np.load(tmp_path / "x" / SCORES, allow_pickle=False)
    assert records["codes"].shape == (2, 3000) and records.nbytes == 2 * (3000 + 8)
    scores = records["offset"][:, None] + records["step"][:, None] * records["codes"]
    np.testing.assert_allclose(scores, Store.open(tmp_path / "x").parts().anchor_scores, atol=1e-5)


def test_only_a_folder_with_int8_is_of_the_newer_format(tmp_path):
    formats = {}
    for dtype in ("float16", "int8"):
        make(tmp_path / dtype, dtype)
        keys = json.loads((tmp_path / dtype / "index.json").read_text())
        formats[keys["dtype"]] = keys["format"]
    assert formats == {"float16": 1, "int8": 2}


def test_scores_beyond_float16(tmp_path):
    parts = make(tmp_path / "x", scorer=FakeScorer(scale=1e6)).parts()
    exact = 1e6 * expected_scores([query.text for query in make_queries(3)], make_items(5))
    assert np.abs(exact).max() > 65504
    np.testing.assert_allclose(parts.anchor_scores, exact, atol=np.ptp(exact) / 254)


def test_what_is_added_is_stored_likewise(tmp_path):
    store = make(tmp_path / "x")
    models = {"scorer": FakeScorer(), "encoder": FakeEncoder()}
    before = store.parts().anchor_scores
    add_items(store, make_items(4, "n"), **models)
    add_anchor_queries(store, make_queries(2, "n"), **models)
    parts = Store.open(tmp_path / "x").parts()
    for path in (tmp_path / "x" / "scores").glob("*.npy"):
        assert np.load(path).dtype.names == ("offset", "step", "codes"), path.name
    np.testing.assert_array_equal(parts.anchor_scores[:3, :5], before)
    queries = [query.text for query in parts.anchor_queries]
    exact = expected_scores(queries, parts.items)
    np.testing.assert_allclose(parts.anchor_scores, exact, atol=np.ptp(exact) / 254 / 2 + 1e-5)
    assert parts.item_scores.shape == (2, 9)
    assert not parts.anchor_scores.flags.writeable


def test_an_index_in_memory_and_on_disk_find_the_same(tmp_path):
    def overlap(query, texts):
        return [len(set(query.split()) & set(text.split())) + len(text) / 100 for text in texts]

    texts = [f"number {n} of {n % 7} and {n % 5}" for n in range(50)]
    settings = {
        "scorer": overlap,
        "anchor_queries": [f"number {n}" for n in range(12)],
        "store": "int8",
        "encoder": False,
    }
    kept = Index.build(texts, path=tmp_path / "x", **settings)
    again = Index.load(tmp_path / "x", scorer=overlap)
    for method in ("crosscut", "adacur"):
        found = [
            [hit.id for hit in index.search("of 3 and 4", budget=20, method=method)]
            for index in (kept, again, Index.build(texts, **settings))
        ]
        assert found[0] == found[1] == found[2]


def test_an_interrupted_build_ends_as_one_that_was_not(tmp_path):
    scorer = FakeScorer(fail_at=4)
    scorer.error = CrosscutError("boom")
    with pytest.raises(CrosscutError, match="boom"):
        make(tmp_path / "x", scorer=scorer)
    rest = FakeScorer()
    make(tmp_path / "x", scorer=rest)
    make(tmp_path / "twin")
    assert tree(tmp_path / "x") == tree(tmp_path / "twin")
    assert scorer.calls + rest.calls == (3 + 2) * 5


@pytest.mark.parametrize("damage", ["truncated", "other records", "wrong shape", "records of records"])
def test_a_damaged_file_is_named_and_repaired(tmp_path, damage):
    store = make(tmp_path / "x")
    path = tmp_path / "x" / SCORES
    whole = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(whole[:-1])
    elif damage == "other records":
        np.save(path, np.zeros(3, [("offset", "<f4"), ("codes", "i1", (5,))]))
    elif damage == "wrong shape":
        np.save(path, quantise(np.zeros((3, 4))))
    else:
        np.save(path, np.zeros(3, [("offset", "<f4"), ("step", "<f4"), ("codes", "i1", (5, 1))]))
    with pytest.raises(CrosscutError, match=rf"{SCORES} is damaged.*repair"):
        Store.open(tmp_path / "x").parts()
    repair(store, scorer=FakeScorer(), encoder=FakeEncoder())
    assert path.read_bytes() == whole


def test_a_build_does_not_continue_as_another_kind(tmp_path):
    make(tmp_path / "x")
    before = tree(tmp_path / "x")
    with pytest.raises(CrosscutError, match=r"store \(int8 there, float16 here\)"):
        make(tmp_path / "x", "float16")
    assert tree(tmp_path / "x") == before
    with pytest.raises(CrosscutError, match="float16 or int8, not as 'int4'"):
        make(tmp_path / "y", "int4")
    assert not (tmp_path / "y").exists()


def test_an_unknown_kind_in_index_json_is_an_error(tmp_path):
    make(tmp_path / "x")
    shutil.copytree(tmp_path / "x", tmp_path / "y")
    keys = json.loads((tmp_path / "y" / "index.json").read_text())
    (tmp_path / "y" / "index.json").write_text(json.dumps(keys | {"dtype": "int4"}))
    with pytest.raises(CrosscutError, match=r"index\.json is damaged \(dtype 'int4' is unknown\)"):
        Store.open(tmp_path / "y")
