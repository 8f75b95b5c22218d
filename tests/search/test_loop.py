"""What holds for every method: what is paid for, what comes out first, and what randomness may change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook import make_world, scored_positions, search, slow_top

from crosscut.errors import CrosscutError
from crosscut.search import METHODS, make_plan, settings_of
from crosscut.search.learn import learn
from crosscut.search.loop import Plan, run, split_evenly
from crosscut.search.problem import Corpus, Problem, Queries, batches

pytestmark = pytest.mark.filterwarnings("error")

CASES = [(name, {}) for name in METHODS]
CASES += [("rerank", {"first": "random"})]
CASES += [
    (name, {"first": "random", "selection": selection})
    for name in ("adacur", "crosscut")
    for selection in ("topk", "softmax", "random")
]


@pytest.fixture(scope="module")
def world():
    made = make_world()
    return replace(made, corpus=replace(made.corpus, prior=learn(made.corpus, made.anchors)))


@pytest.mark.parametrize("budget", [2, 37, 300, 5000])
@pytest.mark.parametrize(("method", "keys"), CASES)
def test_every_call_of_the_budget_is_spent_once(world, method, keys, budget):
    paid: list[tuple[int, int]] = []
    outcome = search(world.problem(), method, budget, world.scores, paid, **keys)
    calls = 300 if method == "exact" else min(budget, 300)
    assert scored_positions(outcome).shape == (4, calls)
    assert len(paid) == len(set(paid)) == 4 * calls


@pytest.mark.parametrize(("method", "keys"), [case for case in CASES if case[0] != "fixeditem"])
def test_a_filter_is_kept_and_limits_the_calls(world, method, keys):
    allowed = np.zeros(300, bool)
    allowed[5:300:7] = True
    for budget in (20, 100):
        outcome = search(world.problem(allowed=allowed), method, budget, world.scores, **keys)
        positions = scored_positions(outcome)
        assert allowed[positions].all()
        assert positions.shape[1] == (allowed.sum() if method == "exact" else min(budget, allowed.sum()))


def test_a_filter_that_leaves_less_than_the_rounds_asked_for(world):
    allowed = np.arange(300) < 3
    for method in ("adacur", "crosscut"):
        outcome = search(world.problem(allowed=allowed), method, 100, world.scores, rounds=10)
        assert [sorted(row) for row in scored_positions(outcome).tolist()] == [[0, 1, 2]] * 4


@pytest.mark.parametrize(("method", "keys"), CASES)
def test_a_query_alone_finds_what_it_finds_in_a_batch(world, method, keys):
    together = search(world.problem(seed=3), method, 40, world.scores, **keys)
    for query in range(4):
        row = slice(query, query + 1)
        alone = search(world.problem(row, seed=3), method, 40, world.scores[row], **keys)
        np.testing.assert_array_equal(scored_positions(alone)[0], scored_positions(together)[query])
        np.testing.assert_array_equal(alone.best(10)[1][0], together.best(10)[1][query])


@pytest.mark.parametrize(("method", "keys"), CASES)
def test_the_same_seed_gives_the_same_and_another_seed_another_draw(world, method, keys):
    def positions(seed):
        return scored_positions(search(world.problem(seed=seed), method, 40, world.scores, **keys))

    np.testing.assert_array_equal(positions(1), positions(1))
    draws = method in ("anncur", "itemcur") or "random" in keys.values()
    assert (positions(1) != positions(2)).any() == draws


@given(
    scores=st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=12),
    k=st.integers(1, 15),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
@settings(deadline=None, derandomize=True)
def test_the_best_come_first_and_ties_go_to_the_lower_position(scores, k, sizes):
    f = np.array(scores)
    sizes = split_evenly(len(f), min(len(sizes), len(f)))
    first = np.random.default_rng(0).random((1, len(f)))
    outcome = run(Problem(Corpus(len(f)), Queries([0])), Plan(first, sizes), lambda _, items: f[items])
    positions, found = outcome.best(k)
    assert positions[0].tolist() == slow_top(f, k, set())
    assert found[0].tolist() == f[positions[0]].tolist()


def test_equal_estimates_choose_the_lower_position():
    anchor_scores = np.ones((1, 8))
    problem = Problem(Corpus(8, anchor_scores=anchor_scores), Queries([0], lexical=np.eye(8)[[6]]))
    outcome = search(problem, "adacur", 4, np.ones((1, 8)), rounds=2, first="lexical")
    assert [scored.positions[0].tolist() for scored in outcome.rounds] == [[6, 0], [1, 2]]


def test_every_round_asks_for_all_queries_at_once(world):
    asked = []

    def score_pairs(queries, items):
        asked.append(queries.tolist())
        return world.scores[queries, items]

    problem = world.problem()
    outcome = run(problem, make_plan("adacur", problem, 20, rounds=4), score_pairs)
    assert asked == [sorted([0, 1, 2, 3] * 5)] * 4
    assert outcome.seconds.total > 0


def test_estimates_are_there_wherever_something_was_expected(world):
    outcome = search(world.problem(), "crosscut", 20, world.scores, rounds=2)
    assert all(np.isfinite(scored.estimates).all() for scored in outcome.rounds)
    outcome = search(world.problem(), "adacur", 20, world.scores, rounds=2)
    assert outcome.rounds[0].estimates is None


@given(budget=st.integers(1, 60), rounds=st.integers(1, 60))
@settings(deadline=None, derandomize=True)
def test_rounds_share_the_budget_evenly(budget, rounds):
    if rounds > budget:
        with pytest.raises(CrosscutError, match="cannot be spent"):
            split_evenly(budget, rounds)
        return
    sizes = split_evenly(budget, rounds)
    assert sum(sizes) == budget
    assert len(sizes) == rounds
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(queries=st.integers(0, 20), items=st.integers(1, 50), memory=st.integers(1, 20_000))
@settings(deadline=None, derandomize=True)
def test_batches_cover_all_queries_in_order(queries, items, memory):
    covered = [row for batch in batches(queries, items, memory) for row in range(queries)[batch]]
    assert covered == list(range(queries))


def test_settings_of_every_method_are_known_by_name():
    assert settings_of("adacur") == settings_of("crosscut") == ["rounds", "first", "selection"]
    assert settings_of("anncur") == ["anchor_share"]
    assert settings_of("exact") == []
