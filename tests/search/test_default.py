"""The default method: its prior, what it learns from anchor queries, and corpora with nothing to learn from."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from textbook import World, make_world, scored_positions, search, slow_top

from crosscut.encoders.base import to_unit_length
from crosscut.first_stage import BM25, ranking, reciprocal_rank_fusion
from crosscut.search import METHODS
from crosscut.search.learn import FEWEST, STEADINESS, _maximise, learn
from crosscut.search.prior import Prior, basis, default_prior, signals, standardise
from crosscut.search.problem import Corpus, Problem, Queries

pytestmark = pytest.mark.filterwarnings("error")


def recall(positions: np.ndarray, scores: np.ndarray, k: int) -> float:
    pairs = zip(positions, scores, strict=True)
    return float(np.mean([np.isin(slow_top(row, k, set()), found).mean() for found, row in pairs]))


def with_prior(world: World) -> World:
    return replace(world, corpus=replace(world.corpus, prior=learn(world.corpus, world.anchors)))


@pytest.mark.parametrize("anchors", [0, 1, FEWEST - 1])
def test_few_anchor_queries_leave_the_default_belief(anchors):
    world = make_world(anchors=anchors)
    prior, default = learn(world.corpus, world.anchors), default_prior(world.problem())
    assert prior.to_json() == default.to_json()
    assert prior.item_mean is None
    assert prior.residuals is None


def test_enough_anchor_queries_are_learned_from():
    world = make_world(anchors=FEWEST)
    prior = learn(world.corpus, world.anchors)
    assert prior.item_mean.shape == (300,)
    assert prior.residuals.shape == (300, FEWEST)
    assert set(prior.variances) == {"coefficients", "anchors", "vectors", "words", "terms"}
    assert min([*prior.variances.values(), prior.noise]) > 0


def test_learning_recovers_how_scores_depend_on_similarity():
    """Scores are 3 × standardised similarity + an item's own level + a little noise; words say nothing."""
    rng = np.random.default_rng(0)
    items, anchors, tests = 1000, 60, 10
    vectors = to_unit_length(rng.normal(size=(items, 8)))
    queries = to_unit_length(rng.normal(size=(anchors + tests, 8)))
    levels = 2.0 * rng.normal(size=items)
    scores = 3.0 * standardise(queries @ vectors.T) + levels + 0.1 * rng.normal(size=(anchors + tests, items)) - 9
    lexical = rng.normal(size=scores.shape).astype(np.float32)
    corpus = Corpus(items, vectors=vectors, anchor_scores=scores[:anchors])
    prior = learn(corpus, Queries(range(anchors), queries[:anchors], lexical[:anchors]))
    offset, line, bend, second_bend, *words = prior.coefficients
    assert line == pytest.approx(3.0, rel=0.1)
    np.testing.assert_allclose([offset, bend, second_bend, *words], 0.0, atol=0.3)
    assert np.corrcoef(prior.item_mean, levels)[0, 1] > 0.98

    test = Queries(range(tests), queries[anchors:], lexical[anchors:])
    problem = Problem(replace(corpus, prior=prior), test)
    fused = ranking(reciprocal_rank_fusion([problem.similarity, test.lexical]))[:, :50]
    first = search(problem, "crosscut", 50, scores[anchors:], rounds=1)
    assert recall(scored_positions(first), scores[anchors:], 20) > recall(fused, scores[anchors:], 20) + 0.3


def test_a_learned_prior_finds_more_than_reranking_and_than_adacur():
    world = with_prior(make_world(seed=1, items=600, anchors=40, queries=12))
    outcomes = {name: search(world.problem(), name, 60, world.scores) for name in ("rerank", "adacur", "crosscut")}
    found = {name: recall(scored_positions(outcome), world.scores, 30) for name, outcome in outcomes.items()}
    assert found["crosscut"] > found["rerank"] + 0.1
    assert found["crosscut"] > found["adacur"]


@pytest.mark.parametrize("seed", range(3))
def test_without_anchor_queries_it_finds_more_than_reranking_where_scores_are_linear_in_the_vectors(seed):
    """Each query weighs the vectors' directions in its own way, which similarity tells only in part."""
    rng = np.random.default_rng(seed)
    vectors = to_unit_length(rng.normal(size=(1000, 16)))
    queries = to_unit_length(rng.normal(size=(12, 16)))
    own_weights = queries + to_unit_length(rng.normal(size=(12, 16)))
    scores = own_weights @ vectors.T + 0.02 * rng.normal(size=(12, 1000))
    problem = Problem(Corpus(1000, vectors=vectors), Queries(range(12), queries))
    reranked, default = (search(problem, method, 100, scores) for method in ("rerank", "crosscut"))
    assert recall(scored_positions(default), scores, 20) > recall(scored_positions(reranked), scores, 20) + 0.2


def test_the_prior_survives_json():
    world = with_prior(make_world(items=150, anchors=15))
    prior = world.corpus.prior
    again = Prior.from_json(json.loads(json.dumps(prior.to_json())), prior.item_mean, prior.residuals)
    for corpus in (world.corpus, replace(world.corpus, prior=again)):
        outcome = search(replace(world, corpus=corpus).problem(), "crosscut", 50, world.scores)
        if corpus is world.corpus:
            expected = outcome
    np.testing.assert_array_equal(scored_positions(outcome), scored_positions(expected))
    assert again.to_json() == prior.to_json()


@pytest.mark.parametrize("anchors", [0, 5])
def test_level_and_unit_of_the_scores_do_not_matter_without_a_learned_prior(anchors):
    world = make_world(anchors=anchors)
    plain = search(world.problem(), "crosscut", 60, world.scores)
    shifted = search(world.problem(), "crosscut", 60, world.scores * 1000 + 5)
    np.testing.assert_array_equal(scored_positions(plain), scored_positions(shifted))


def test_a_learned_prior_knows_level_and_unit():
    world = make_world(items=150, anchors=15)
    corpus = replace(world.corpus, anchor_scores=world.corpus.anchor_scores * 1000 + 5)
    shifted = with_prior(replace(world, corpus=corpus, scores=world.scores * 1000 + 5))
    plain = search(with_prior(world).problem(), "crosscut", 60, world.scores)
    other = search(shifted.problem(), "crosscut", 60, shifted.scores)
    same = [np.isin(a, b).mean() for a, b in zip(*map(scored_positions, (plain, other)), strict=True)]
    assert min(same) > 0.9  # float32 decides near-ties


def objective(logs: np.ndarray, grams: np.ndarray, y: np.ndarray, start: np.ndarray) -> float:
    """Negative log marginal likelihood, less its constant, plus the penalty; one query at a time."""
    total = 0.5 * STEADINESS * np.sum((logs - np.log(start)) ** 2)
    for blocks, residuals in zip(grams, y, strict=True):
        covariance = np.exp(logs[-1]) * np.eye(len(residuals))
        for variance, gram in zip(np.exp(logs[:-1]), blocks, strict=True):
            covariance += variance * gram
        total += 0.5 * residuals @ np.linalg.solve(covariance, residuals)
        total += 0.5 * np.linalg.slogdet(covariance)[1]
    return float(total)


@pytest.mark.parametrize("seed", range(4))
def test_variances_maximise_the_marginal_likelihood(seed):
    """Against a search without gradients, and: at the optimum all finite differences vanish."""
    rng = np.random.default_rng(seed)
    queries, n, true = 60, 12, np.array([4.0, 0.25, 0.5])
    features = [rng.normal(size=(queries, n, width)) for width in (2, 5)]
    grams = np.stack([part @ part.transpose(0, 2, 1) for part in features], axis=1)
    y = true[-1] ** 0.5 * rng.normal(size=(queries, n))
    for variance, part in zip(true, features, strict=False):
        y += variance**0.5 * (part @ rng.normal(size=(queries, part.shape[2], 1)))[:, :, 0]
    start = np.array([1.0, 1.0, 1.0])
    found = np.log(_maximise(grams, y, start))
    brute = minimize(objective, np.zeros(3), (grams, y, start), method="Nelder-Mead", options={"xatol": 1e-5})
    np.testing.assert_allclose(found, brute.x, atol=0.01)
    steps = 1e-4 * np.eye(3)
    slopes = [
        (objective(found + step, grams, y, start) - objective(found - step, grams, y, start)) / 2e-4
        for step in steps
    ]
    np.testing.assert_allclose(slopes, 0.0, atol=0.05 * objective(found, grams, y, start) ** 0.5)
    assert (np.abs(found - np.log(true)) < np.abs(np.log(start) - np.log(true)))[:2].all()  # nearer to the truth


def test_signals_have_one_scale_and_the_basis_bends_them():
    world = make_world()
    there = signals(world.problem(), default_prior(world.problem()))
    assert len(there) == 2
    for signal in there:
        np.testing.assert_allclose(signal.mean(axis=1), 0.0, atol=1e-5)
        np.testing.assert_allclose(signal.std(axis=1), 1.0, atol=1e-5)
    rows = basis(there, (4, 300))
    assert rows.shape == (4, 7, 300)
    np.testing.assert_allclose(rows[:, 2], np.maximum(there[0] - 1.5, 0))
    np.testing.assert_allclose(rows[:, 6], np.maximum(there[1] - 3.0, 0))


@pytest.mark.parametrize("value", [0.1, 1 / 3, -7.3, 1e-20, 1e20])
@pytest.mark.parametrize("items", [1, 2, 3, 7, 1000, 4099])
def test_equal_scores_standardise_to_zero(value, items):
    """A rounding error of their mean must not be taken for a spread."""
    equal = np.full((2, items), value, np.float32)
    assert np.abs(standardise(equal)).max() < 1e-3


KINDS = ["usual", "equal scores", "identical items", "zero vectors", "no known word"]


def bleak_world(kind: str, items: int, anchors: int, seed: int = 0) -> World:
    rng = np.random.default_rng(seed)
    texts = [f"item {number} covers {number % 3}" for number in range(items)]
    if kind == "identical items":
        texts = [texts[0]] * items
    terms = BM25(texts)
    rows = anchors + 2
    vectors, queries = rng.normal(size=(items, 4)), rng.normal(size=(rows, 4))
    scores = rng.normal(size=(rows, items))
    if kind == "equal scores":
        scores = np.full_like(scores, -10.3)
    if kind == "identical items":
        vectors[:], scores[:] = vectors[0], scores[:, :1]
    if kind == "zero vectors":
        vectors, queries = np.zeros_like(vectors), np.zeros_like(queries)
    text = "zebra" if kind == "no known word" else "item covers 1"
    lexical = np.tile(terms.scores(text), (rows, 1))
    vectors, queries = to_unit_length(vectors), to_unit_length(queries)

    def part(start: int, stop: int) -> Queries:
        word_scores = [terms.term_scores(text) for _ in range(start, stop)]
        return Queries(range(start, stop), queries[start:stop], lexical[start:stop], word_scores)

    corpus = Corpus(
        items,
        vectors=vectors,
        words=terms.unit_rows(),
        anchor_scores=scores[:anchors] if anchors else None,
        anchor_vectors=queries[:anchors] if anchors else None,
        item_anchors=np.arange(min(2, items)),
        item_scores=rng.normal(size=(min(2, items), items)),
    )
    return World(corpus, part(0, anchors), part(anchors, rows), scores[anchors:])


@pytest.mark.parametrize("anchors", [0, 3, 20])
@pytest.mark.parametrize("items", [1, 2, 5, 60])
@pytest.mark.parametrize("kind", KINDS)
def test_bleak_corpora_have_an_answer(kind, items, anchors):
    world = bleak_world(kind, items, anchors)
    world = with_prior(world)
    for method in METHODS:
        if items == 1 and method in ("anncur", "itemcur", "fixeditem"):
            continue  # one item cannot be both an anchor and another
        if not anchors and method in ("anncur", "adacur"):
            continue
        outcome = search(world.problem(), method, 20, world.scores)
        positions, scores = outcome.best(3)
        assert positions.shape == (2, min(3, items))
        assert np.isfinite(scores).all()
        for scored in outcome.rounds:
            assert scored.estimates is None or np.isfinite(scored.estimates).all()


@pytest.mark.parametrize("there", [set(), {"vectors"}, {"lexical"}, {"vectors", "lexical"}, {"words"}])
@pytest.mark.parametrize("anchors", [0, 20])
def test_any_part_may_be_missing(there, anchors):
    world = make_world(items=80, anchors=anchors)
    corpus = replace(
        world.corpus,
        vectors=world.corpus.vectors if "vectors" in there else None,
        anchor_vectors=world.corpus.anchor_vectors if "vectors" in there else None,
        words=csr_matrix(world.corpus.words) if "words" in there else None,
    )

    def reduced(queries: Queries) -> Queries:
        vectors = queries.vectors if "vectors" in there else None
        return Queries(queries.keys, vectors, queries.lexical if "lexical" in there else None)

    corpus = replace(corpus, prior=learn(corpus, reduced(world.anchors)))
    outcome = search(Problem(corpus, reduced(world.queries)), "crosscut", 30, world.scores)
    assert scored_positions(outcome).shape == (4, 30)
    assert all(np.isfinite(scored.scores).all() for scored in outcome.rounds)
