"""The papers' methods against plain transcriptions of their algorithms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook import adacur, cur_estimates, scored_positions, search, slow_top

from crosscut.errors import CrosscutError
from crosscut.search.anncur import item_vectors
from crosscut.search.problem import Corpus, Problem, Queries

pytestmark = pytest.mark.filterwarnings("error")
EXAMPLES = settings(deadline=None, max_examples=60, derandomize=True)
SEEDS = st.integers(0, 10_000)


def gaussian(seed: int, anchors: int, items: int, queries: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Scores of anchor queries and of test queries."""
    scores = np.random.default_rng(seed).normal(size=(anchors + queries, items))
    return scores[:anchors], scores[anchors:]


def problem_with(anchor_scores: np.ndarray, queries: int, seed: int = 0, **keys) -> Problem:
    corpus = Corpus(anchor_scores.shape[1], anchor_scores=anchor_scores)
    return Problem(corpus, Queries(range(queries)), seed=seed, **keys)


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6 * (1 + np.abs(expected).max(initial=0)))


def assert_rounds_follow_the_algorithm(outcome, anchor_scores: np.ndarray, test_scores: np.ndarray) -> None:
    """Each batch is a TOPK of the textbook's estimates from the batches before; ties may fall either way."""
    for query, f in enumerate(test_scores):
        known = outcome.rounds[0].positions[query].tolist()
        for scored in outcome.rounds[1:]:
            expected = cur_estimates(anchor_scores, known, f[known])
            batch = scored.positions[query].tolist()
            assert_close(scored.estimates[query], expected[batch])
            rest = np.delete(expected, known + batch)
            slack = 1e-6 * (1 + np.abs(expected).max())
            assert expected[batch].min() >= rest.max(initial=-np.inf) - slack
            known += batch
        assert len(set(known)) == len(known)


@EXAMPLES
@given(seed=SEEDS, rounds=st.integers(1, 6), size=st.integers(1, 6), anchors=st.integers(1, 30))
def test_adacur_equals_algorithm_1(seed, rounds, size, anchors):
    """Budgets lie below, at and above the number of anchor queries."""
    anchor_scores, test_scores = gaussian(seed, anchors, items=50)
    problem = problem_with(anchor_scores, len(test_scores), seed)
    outcome = search(problem, "adacur", rounds * size, test_scores, rounds=rounds)
    assert [scored.positions.shape[1] for scored in outcome.rounds] == [size] * rounds
    assert outcome.rounds[0].estimates is None
    for query, f in enumerate(test_scores):
        init = outcome.rounds[0].positions[query].tolist()
        batches, estimates = adacur(anchor_scores, f, init, rounds)
        assert [scored.positions[query].tolist() for scored in outcome.rounds] == batches
        for scored, batch, expected in zip(outcome.rounds[1:], batches[1:], estimates, strict=True):
            assert_close(scored.estimates[query], expected[batch])
            assert scored.scores[query].tolist() == f[batch].tolist()


def test_adacur_with_as_many_items_as_anchor_queries():
    anchor_scores, test_scores = gaussian(0, anchors=12, items=40)
    outcome = search(problem_with(anchor_scores, 3), "adacur", 18, test_scores, rounds=3)
    assert_rounds_follow_the_algorithm(outcome, anchor_scores, test_scores)


@EXAMPLES
@given(seed=SEEDS, rounds=st.integers(2, 6), size=st.integers(1, 5), anchors=st.integers(2, 25))
def test_adacur_with_duplicated_items(seed, rounds, size, anchors):
    anchor_scores, test_scores = gaussian(seed, anchors, items=15)
    copies = np.tile(np.arange(15), 3)
    problem = problem_with(anchor_scores[:, copies], len(test_scores), seed)
    outcome = search(problem, "adacur", rounds * size, test_scores[:, copies], rounds=rounds)
    assert_rounds_follow_the_algorithm(outcome, anchor_scores[:, copies], test_scores[:, copies])


@EXAMPLES
@given(seed=SEEDS, rank=st.integers(1, 5), rounds=st.integers(2, 6), size=st.integers(1, 5))
def test_adacur_with_scores_of_low_rank(seed, rank, rounds, size):
    """Whole numbers make the rank exact. The test queries lie outside of what the anchor queries span."""
    rng = np.random.default_rng(seed)
    anchor_scores = (rng.integers(-3, 4, (12, rank)) @ rng.integers(-3, 4, (rank, 40))).astype(float)
    test_scores = rng.normal(size=(3, 40))
    outcome = search(problem_with(anchor_scores, 3, seed), "adacur", rounds * size, test_scores, rounds=rounds)
    assert_rounds_follow_the_algorithm(outcome, anchor_scores, test_scores)


def test_adacur_starts_from_the_first_stage_it_is_given():
    anchor_scores, test_scores = gaussian(1, anchors=8, items=30)
    rng = np.random.default_rng(1)
    queries = Queries(range(3), vectors=rng.normal(size=(3, 4)), lexical=rng.normal(size=(3, 30)))
    vectors = rng.normal(size=(30, 4)).astype(np.float32)
    problem = Problem(Corpus(30, vectors=vectors, anchor_scores=anchor_scores), queries)
    for first, ranking in [(None, problem.similarity), ("lexical", queries.lexical)]:
        outcome = search(problem, "adacur", 10, test_scores, rounds=2, first=first)
        expected = [slow_top(row, 5, set()) for row in ranking]
        assert outcome.rounds[0].positions.tolist() == expected


@pytest.mark.parametrize("selection", ["topk", "softmax", "random"])
def test_selection_never_repeats_an_item_nor_takes_an_excluded_one(selection):
    anchor_scores, test_scores = gaussian(2, anchors=10, items=40, queries=5)
    allowed = np.arange(40) % 3 > 0
    for seed in range(10):
        problem = problem_with(anchor_scores, 5, seed, allowed=allowed)
        outcome = search(problem, "adacur", 20, test_scores, rounds=4, selection=selection)
        for row in scored_positions(outcome):
            assert len(set(row)) == 20
            assert allowed[row].all()


@pytest.mark.parametrize("selection", ["softmax", "random"])
def test_random_selection_is_seeded(selection):
    anchor_scores, test_scores = gaussian(3, anchors=10, items=40)

    def positions(seed):
        problem = problem_with(anchor_scores, 3, seed)
        return scored_positions(search(problem, "adacur", 20, test_scores, rounds=4, selection=selection))

    np.testing.assert_array_equal(positions(5), positions(5))
    assert (positions(5) != positions(6)).any()


def test_softmax_selection_samples_by_softmax():
    """One anchor query that scores like the test queries: the estimates are then the true scores."""
    scores = np.log([[4.0, 3.0, 2.0, 1.0, 1.0, 100.0]])
    count = 4000
    queries = Queries(range(count), lexical=np.tile(np.arange(6.0), (count, 1)))  # item 5 comes first
    problem = Problem(Corpus(6, anchor_scores=scores), queries, seed=0)
    outcome = search(
        problem, "adacur", 2, np.tile(scores, (count, 1)), rounds=2, first="lexical", selection="softmax"
    )
    drawn = np.bincount(outcome.rounds[1].positions[:, 0], minlength=6) / count
    np.testing.assert_allclose(drawn, [4 / 11, 3 / 11, 2 / 11, 1 / 11, 1 / 11, 0], atol=0.03)


def test_random_selection_ignores_the_estimates():
    scores = np.arange(1.0, 7.0)[None]
    count = 3000
    queries = Queries(range(count), lexical=np.tile(np.arange(6.0), (count, 1)))
    problem = Problem(Corpus(6, anchor_scores=scores), queries)
    outcome = search(
        problem, "adacur", 2, np.tile(scores, (count, 1)), rounds=2, first="lexical", selection="random"
    )
    drawn = np.bincount(outcome.rounds[1].positions[:, 0], minlength=6) / count
    np.testing.assert_allclose(drawn, [0.2, 0.2, 0.2, 0.2, 0.2, 0], atol=0.03)


def check_two_steps(outcome, features: np.ndarray, vectors_of, test_scores: np.ndarray) -> None:
    """Anchor items, the same for all queries, then the best of the others by C_q · E (App. B.3)."""
    first, second = outcome.rounds
    anchors = first.positions[0].tolist()
    assert (first.positions == anchors).all()
    embedded = vectors_of(anchors)  # E^I, (k_i, N)
    for query, f in enumerate(test_scores):
        estimates = f[anchors] @ embedded
        expected = slow_top(estimates, second.positions.shape[1], set(anchors))
        assert second.positions[query].tolist() == expected
        assert_close(second.estimates[query], estimates[expected])


@EXAMPLES
@given(seed=SEEDS, budget=st.integers(2, 30), share=st.floats(0.05, 0.95), anchors=st.integers(1, 20))
def test_anncur_equals_its_paper(seed, budget, share, anchors):
    anchor_scores, test_scores = gaussian(seed, anchors, items=50)
    problem = problem_with(anchor_scores, 3, seed)
    outcome = search(problem, "anncur", budget, test_scores, anchor_share=share)
    k_i = outcome.rounds[0].positions.shape[1]
    assert k_i == min(max(1, int(budget * share)), budget - 1)
    assert scored_positions(outcome).shape[1] == budget
    check_two_steps(
        outcome,
        anchor_scores,
        lambda chosen: np.linalg.pinv(anchor_scores[:, chosen]) @ anchor_scores,
        test_scores,
    )


@EXAMPLES
@given(seed=SEEDS, half=st.integers(1, 12), anchors=st.integers(1, 20))
def test_anncur_is_adacur_with_fixed_anchors_and_two_rounds(seed, half, anchors):
    anchor_scores, test_scores = gaussian(seed, anchors, items=40)
    one = search(problem_with(anchor_scores, 3, seed), "anncur", 2 * half, test_scores)
    ranking = np.zeros((3, 40))
    ranking[:, one.rounds[0].positions[0]] = np.arange(half, 0, -1)
    problem = Problem(Corpus(40, anchor_scores=anchor_scores), Queries(range(3), lexical=ranking))
    two = search(problem, "adacur", 2 * half, test_scores, rounds=2, first="lexical")
    np.testing.assert_array_equal(scored_positions(one), scored_positions(two))
    assert_close(two.rounds[1].estimates, one.rounds[1].estimates)


def test_item_vectors_serve_an_inner_product_search():
    faiss = pytest.importorskip("faiss")
    anchor_scores, test_scores = (part.astype(np.float32) for part in gaussian(4, anchors=20, items=500))
    anchors = np.random.default_rng(4).permutation(500)[:10]
    vectors = item_vectors(anchor_scores.T, anchors)
    index = faiss.IndexFlatIP(10)
    index.add(np.ascontiguousarray(vectors))
    _, found = index.search(np.ascontiguousarray(test_scores[:, anchors]), 25)
    exact = test_scores[:, anchors] @ np.linalg.pinv(anchor_scores[:, anchors]) @ anchor_scores
    assert found.tolist() == [slow_top(row, 25, set()) for row in exact]


@EXAMPLES
@given(seed=SEEDS, rank=st.integers(1, 8))
def test_a_matrix_of_rank_r_needs_r_anchor_queries_and_r_anchor_items(seed, rank):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(rank + 3, rank)) @ rng.normal(size=(rank, 60))
    anchor_scores, test_scores = scores[:rank], scores[rank:]
    for k, method, keys in [
        (rank, "adacur", {"rounds": 2}),
        (5, "anncur", {"anchor_share": (rank + 0.5) / (rank + 5)}),
    ]:
        problem = problem_with(anchor_scores, 3, seed)
        outcome = search(problem, method, rank + k, test_scores, **keys)
        assert outcome.rounds[0].positions.shape[1] == rank
        np.testing.assert_allclose(outcome.rounds[1].estimates, outcome.rounds[1].scores, rtol=0, atol=1e-6)
        for found, row in zip(scored_positions(outcome), test_scores, strict=True):
            assert set(slow_top(row, k, set())) <= set(found.tolist())


@EXAMPLES
@given(seed=SEEDS, budget=st.integers(2, 25), indexed=st.integers(1, 20))
def test_itemcur_is_anncur_on_item_item_scores(seed, budget, indexed):
    item_scores, test_scores = gaussian(seed, indexed, items=40)
    corpus = Corpus(40, item_anchors=np.arange(indexed), item_scores=item_scores)
    outcome = search(Problem(corpus, Queries(range(3)), seed=seed), "itemcur", budget, test_scores)
    check_two_steps(
        outcome, item_scores, lambda chosen: np.linalg.pinv(item_scores[:, chosen]) @ item_scores, test_scores
    )


@EXAMPLES
@given(seed=SEEDS, budget=st.integers(2, 25), indexed=st.integers(1, 20))
def test_fixeditem_multiplies_scores_against_the_same_anchor_items(seed, budget, indexed):
    item_scores, test_scores = gaussian(seed, indexed, items=40)
    anchors = np.random.default_rng(seed).permutation(40)[:indexed]
    corpus = Corpus(40, item_anchors=anchors, item_scores=item_scores)
    outcome = search(Problem(corpus, Queries(range(3)), seed=seed), "fixeditem", budget, test_scores)
    k_i = outcome.rounds[0].positions.shape[1]
    assert k_i == min(indexed, max(1, budget // 2))
    assert outcome.rounds[0].positions[0].tolist() == anchors[:k_i].tolist()
    check_two_steps(outcome, item_scores, lambda chosen: item_scores[:k_i], test_scores)


def test_fixeditem_goes_by_the_anchor_items_that_are_left():
    item_scores, test_scores = gaussian(3, 4, items=20)
    corpus = Corpus(20, item_anchors=np.array([2, 5, 7, 11]), item_scores=item_scores)
    problem = Problem(corpus, Queries(range(3)), allowed=np.arange(20) != 5)
    outcome = search(problem, "fixeditem", 8, test_scores)
    assert outcome.rounds[0].positions[0].tolist() == [2, 7, 11]
    expected = test_scores[:, [2, 7, 11]] @ item_scores[[0, 2, 3]]
    chosen = outcome.rounds[1]
    np.testing.assert_allclose(chosen.estimates, np.take_along_axis(expected, chosen.positions, axis=1), atol=1e-6)


def test_fixeditem_needs_an_anchor_item():
    corpus = Corpus(6, item_anchors=np.array([2]), item_scores=np.ones((1, 6)))
    problem = Problem(corpus, Queries([0]), allowed=np.arange(6) != 2)
    with pytest.raises(CrosscutError, match="all anchor items"):
        search(problem, "fixeditem", 4, np.ones((1, 6)))


@pytest.mark.parametrize("first", ["encoder", "lexical"])
def test_rerank_scores_the_top_of_the_first_stage(first):
    rng = np.random.default_rng(0)
    queries = Queries(range(3), vectors=rng.normal(size=(3, 4)), lexical=rng.normal(size=(3, 30)))
    problem = Problem(Corpus(30, vectors=rng.normal(size=(30, 4))), queries)
    outcome = search(problem, "rerank", 7, rng.normal(size=(3, 30)), first=first)
    ranking = problem.similarity if first == "encoder" else queries.lexical
    assert outcome.rounds[0].positions.tolist() == [slow_top(row, 7, set()) for row in ranking]


def test_rerank_fuses_what_there_is():
    rng = np.random.default_rng(0)
    lexical, vectors = rng.normal(size=(1, 9)), rng.normal(size=(9, 4))
    problem = Problem(Corpus(9, vectors=vectors), Queries([0], vectors=rng.normal(size=(1, 4)), lexical=lexical))
    ranks = [slow_top(row[0], 9, set()) for row in (problem.similarity, lexical)]
    fused = np.array([sum(1 / (61 + order.index(item)) for order in ranks) for item in range(9)])
    outcome = search(problem, "rerank", 4, rng.normal(size=(1, 9)))
    assert outcome.rounds[0].positions[0].tolist() == slow_top(fused, 4, set())


def test_exact_scores_everything_whatever_the_budget():
    scores = np.random.default_rng(0).normal(size=(2, 20))
    outcome = search(Problem(Corpus(20), Queries([0, 1])), "exact", 3, scores)
    assert [sorted(row) for row in scored_positions(outcome).tolist()] == [list(range(20))] * 2
    assert outcome.best(4)[0].tolist() == [slow_top(row, 4, set()) for row in scores]


@pytest.mark.parametrize(
    ("method", "keys", "message"),
    [
        ("adacur", {}, "needs anchor queries"),
        ("anncur", {}, "needs anchor queries"),
        ("itemcur", {}, "scores against anchor items"),
        ("fixeditem", {}, "scores against anchor items"),
        ("rerank", {"first": "encoder"}, "no encoder scores"),
        ("rerank", {"first": "rrf"}, "one is missing"),
        ("rerank", {"first": "magic"}, "unknown first stage 'magic'"),
        ("rerank", {"rounds": 2}, "no setting 'rounds'"),
        ("magic", {}, "unknown method 'magic'"),
    ],
)
def test_what_a_method_lacks_is_said(method, keys, message):
    with pytest.raises(CrosscutError, match=message):
        search(Problem(Corpus(9), Queries([0])), method, 4, np.zeros((1, 9)), **keys)


@pytest.mark.parametrize(
    ("method", "budget", "keys", "message"),
    [
        ("adacur", 4, {"rounds": 0}, "rounds must be a whole number of at least 1"),
        ("adacur", 4, {"rounds": 5}, "cannot be spent in 5 rounds"),
        ("adacur", 4, {"selection": "best"}, "unknown selection 'best'"),
        ("anncur", 4, {"anchor_share": 1.0}, "anchor_share must lie between 0 and 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(method, budget, keys, message):
    problem = problem_with(np.ones((2, 9)), queries=1)
    with pytest.raises(CrosscutError, match=message):
        search(problem, method, budget, np.zeros((1, 9)), **keys)
