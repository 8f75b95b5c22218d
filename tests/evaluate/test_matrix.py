"""Score-matrix files: what is read, what is refused, and recall against a plain computation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crosscut.data import write_beir
from crosscut.errors import CrosscutError
from crosscut.evaluate.matrix import Matrix, MatrixBench, bench_matrix
from crosscut.types import Item, Query

pytestmark = pytest.mark.filterwarnings("error")

ANCHORS, TESTS, ITEMS = 12, 5, 80


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = ANCHORS + TESTS
    items, queries = rng.normal(size=(ITEMS, 6)), rng.normal(size=(rows, 6))
    scores = (queries @ items.T + rng.normal(size=ITEMS) + 0.5 * rng.normal(size=(rows, ITEMS))).astype(np.float16)
    return {
        "scores": scores,
        "anchors": np.array(ANCHORS),
        "item_embeddings": items.astype(np.float32),
        "query_embeddings": queries.astype(np.float32),
        "lexical_scores": np.abs(rng.normal(size=scores.shape)).astype(np.float32),
        "item_ids": np.array([f"i{number}" for number in range(ITEMS)]),
        "query_ids": np.array([f"q{number}" for number in range(rows)]),
    }


def matrix(**changes) -> Matrix:
    kept = {name: array for name, array in (arrays() | changes).items() if array is not None}
    return Matrix(**{**kept, "anchors": int(kept["anchors"])})


def save(path: Path, **changes) -> Path:
    np.savez(path, **{name: array for name, array in (arrays() | changes).items() if array is not None})
    return path


def plain_recall(scores: np.ndarray, ranking: np.ndarray, budget: int, k: int) -> float:
    """The share of the k best items of each test query among the first `budget` of a ranking."""
    shares = []
    for row, ranked in zip(scores[ANCHORS:].astype(float), ranking[ANCHORS:], strict=True):
        best = sorted(range(ITEMS), key=lambda item: (-row[item], item))[:k]
        found = sorted(range(ITEMS), key=lambda item: (-ranked[item], item))[:budget]
        shares.append(len(set(best) & set(found)) / k)
    return float(np.mean(shares))


def test_a_file_is_read_as_it_was_written(tmp_path):
    loaded = Matrix.load(save(tmp_path / "m.npz", unknown=np.ones(3)))
    assert loaded.anchors == ANCHORS
    for name, array in arrays().items():
        if name != "anchors":
            np.testing.assert_array_equal(getattr(loaded, name), array)


def test_only_scores_and_anchors_are_needed(tmp_path):
    np.savez(tmp_path / "m.npz", scores=np.ones((3, 4)), anchors=1)
    loaded = Matrix.load(tmp_path / "m.npz")
    assert loaded.scores.shape == (3, 4)
    assert loaded.item_embeddings is None


@pytest.mark.parametrize("first", ["encoder", "lexical"])
def test_recall_equals_a_plain_computation(first):
    data = arrays()
    ranking = data["lexical_scores"]
    if first == "encoder":
        units = [
            part / np.linalg.norm(part, axis=1, keepdims=True)
            for part in (data["query_embeddings"], data["item_embeddings"])
        ]
        ranking = units[0] @ units[1].T
    rows = bench_matrix(matrix(), ["rerank"], [10, 30], [1, 5, 20], first=first)
    assert [(row.method, row.anchors, row.budget, row.k, row.calls) for row in rows] == [
        ("rerank", ANCHORS, budget, k, budget) for budget in (10, 30) for k in (1, 5, 20)
    ]
    for row in rows:
        assert row.recall == pytest.approx(plain_recall(data["scores"], ranking, row.budget, row.k))
        assert row.overhead_ms > 0


def test_every_method_that_a_matrix_allows_runs():
    methods = ["exact", "rerank", "anncur", "adacur", "crosscut"]
    rows = {row.method: row for row in bench_matrix(matrix(), methods, [40], [5])}
    assert list(rows) == methods
    assert rows["exact"].recall == 1.0
    assert rows["exact"].calls == ITEMS
    assert all(0 < row.recall <= 1 and row.calls == 40 for name, row in rows.items() if name != "exact")
    assert rows["crosscut"].recall > rows["anncur"].recall


def test_settings_go_to_the_methods_that_know_them():
    rows = bench_matrix(matrix(), ["anncur", "adacur"], [20], [5], rounds=1, first="lexical")
    expected = plain_recall(arrays()["scores"], arrays()["lexical_scores"], 20, 5)
    assert rows[1].recall == pytest.approx(expected)  # one round of adacur is its first batch


def test_fewer_anchor_queries_are_the_first_ones_and_the_test_queries_stay():
    data = arrays()
    rest = np.r_[0:4, ANCHORS : ANCHORS + TESTS]
    small = matrix(anchors=np.array(4), **{
        name: data[name][rest] for name in ("scores", "query_embeddings", "lexical_scores", "query_ids")
    })  # fmt: skip
    for method in ("anncur", "adacur"):
        few = bench_matrix(matrix(), [method], [20], [5], anchors=4)[0]
        alike = bench_matrix(small, [method], [20], [5])[0]
        assert few.anchors == alike.anchors == 4
        assert few.recall == alike.recall


def test_store_rounds_the_anchor_scores_and_no_others():
    scores = arrays()["scores"].astype(np.float32)
    scores[:ANCHORS, 0] = 2000.0  # so that a step of int8 is as large as most scores, and rounding shows
    low, high = scores.min(axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
    step = (high - low) / 254
    rounded = (low + high) / 2 + step * np.rint((scores - (low + high) / 2) / step)
    rounded[ANCHORS:] = scores[ANCHORS:]

    def positions(scores, store):
        return MatrixBench(matrix(scores=scores), ANCHORS, None, store).run("adacur", 20, 0, {}).positions.tolist()

    assert positions(scores, "int8") == positions(rounded, None) != positions(scores, None)
    assert positions(scores, "float16") == positions(scores.astype(np.float16), None)


def test_no_anchor_queries_leave_the_default_to_its_vectors_and_words():
    row = bench_matrix(matrix(), ["crosscut"], [20], [5], anchors=0)[0]
    assert row.anchors == 0
    assert row.calls == 20
    with pytest.raises(CrosscutError, match="needs anchor queries"):
        bench_matrix(matrix(), ["adacur"], [20], [5], anchors=0)


def test_figures_are_means_over_the_seeds():
    single = [bench_matrix(matrix(), ["anncur"], [10], [5], seeds=[seed])[0].recall for seed in (0, 1, 2)]
    assert len(set(single)) > 1
    together = bench_matrix(matrix(), ["anncur"], [10], [5], seeds=[0, 1, 2])[0].recall
    assert together == pytest.approx(np.mean(single))


def beir_folder(folder: Path) -> Path:
    """Item 3 is the one that speaks of whales, query 12 (the first test query) asks for them."""
    items = [
        Item(f"i{number}", "whale song" if number == 3 else f"plain stone {number % 7}") for number in range(ITEMS)
    ]
    queries = [Query(f"q{number}", "whale" if number == ANCHORS else "stone") for number in range(ANCHORS + TESTS)]
    write_beir(folder, items[::-1], queries[::-1], {})  # in another order: the join is by id
    return folder


def test_texts_are_joined_by_id(tmp_path):
    scores = arrays()["scores"].copy()
    scores[ANCHORS, 3] = 50.0
    bare = matrix(scores=scores, lexical_scores=None, item_embeddings=None, query_embeddings=None)
    folder = beir_folder(tmp_path / "beir")
    one = Matrix(scores[: ANCHORS + 1], ANCHORS, item_ids=bare.item_ids, query_ids=bare.query_ids[: ANCHORS + 1])
    assert bench_matrix(one, ["rerank"], [1], [1], data=folder, first="lexical")[0].recall == 1.0
    row = bench_matrix(bare, ["crosscut"], [20], [5], data=folder)[0]
    assert row.calls == 20
    with pytest.raises(CrosscutError, match="'lexical' is not possible"):
        bench_matrix(bare, ["rerank"], [1], [1], first="lexical")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"item_ids": None}, "the matrix lacks them"),
        ({"query_ids": None}, "the matrix lacks them"),
        ({"item_ids": np.array([f"x{n}" for n in range(ITEMS)])}, "lacks 80 of the matrix's item ids.*'x0'"),
        ({"query_ids": np.array(["q0", "zz"] + ["q1"] * 15)}, "lacks 1 of the matrix's query ids.*'zz'"),
    ],
)
def test_a_join_that_fails_says_why(tmp_path, changes, message):
    with pytest.raises(CrosscutError, match=message):
        bench_matrix(matrix(**changes), ["rerank"], [5], [1], data=beir_folder(tmp_path / "beir"))


NAN = arrays()["scores"].copy()
NAN[2, 7] = np.nan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, "has no array 'scores'"),
        ({"anchors": None}, "has no array 'anchors'"),
        ({"anchors": np.array([1, 2])}, "anchors must be one whole number"),
        ({"anchors": np.array(2.5)}, "anchors must be one whole number"),
        ({"anchors": np.array(ANCHORS + TESTS)}, "17 of 17 rows are anchors: no test query is left"),
        ({"anchors": np.array(-1)}, "-1 of 17 rows are anchors"),
        ({"scores": np.ones(4)}, r"scores must be \(queries, items\), but have shape \(4,\)"),
        ({"scores": np.ones((0, 4))}, "scores must be"),
        ({"scores": NAN}, "scores is not finite at row 2, column 7"),
        ({"item_embeddings": np.ones((3, 2))}, "item_embeddings has 3 rows, but there should be 80"),
        ({"query_embeddings": np.ones((3, 2))}, "query_embeddings has 3 rows, but there should be 17"),
        ({"lexical_scores": np.ones((3, ITEMS))}, "lexical_scores has 3 rows"),
        ({"item_ids": np.array(["a"])}, "item_ids has 1 rows"),
        ({"query_ids": np.array(["a"])}, "query_ids has 1 rows"),
        ({"item_ids": np.array([{}] * ITEMS)}, "not a readable .npz file"),
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_refused(tmp_path, changes, message):
    with pytest.raises(CrosscutError, match=message):
        Matrix.load(save(tmp_path / "m.npz", **changes))


def test_a_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(CrosscutError, match="there is no file"):
        Matrix.load(tmp_path / "absent.npz")
    (tmp_path / "m.npz").write_bytes(b"not an archive")
    with pytest.raises(CrosscutError, match="not a readable"):
        Matrix.load(tmp_path / "m.npz")


@pytest.mark.parametrize("kind", ["cut short", "an .npy file", "flat vectors", "words for scores"])
def test_a_broken_file_is_refused(tmp_path, kind):
    path = save(tmp_path / "m.npz")
    if kind == "cut short":
        path.write_bytes(path.read_bytes()[:3000])
    elif kind == "an .npy file":
        with path.open("wb") as file:
            np.save(file, np.ones(3))
    elif kind == "flat vectors":
        save(path, item_embeddings=np.ones(ITEMS))
    else:
        save(path, scores=np.full((ANCHORS + TESTS, ITEMS), "a"))
    with pytest.raises(CrosscutError):
        bench_matrix(Matrix.load(path), ["rerank"], [5], [1])


@pytest.mark.parametrize(
    ("methods", "budgets", "ks", "keys", "message"),
    [
        (["magic"], [5], [1], {}, "unknown method 'magic'"),
        (["rerank"], [5, 0], [1], {}, "budget must be at least 1, but is 0"),
        (["rerank"], [5], [0], {}, "k must be at least 1, but is 0"),
        (["rerank"], [5], [], {}, "no k is given"),
        (["rerank"], [5], [81], {}, "k is 81, but the matrix has only 80 items"),
        (["rerank"], [5], [1], {"anchors": 13}, "has 12 anchor queries, but 13 are asked for"),
        (["rerank"], [5], [1], {"anchors": -1}, "has 12 anchor queries, but -1 are asked for"),
        (["rerank"], [5], [1], {"store": "int4"}, "stored as float16 or int8, not as 'int4'"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(methods, budgets, ks, keys, message):
    with pytest.raises(CrosscutError, match=message):
        bench_matrix(matrix(), methods, budgets, ks, **keys)


def test_scores_of_a_compare_model_serve_as_first_stage_and_as_a_signal():
    scores = arrays()["scores"].astype(np.float32)
    noisy = scores + 0.3 * np.random.default_rng(1).normal(size=scores.shape).astype(np.float32)
    helped, plain = matrix(compare_scores=noisy), matrix()
    (first,) = bench_matrix(helped, ["rerank"], [20], [5], first="compare")
    assert first.recall == pytest.approx(plain_recall(scores, noisy, 20, 5))
    with pytest.raises(CrosscutError, match="unknown first stage 'compare': choose from random"):
        bench_matrix(plain, ["rerank"], [20], [5], first="compare")
    (with_signal,), (without,) = (bench_matrix(given, ["crosscut"], [10], [10]) for given in (helped, plain))
    assert with_signal.recall > without.recall
    (unused,) = bench_matrix(helped, ["crosscut"], [10], [10], signal=False)
    assert unused.recall == without.recall


def test_a_compare_model_counts_without_anchor_queries_too():
    scores = arrays()["scores"].astype(np.float32)
    helped, plain = matrix(compare_scores=scores), matrix()
    rows = [bench_matrix(given, ["crosscut"], [10], [10], anchors=0)[0] for given in (helped, plain)]
    assert rows[0].recall > rows[1].recall


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.ones((3, ITEMS)), "compare_scores has 3 rows"),
        (np.ones((ANCHORS + TESTS, 3)), "compare_scores has 3 columns"),
        (np.full((ANCHORS + TESTS, ITEMS), np.nan), "compare_scores is not finite"),
        (np.array(["x"] * (ANCHORS + TESTS)), "compare_scores must be a table of numbers"),
    ],
)
def test_bad_scores_of_a_compare_model(tmp_path, scores, message):
    with pytest.raises(CrosscutError, match=message):
        Matrix.load(save(tmp_path / "m.npz", compare_scores=scores))
