"""What needs no torch: vectors of items, and what is said where torch is missing."""

import sys

import numpy as np
import pytest

from crosscut.compare import Comparer, ItemVectors, as_comparer
from crosscut.errors import CrosscutError


def test_items_are_taken_from_a_file(tmp_path):
    rows = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float16)
    np.save(tmp_path / "rows.npy", rows)
    items = ItemVectors(np.load(tmp_path / "rows.npy", mmap_mode="r"), np.array([0, 2, 2, 5, 9]))
    taken = items.take([3, 1, 0])
    assert taken.counts.tolist() == [4, 0, 2] and type(taken.rows) is np.ndarray
    np.testing.assert_array_equal(taken.rows, np.concatenate([rows[5:9], rows[:2]]))
    assert len(items.take([])) == 0 and items.take([]).rows.shape == (0, 4)
    both = ItemVectors.concatenate([items.take([0, 1]), items.take([2, 3])])
    np.testing.assert_array_equal(both.rows, rows)
    np.testing.assert_array_equal(both.starts, items.starts)


def test_without_torch(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "crosscut.compare.comparer", None)
    with pytest.raises(CrosscutError, match=r'pip install "crosscut\[torch\]"'):
        as_comparer(tmp_path)


class Broken(Comparer):
    kind, width, per_item = "broken", 2, 1

    def __init__(self, row=1.0, score=1.0):
        self.row, self.one = row, score

    def _encode(self, texts, role, progress):
        return ItemVectors.single(np.full((len(texts), 2), self.row))

    def _score(self, queries, candidates):
        return [np.full(len(items), self.one) for items in candidates]


def test_numbers_that_are_not_finite():
    for row in (np.nan, np.inf, 1e6):
        with pytest.raises(CrosscutError, match="vectors that are not finite"):
            Broken(row=row).encode_items(["a"])
    model = Broken(score=np.nan)
    with pytest.raises(CrosscutError, match="must give 3 finite scores"):
        model.score(model.encode_queries(["a"]), [model.encode_items(["a", "b", "c"])])
    damaged = ItemVectors.single(np.array([[0.0, np.nan]], np.float16))
    with pytest.raises(CrosscutError, match=r"vectors of items .* are damaged .*--remove-compare"):
        model.score(model.encode_queries(["a"]), [damaged])
    with pytest.raises(CrosscutError, match=r"2 candidates have 2 vectors, of one of them 0"):
        model.score(model.encode_queries(["a"]), [ItemVectors(np.ones((2, 2)), np.array([0, 0, 2]))])
    with pytest.raises(CrosscutError, match="cannot be saved"):
        model.save("nowhere")
