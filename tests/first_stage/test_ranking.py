"""Rankings against sorted(), fusion against a dictionary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosscut.errors import CrosscutError
from crosscut.first_stage import dense_scores, random_scores, ranking, reciprocal_rank_fusion, top

# Few distinct values, so that ties are the rule.
value = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 0.25, 7.0, np.inf])


@st.composite
def tables(draw, n_tables=1):
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    numbers = st.lists(st.lists(value, min_size=columns, max_size=columns), min_size=rows, max_size=rows)
    return [np.array(draw(numbers), dtype=np.float32) for _ in range(n_tables)]


def slow_ranking(scores) -> list[int]:
    return sorted(range(len(scores)), key=lambda position: (-scores[position], position))


@given(tables())
def test_ranking_is_a_sort_with_ties_to_the_lower_position(table):
    (scores,) = table
    expected = [slow_ranking(row) for row in scores]
    assert ranking(scores).tolist() == expected
    assert ranking(scores[0]).tolist() == expected[0]


@given(tables(), st.integers(0, 15))
def test_top_is_the_beginning_of_ranking(table, k):
    (scores,) = table
    assert top(scores, k).tolist() == [slow_ranking(row)[:k] for row in scores]
    assert top(scores[0], k).tolist() == slow_ranking(scores[0])[:k]


def test_no_items_and_no_queries():
    assert ranking(np.zeros(0)).tolist() == []
    assert top(np.zeros(0), 3).tolist() == []
    assert top(np.zeros((0, 5)), 3).shape == (0, 3)


def test_integers_and_booleans_rank_as_numbers():
    assert ranking(np.array([0, 255, 3], dtype=np.uint8)).tolist() == [1, 2, 0]
    assert top(np.array([False, True, True]), 2).tolist() == [1, 2]


@pytest.mark.parametrize("rank", [ranking, lambda s: top(s, 1), lambda s: reciprocal_rank_fusion([s])])
def test_nan_is_refused(rank):
    with pytest.raises(CrosscutError, match="1 of the scores"):
        rank(np.array([1.0, np.nan]))


def test_other_bad_input():
    with pytest.raises(CrosscutError, match="negative"):
        top(np.zeros(3), -1)
    with pytest.raises(CrosscutError, match="shape"):
        ranking(np.zeros((2, 2, 2)))
    with pytest.raises(CrosscutError, match="no arrays"):
        reciprocal_rank_fusion([])
    with pytest.raises(CrosscutError, match="one shape"):
        reciprocal_rank_fusion([np.zeros(2), np.zeros(3)])


@given(tables(n_tables=3), st.sampled_from([0, 1, 60]))
def test_fusion_adds_reciprocal_ranks(arrays, constant):
    fused = reciprocal_rank_fusion(arrays, constant)
    for row in range(len(arrays[0])):
        expected = dict.fromkeys(range(arrays[0].shape[1]), 0.0)
        for array in arrays:
            for rank, position in enumerate(slow_ranking(array[row]), start=1):
                expected[position] += 1 / (constant + rank)
        np.testing.assert_allclose(fused[row], list(expected.values()), rtol=1e-12)


def test_random_scores_follow_the_generator():
    first, again, other = (random_scores(50, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()
    assert len(set(first)) == 50


def test_dense_scores_are_inner_products():
    rng = np.random.default_rng(0)
    items, queries = rng.normal(size=(5, 3)).astype(np.float16), rng.normal(size=(2, 3))
    scores = dense_scores(items, queries)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, [[np.dot(q, i) for i in items] for q in queries], rtol=1e-4, atol=1e-5)
    with pytest.raises(CrosscutError, match=r"\(5, 3\).*\(2, 2\)"):
        dense_scores(items, queries[:, :2])
