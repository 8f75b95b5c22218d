import io
import json
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from index_fakes import tree
from search_fakes import ANCHORS, ITEMS, QUERIES, Vectors, Words

from crosscut import Index
from crosscut.index import derived

DERIVED = (
    "derived.json",
    "item_mean.npy",
    "lexical/positions.npy",
    "lexical/starts.npy",
    "lexical/terms.json",
    "lexical/weights.npy",
    "prior.json",
    "residuals.npy",
)


def load(folder):
    return Index.load(folder, scorer=Words().scorer(), encoder=Vectors())


def build(folder, items=ITEMS, **settings):
    settings = {"anchor_queries": ANCHORS, "encoder": Vectors(), "scorer": Words().scorer(), **settings}
    return Index.build(items, path=folder, **settings)


def searched(index):
    """What a search does, to the last digit of its estimates."""
    results = index.search(QUERIES, budget=20, rounds=4, trace=True)
    return [(result.hits, result.trace) for result in results]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "x.index"
    return folder, searched(build(folder))


@pytest.fixture
def folder(built, tmp_path):
    shutil.copytree(built[0], tmp_path / "x.index")
    return tmp_path / "x.index"


@pytest.fixture
def lessons(monkeypatch):
    """How often something was learned."""
    counted = []
    learn = derived.learn
    monkeypatch.setattr(derived, "learn", lambda *given: counted.append(1) or learn(*given))
    return counted


@pytest.fixture
def expected(built):
    return built[1]


def test_what_lies_there_is_used(folder, expected, lessons):
    assert tuple(tree(folder / "derived")) == DERIVED
    assert searched(load(folder)) == expected
    assert not lessons


def test_the_whole_folder_may_go(folder, expected, lessons):
    before = tree(folder)
    shutil.rmtree(folder / "derived")
    assert searched(load(folder)) == expected
    assert lessons == [1]
    assert tree(folder) == before


def shorter(content):
    return content[: len(content) // 2]


def flipped(content):
    """The last byte of the numbers, or of a word."""
    place = len(content) - 6
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def array(content):
    file = io.BytesIO()
    np.save(file, np.full(3, np.nan))
    return file.getvalue()


def pickled(content):
    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    return file.getvalue()


DAMAGES = {
    "gone": None,
    "empty": lambda content: b"",
    "shorter": shorter,
    "flipped": flipped,
    "another array": array,
    "pickled": pickled,
    "zip": lambda content: b"PK\x03\x04" + content,
    "a list": lambda content: b"[]",
    "deep": lambda content: b"[" * 100_000,
    "not text": lambda content: b"\xff\xfe\x00",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_file_damaged(folder, expected, lessons, damage):
    before = tree(folder)
    for number, name in enumerate(DERIVED, start=1):
        path = folder / "derived" / name
        if DAMAGES[damage] is None:
            path.unlink()
        else:
            path.write_bytes(DAMAGES[damage](path.read_bytes()))
        assert searched(load(folder)) == expected, name
        assert len(lessons) == number, name
        assert tree(folder) == before, name


@pytest.mark.parametrize("key", ["files", "lexical", "contents", "format"])
def test_a_stamp_that_misses_a_key_or_has_another(folder, expected, lessons, key):
    path = folder / "derived/derived.json"
    whole = json.loads(path.read_text())
    for keys in ({name: value for name, value in whole.items() if name != key}, {**whole, key: None}):
        path.write_text(json.dumps(keys))
        assert searched(load(folder)) == expected
    assert len(lessons) == 2


class Killed(BaseException):
    pass


def kill_at(monkeypatch, write):
    """Die at the n-th file, before it is in its place."""
    whole, count = derived.atomic_write, iter(range(1, 100))

    def atomic_write(path, *mode):
        if next(count) == write:
            raise Killed
        return whole(path, *mode)

    monkeypatch.setattr("crosscut.index.derived.atomic_write", atomic_write)
    monkeypatch.setattr("crosscut.first_stage.terms.atomic_write", atomic_write)


@pytest.mark.parametrize("write", range(1, len(DERIVED) + 1))
def test_killed_between_the_files(folder, expected, monkeypatch, write):
    before = tree(folder)
    shutil.rmtree(folder / "derived")
    with monkeypatch.context() as patch:
        kill_at(patch, write)
        with pytest.raises(Killed):
            load(folder)
    assert searched(load(folder)) == expected
    assert tree(folder) == before


@pytest.mark.parametrize("write", range(1, len(DERIVED) + 1))
def test_killed_while_what_was_learned_before_a_change_is_replaced(tmp_path, expected, monkeypatch, write):
    index = build(tmp_path / "x.index", ITEMS[:50])
    with monkeypatch.context() as patch:
        kill_at(patch, write)
        with pytest.raises(Killed):
            index.add(ITEMS[50:])
    assert searched(load(tmp_path / "x.index")) == expected


@pytest.fixture
def read_only(monkeypatch):
    """As on a read-only file system; permissions would not bind a test that runs as root."""

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    def open_(file, mode="r", *rest, **settings):
        return refuse() if set(mode) & set("wxa+") else plain_open(file, mode, *rest, **settings)

    plain_open = open
    with monkeypatch.context() as patch:
        for function in ("mkdir", "unlink", "rename", "replace", "rmdir"):
            patch.setattr(Path, function, refuse)
            patch.setattr(os, function, refuse)
        patch.setattr("builtins.open", open_)
        yield


def test_a_folder_that_cannot_be_written(built, expected, lessons, read_only):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert searched(load(built[0])) == expected
    assert not lessons


@pytest.fixture
def stale(folder, tmp_path):
    """What was learned lies there, but from other contents."""
    build(tmp_path / "other.index", ITEMS[:50])
    shutil.rmtree(folder / "derived")
    shutil.copytree(tmp_path / "other.index/derived", folder / "derived")
    return folder


@pytest.fixture
def without(folder):
    shutil.rmtree(folder / "derived")
    return folder


def test_stale_in_a_folder_that_cannot_be_written(stale, expected, read_only):
    before = tree(stale)
    with pytest.warns(UserWarning, match=r"learned at every load: .*Read-only file system"):
        index = load(stale)
    assert searched(index) == expected
    assert tree(stale) == before


def test_missing_in_a_folder_that_cannot_be_written(without, expected, read_only):
    with pytest.warns(UserWarning, match=r"learned at every load: .*Read-only file system"):
        index = load(without)
    assert searched(index) == expected
    assert not (without / "derived").exists()


def test_a_full_disk(folder, expected, monkeypatch):
    shutil.rmtree(folder / "derived")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.warns(UserWarning, match="No space left on device"):
            assert searched(load(folder)) == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert searched(load(folder)) == expected
    assert tuple(tree(folder / "derived")) == DERIVED


def test_other_scores_under_the_same_name_are_learned_from(tmp_path):
    folder = tmp_path / "x.index"
    for sign in (1, -1):
        words = Words()

        def score(query, texts, words=words, sign=sign):
            return [sign * value for value in words(query, texts)]

        onto = build(folder, scorer=score, overwrite=True)
        assert searched(onto) == searched(build(None, scorer=score))
        assert searched(Index.load(folder, scorer=score, encoder=Vectors())) == searched(onto)


def test_few_anchor_queries_leave_nothing_of_what_many_had_taught(folder):
    few = build(folder, anchor_queries=ANCHORS[:3], overwrite=True)
    assert not (folder / "derived/residuals.npy").exists()
    assert searched(load(folder)) == searched(few) == searched(build(None, anchor_queries=ANCHORS[:3]))


def test_to_learn_takes_no_calls(folder):
    shutil.rmtree(folder / "derived")
    words = Words()
    Index.load(folder, scorer=words.scorer(), encoder=Vectors())
    assert not words.pairs
