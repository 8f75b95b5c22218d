"""Building and changing an index: the same result in memory, on disk, at once or in pieces."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_fakes import FakeEncoder, FakeScorer, expected_scores, make_items, make_queries, tree

from crosscut.errors import CrosscutError
from crosscut.index.build import build
from crosscut.index.change import add_anchor_queries, add_items, delete
from crosscut.index.files import DiskFiles
from crosscut.index.store import Store
from crosscut.types import Item, Query


def small_build(folder=None, scorer=None, **changes):
    options = {"anchor_queries": make_queries(3), "anchor_items": 2, "tile": (2, 3), "encoder": FakeEncoder()}
    return build(make_items(5), scorer=scorer or FakeScorer(), folder=folder, **(options | changes))


def same(a, b):
    assert a.items == b.items
    assert a.anchor_queries == b.anchor_queries
    for name in ("vectors", "anchor_vectors", "anchor_scores", "item_anchors", "item_scores", "deleted"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_all_parts(tmp_path):
    items, queries = make_items(5), make_queries(3)
    scorer = FakeScorer()
    parts = small_build(tmp_path / "x", scorer).parts()
    assert parts.items == items
    assert parts.anchor_queries == queries
    assert scorer.calls == 3 * 5 + 2 * 5
    np.testing.assert_array_equal(parts.anchor_scores, expected_scores([q.text for q in queries], items))
    anchors = [items[p].content for p in parts.item_anchors]
    np.testing.assert_array_equal(parts.item_scores, expected_scores(anchors, items))
    np.testing.assert_array_equal(parts.vectors, FakeEncoder().encode([i.content for i in items]))
    np.testing.assert_array_equal(
        parts.anchor_vectors, FakeEncoder().encode([q.text for q in queries], role="query")
    )
    assert not parts.deleted.any()
    same(parts, Store.open(tmp_path / "x").parts())
    same(parts, small_build().parts())


def test_nothing_but_items():
    scorer = FakeScorer()
    parts = build(make_items(2), scorer=scorer).parts()
    assert parts.vectors is None
    assert parts.anchor_vectors is None
    assert parts.anchor_scores.shape == parts.item_scores.shape == (0, 2)
    assert scorer.calls == 0


def test_encoder_without_anchor_queries():
    parts = build(make_items(300), scorer=FakeScorer(), encoder=FakeEncoder()).parts()
    assert parts.vectors.shape == (300, 4)
    assert parts.anchor_vectors.shape == (0, 4)


def test_result_does_not_depend_on_tile(tmp_path):
    for n, tile in enumerate([(1, 1), (2, 3), (100, 100)]):
        same(small_build(tmp_path / str(n), tile=tile).parts(), small_build().parts())


def test_finished_folder_holds_only_what_the_format_names(tmp_path):
    small_build(tmp_path / "x")
    assert sorted(tree(tmp_path / "x")) == [
        "anchors/000000.jsonl",
        "index.json",
        "item_anchors.json",
        "items/000000.jsonl",
        "scores/items-i000000.npy",
        "scores/q000000-i000000.npy",
        "vectors/anchors-000000.npy",
        "vectors/items-000000.npy",
    ]
    assert not list((tmp_path / "x").rglob("*.tiles"))


def test_same_build_again_calls_no_model(tmp_path):
    small_build(tmp_path / "x")
    before = tree(tmp_path / "x")
    scorer, encoder = FakeScorer(), FakeEncoder()
    small_build(tmp_path / "x", scorer, encoder=encoder)
    assert scorer.calls == encoder.texts == 0
    assert tree(tmp_path / "x") == before


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"encoder": None}, "encoder .*none here"),
        ({"tile": (4, 4)}, r"tile \(\(2, 3\) there, \(4, 4\) here\)"),
        ({"anchor_queries": make_queries(2)}, r"number of anchor queries \(3 there, 2 here\)"),
        ({"anchor_queries": make_queries(3, "other")}, "content of the anchor queries"),
        ({"anchor_items": 1}, "anchor items"),
        ({"seed": 1}, "anchor items or seed"),
    ],
)
def test_another_build_into_the_folder_says_what_differs(tmp_path, changes, what):
    small_build(tmp_path / "x")
    before = tree(tmp_path / "x")
    with pytest.raises(CrosscutError, match=rf"what differs: .*{what}.*overwrite=True"):
        small_build(tmp_path / "x", **changes)
    assert tree(tmp_path / "x") == before
    small_build(tmp_path / "x", overwrite=True, **changes)
    small_build(tmp_path / "fresh", **changes)
    assert tree(tmp_path / "x") == tree(tmp_path / "fresh")


def test_other_items_or_scorer(tmp_path):
    build(make_items(2), scorer=FakeScorer(), folder=tmp_path)
    with pytest.raises(CrosscutError, match=r"number of items \(2 there, 3 here\)"):
        build(make_items(3), scorer=FakeScorer(), folder=tmp_path)
    with pytest.raises(CrosscutError, match="content of the items"):
        build(make_items(2, "x"), scorer=FakeScorer(), folder=tmp_path)
    scorer = FakeScorer()
    scorer.name = "other"
    with pytest.raises(
        CrosscutError, match=r"scorer \('fake' \(digest cafe\) there, 'other' \(digest cafe\) here\)"
    ):
        build(make_items(2), scorer=scorer, folder=tmp_path)


def test_overwrite_starts_over_even_over_a_damaged_manifest(tmp_path):
    small_build(tmp_path / "x")
    before = tree(tmp_path / "x")
    (tmp_path / "x" / "index.json").write_text("{")
    with pytest.raises(CrosscutError, match="damaged"):
        small_build(tmp_path / "x")
    scorer = FakeScorer()
    small_build(tmp_path / "x", scorer, overwrite=True)
    assert scorer.calls == 25
    assert tree(tmp_path / "x") == before


@pytest.mark.parametrize("name", ["thesis.tex", "index.json"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_not_an_index_is_left_alone(tmp_path, name, overwrite):
    (tmp_path / name).write_text('{"pages": []}')
    with pytest.raises(CrosscutError, match="not empty and is not an index"):
        small_build(tmp_path, overwrite=overwrite)
    assert tree(tmp_path) == {name: b'{"pages": []}'}
    with pytest.raises(CrosscutError, match="is a file"):
        small_build(tmp_path / name, overwrite=overwrite)


@pytest.mark.parametrize(
    ("items", "options", "message"),
    [
        ([], {}, "no items"),
        ([Item("a", ""), Item("b", ""), Item("a", "")], {}, "more than one item has the id 'a'"),
        (
            [Item("a", "")],
            {"anchor_queries": [Query("q", "x"), Query("q", "y")]},
            "anchor query has the id 'q'",
        ),
        ([Item("a", "")], {"anchor_queries": [Query("q", " ")]}, "anchor query 'q' has an empty text"),
        ([Item("a", "")], {"anchor_items": 2}, "anchor_items is 2"),
        ([Item("a", "")], {"tile": (0, 1)}, "tile is"),
        ([Item("a", "\ud800")], {}, "item 'a' holds half of a surrogate pair"),
        ([Item(7, "text")], {}, "item 7: id, title and text must be strings"),
    ],
)
def test_bad_input(tmp_path, items, options, message):
    with pytest.raises(CrosscutError, match=message):
        build(items, scorer=FakeScorer(), folder=tmp_path / "x", **options)
    assert not (tmp_path / "x").exists()


def test_scores_too_large_for_float16_are_kept(tmp_path):
    store = small_build(tmp_path / "x", FakeScorer(scale=1e5), encoder=None)
    parts = store.parts()
    expected = expected_scores([q.text for q in make_queries(3)], make_items(5)) * 1e5
    assert parts.anchor_scores.dtype == np.float32
    np.testing.assert_allclose(parts.anchor_scores, expected, rtol=1e-3)
    # A float32 file beside float16 ones: together they are float32.
    store = small_build(tmp_path / "y", encoder=None)
    add_items(store, make_items(2, "new"), scorer=FakeScorer(scale=1e5))
    assert store.parts().anchor_scores.dtype == np.float32
    np.testing.assert_array_equal(store.parts().anchor_scores[:, :5], small_build().parts().anchor_scores)


def test_second_process_is_kept_out(tmp_path):
    store = small_build(tmp_path / "x")
    with DiskFiles(tmp_path / "x").lock():
        with pytest.raises(CrosscutError, match="another process is writing"):
            small_build(tmp_path / "x")
        with pytest.raises(CrosscutError, match="another process is writing"):
            delete(store, ["i0"])
        Store.open(tmp_path / "x").parts()
    delete(store, ["i0"])


# Changing


def test_add_items_scores_only_the_new(tmp_path):
    for store in (small_build(), small_build(tmp_path / "x")):
        scorer, encoder = FakeScorer(), FakeEncoder()
        add_items(store, make_items(4, "new"), scorer=scorer, encoder=encoder)
        assert scorer.calls == (3 + 2) * 4
        assert encoder.texts == 4
        assert len(store.parts().items) == 9


def test_add_anchor_queries_scores_only_the_new(tmp_path):
    for store in (small_build(), small_build(tmp_path / "x")):
        scorer, encoder = FakeScorer(), FakeEncoder()
        add_anchor_queries(store, make_queries(2, "new"), scorer=scorer, encoder=encoder)
        assert scorer.calls == 2 * 5
        assert encoder.texts == 2


def test_errors_of_changes(tmp_path):
    store = small_build(tmp_path / "x", encoder=None)
    before = tree(tmp_path / "x")
    scorer = FakeScorer()
    with pytest.raises(CrosscutError, match="already has an item with the id 'i3'"):
        add_items(store, [Item("new", ""), Item("i3", "")], scorer=scorer)
    with pytest.raises(CrosscutError, match="more than one item has the id 'new'"):
        add_items(store, [Item("new", "a"), Item("new", "b")], scorer=scorer)
    with pytest.raises(CrosscutError, match="more than one anchor query has the id 'q1'"):
        add_anchor_queries(store, [Query("q1", "again")], scorer=scorer)
    with pytest.raises(CrosscutError, match="empty text"):
        add_anchor_queries(store, [Query("new", "")], scorer=scorer)
    with pytest.raises(CrosscutError, match="no item with the id 'nobody'"):
        delete(store, ["i0", "nobody"])
    with pytest.raises(CrosscutError, match="built with no encoder, but this is encoder 'fake-encoder'"):
        add_items(store, [Item("new", "")], scorer=scorer, encoder=FakeEncoder())
    scorer.name = "other"
    with pytest.raises(CrosscutError, match=r"built with scorer 'fake'.*but this is scorer 'other'"):
        add_items(store, [Item("new", "")], scorer=scorer)
    assert tree(tmp_path / "x") == before


def test_adding_nothing_changes_nothing(tmp_path):
    store = small_build(tmp_path / "x")
    before = tree(tmp_path / "x")
    add_items(store, [], scorer=FakeScorer(), encoder=FakeEncoder())
    add_anchor_queries(store, [], scorer=FakeScorer(), encoder=FakeEncoder())
    delete(store, [])
    assert tree(tmp_path / "x") == before


def test_all_items_can_be_deleted_and_come_back():
    store = small_build()
    delete(store, [item.id for item in make_items(5)])
    assert store.parts().deleted.all()
    with pytest.raises(CrosscutError, match="no item with the id 'i0'"):
        delete(store, "i0")
    add_items(store, [Item("i0", "back")], scorer=FakeScorer(), encoder=FakeEncoder())
    assert store.parts().positions() == {"i0": 5}


def test_an_encoder_of_another_length_does_not_get_in(tmp_path):
    store = small_build(tmp_path / "x")
    with pytest.raises(CrosscutError, match="vectors of length 6, but others in this index have length 4"):
        add_items(store, make_items(2, "new"), scorer=FakeScorer(), encoder=FakeEncoder(width=6))
    add_items(store, make_items(2, "new"), scorer=FakeScorer(), encoder=FakeEncoder())
    assert store.parts().vectors.shape == (7, 4)


def test_a_build_does_not_undo_later_changes(tmp_path):
    delete(small_build(tmp_path / "x"), ["i0"])
    with pytest.raises(CrosscutError, match=r"deleted items \(1 there, none here\)"):
        small_build(tmp_path / "x")


def test_two_openers_see_each_others_changes(tmp_path):
    small_build(tmp_path / "x")
    one, two = Store.open(tmp_path / "x"), Store.open(tmp_path / "x")
    add_items(one, make_items(2, "new"), scorer=FakeScorer(), encoder=FakeEncoder())
    delete(two, ["new1", "i0"])
    assert two.parts().positions().keys() == {"i1", "i2", "i3", "i4", "new0"}


steps = st.lists(
    st.tuples(st.sampled_from(["items", "queries", "delete"]), st.integers(1, 3), st.integers(0, 99)),
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(steps, st.booleans())
def test_changes_agree_with_a_plain_reference(tmp_path_factory, steps, on_disk):
    folder = tmp_path_factory.mktemp("index") if on_disk else None
    items, queries, deleted = make_items(3), make_queries(1), set()
    store = build(items, scorer=FakeScorer(), anchor_queries=queries, anchor_items=2, folder=folder, tile=(2, 2))
    for number, (step, count, seed) in enumerate(steps):
        if step == "items":
            new = make_items(count, f"n{number}-")
            add_items(store, new, scorer=FakeScorer())
            items = items + new
        elif step == "queries":
            new = make_queries(count, f"n{number}-")
            add_anchor_queries(store, new, scorer=FakeScorer())
            queries = queries + new
        else:
            live = [p for p in range(len(items)) if p not in deleted]
            chosen = np.random.default_rng(seed).permutation(live)[:count].astype(int).tolist()
            delete(store, [items[p].id for p in chosen])
            deleted |= set(chosen)
    for parts in [store.parts()] + ([Store.open(folder).parts()] if folder else []):
        assert parts.items == items
        assert parts.anchor_queries == queries
        assert set(np.flatnonzero(parts.deleted)) == deleted
        np.testing.assert_array_equal(parts.anchor_scores, expected_scores([q.text for q in queries], items))
        anchors = [items[p].content for p in parts.item_anchors]
        np.testing.assert_array_equal(parts.item_scores, expected_scores(anchors, items))


def test_progress_is_silent_unless_stderr_is_a_terminal(capfd):
    small_build(progress=True)
    assert capfd.readouterr() == ("", "")


def test_manifest_is_plain_json_with_counts(tmp_path):
    store = small_build(tmp_path / "x")
    delete(store, ["i0"])
    keys = json.loads((tmp_path / "x" / "index.json").read_text())
    assert keys["format"] == 1
    assert keys["state"] == "complete"
    assert keys["counts"] == {"items": 5, "deleted": 1, "anchor_queries": 3, "anchor_items": 2}
    assert keys["scorer"] == {"name": "fake", "digest": "cafe"}
