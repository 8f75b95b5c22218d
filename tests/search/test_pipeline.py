"""Pipelines: what they are written as, what is refused, and what each stage hands on."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textbook import make_world

from crosscut.errors import CrosscutError
from crosscut.search.pipeline import RESERVED, Pipeline, Stage, run_pipeline
from crosscut.search.problem import Corpus, Problem, Queries

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True).filter(lambda name: name not in RESERVED)


@st.composite
def pipelines(draw):
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    names = [*draw(st.sampled_from([[], ["dense"], ["lexical"], ["rrf"]])), *names]
    names += draw(st.sampled_from([[], ["cross"], ["crosscut"]])) if names else ["crosscut"]
    keeps = sorted(draw(st.lists(st.integers(1, 10**6), min_size=len(names), max_size=len(names))), reverse=True)
    return Pipeline(tuple(map(Stage, names, keeps)))


@given(pipelines())
def test_the_text_of_a_pipeline_is_that_pipeline(pipeline):
    assert Pipeline.parse(str(pipeline)) == pipeline
    assert Pipeline.parse(str(pipeline).replace(" ", "")) == pipeline


@given(st.text(max_size=30))
def test_any_text_is_a_pipeline_or_a_clear_error(text):
    with suppress(CrosscutError):
        assert Pipeline.parse(text).stages


def test_stages_compose():
    pipeline = Stage("dense", 512) >> Stage("cmc", 64) >> Stage("cross", 16)
    assert pipeline == Pipeline.parse("dense:512 > cmc:64 > cross:16")
    assert str(pipeline) == "dense:512 > cmc:64 > cross:16"
    assert Stage("dense", 512) >> (Stage("cmc", 64) >> Stage("cross", 16)) == pipeline
    assert Pipeline(Stage("dense", 5)) == Pipeline.parse("dense:5")
    assert {pipeline: 1}[Pipeline([Stage("dense", 512), Stage("cmc", 64), Stage("cross", 16)])]


@pytest.mark.parametrize("stages", ["dense:5", ("dense:5", "cross:3"), (Stage("dense", 5), 3), None])
def test_a_pipeline_is_made_of_stages(stages):
    with pytest.raises(CrosscutError, match=r"made of stages such as Stage\('dense', 512\)"):
        Pipeline(stages)
    with pytest.raises(CrosscutError, match="made of stages"):
        Stage("dense", 9) >> stages


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dense:64 > cmc:65", "cannot widen: 'cmc:65' asks for 65 items, but 'dense:64' before it gives only 64"),
        ("dense:64 > cmc:8 > cross:9", "cannot widen: 'cross:9' asks for 9 items"),
        ("cmc:64 > dense:8", "'dense' ranks all items, so it can only come first"),
        ("dense:64 > rrf:8", "'rrf' ranks all items"),
        ("cross:16", "'cross' scores what another stage has found.*'crosscut:16'"),
        ("cross:16 > cmc:8", "'cross' scores what another stage has found"),
        ("dense:64 > cmc:8 > cmc:4", "'cmc' comes twice"),
        ("dense:64 > crosscut:8 > cross:4", "the same scorer"),
        ("dense:0", "'dense' must hand on .* at least 1, but is told 0"),
        ("", "'' is not a stage: write NAME:NUMBER"),
        (" > ", "'' is not a stage"),
        ("dense", "'dense' is not a stage"),
        ("dense:64 >", "'' is not a stage"),
        ("dense:64 cross:8", "is not a stage"),
        ("dense:-4", "'dense:-4' is not a stage"),
        ("dense:many", "'dense:many' is not a stage"),
        ("dense:1e3", "is not a stage"),
        ("dense:٣", "is not a stage"),
        ("dense:" + "9" * 50, "is not a stage"),
        ("Dense:64", "'Dense:64' is not a stage"),
        ("dense:64 -> cross:8", "is not a stage"),
        ("dense:64:8", "is not a stage"),
        ("../x:64", "is not a stage"),
        (None, "a pipeline is a text"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(CrosscutError, match=message):
        Pipeline.parse(text)


@pytest.mark.parametrize("keep", [0, -1, 1.5, True, "8", None])
def test_a_stage_hands_on_a_number_of_items(keep):
    with pytest.raises(CrosscutError, match="a whole number of items, at least 1"):
        Stage("dense", keep)


def test_no_stage_at_all():
    with pytest.raises(CrosscutError, match="a pipeline needs a stage"):
        Pipeline(())


def test_what_an_index_lacks_is_told_at_once():
    with pytest.raises(CrosscutError) as caught:
        Pipeline.parse("rrf:64 > cmc:32 > poly:16").check(["bi"], encoder=False, lexical=True)
    message = str(caught.value)
    assert "stage 'rrf' is not possible: the index has no encoder scores" in message
    assert "unknown stage 'cmc'" in message and "unknown stage 'poly'" in message
    assert "the stages are dense, lexical, rrf, cross, crosscut, bi" in message
    Pipeline.parse("lexical:64 > bi:32 > cross:16").check(["bi"], encoder=False, lexical=True)
    with pytest.raises(CrosscutError, match="'lexical' is not possible"):
        Pipeline.parse("lexical:64").check([], encoder=True, lexical=False)


class Bench:
    """A batch of queries over random scores, which every model looks up; keeps what was asked."""

    def __init__(self, seed: int, items: int = 40, queries: int = 3, allowed: np.ndarray | None = None) -> None:
        rng = np.random.default_rng(seed)
        shape = (queries, items)
        # Few different values, so that there are ties everywhere.
        self.lexical, self.cmc, self.scorer = (rng.integers(0, 6, shape).astype(np.float32) for _ in range(3))
        self.problem = Problem(Corpus(items), Queries(range(queries), lexical=self.lexical), allowed)
        self.compared: list[np.ndarray] = []
        self.asked: list[tuple[int, int]] = []

    def compare(self, name: str, items: np.ndarray) -> np.ndarray:
        assert name == "cmc"
        self.compared.append(items)
        return np.take_along_axis(self.cmc, items, axis=1)

    def score(self, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
        self.asked += zip(queries.tolist(), items.tolist(), strict=True)
        return self.scorer[queries, items]

    def run(self, text: str):
        return run_pipeline(self.problem, Pipeline.parse(text), self.compare, self.score)


def best(scores: np.ndarray, pool: list[int], keep: int) -> list[int]:
    """By a plain sort: higher score first, then lower position."""
    return sorted(pool, key=lambda item: (-scores[item], item))[:keep]


@given(
    seed=st.integers(0, 10**6),
    keeps=st.lists(st.integers(1, 50), min_size=3, max_size=3).map(lambda keeps: sorted(keeps, reverse=True)),
    share=st.floats(0.05, 1.0),
)
def test_each_stage_hands_on_the_best_of_what_came_in(seed, keeps, share):
    allowed = np.random.default_rng(seed).random(40) < share
    allowed[seed % 40] = True
    bench = Bench(seed, allowed=allowed)
    outcome = bench.run("lexical:{} > cmc:{} > cross:{}".format(*keeps))
    for query in range(3):
        pool = best(bench.lexical[query], np.flatnonzero(allowed).tolist(), keeps[0])
        assert sorted(pool) == sorted(bench.compared[0][query])
        pool = best(bench.cmc[query], pool, keeps[1])[: keeps[2]]
        assert [item for asked, item in bench.asked if asked == query] == pool
        assert outcome.positions[query].tolist() == best(bench.scorer[query], pool, keeps[2])
        np.testing.assert_array_equal(outcome.scores[query], bench.scorer[query, outcome.positions[query]])
    counts = [min(keep, int(allowed.sum())) for keep in (40, *keeps)]
    assert [(r.items_in, r.items_out) for r in outcome.reports] == list(pairwise(counts))
    assert [r.calls for r in outcome.reports] == [0, 0, counts[3]]
    assert all(report.seconds >= 0 for report in outcome.reports)
    assert outcome.seconds.total == pytest.approx(sum(report.seconds for report in outcome.reports))


def test_what_the_scores_of_a_stage_are():
    reports = Bench(0).run("lexical:9 > cmc:5 > cross:2").reports
    assert [report.scores for report in reports] == [
        "lexical score",
        "raw score of the compare model cmc",
        "raw score of the scorer",
    ]


def test_a_compare_model_that_comes_first_compares_everything():
    allowed = np.arange(40) % 3 > 0
    bench = Bench(1, allowed=allowed)
    outcome = bench.run("cmc:5")
    assert bench.compared[0].tolist() == [np.flatnonzero(allowed).tolist()] * 3
    assert not bench.asked and not outcome.rounds
    for query in range(3):
        assert outcome.positions[query].tolist() == best(bench.cmc[query], np.flatnonzero(allowed).tolist(), 5)


def test_the_last_stage_may_be_any():
    assert Bench(2).run("lexical:7").positions.shape == (3, 7)
    outcome = Bench(2).run("lexical:40 > cross:40")
    assert outcome.positions.shape == (3, 40)


def test_the_default_search_among_what_came_in():
    world = make_world(items=300, anchors=0, queries=5)
    problem = world.problem()
    asked: list[set[int]] = [set() for _ in range(5)]

    def score(queries, items):
        for query, item in zip(queries, items, strict=True):
            assert item not in asked[query]
            asked[query].add(int(item))
        return world.scores[queries, items]

    outcome = run_pipeline(problem, Pipeline.parse("dense:100 > crosscut:30"), lambda name, items: items, score)
    similar = np.argsort(-problem.similarity, axis=1, kind="stable")[:, :100]
    for query in range(5):
        assert len(asked[query]) == 30 and asked[query] <= set(similar[query].tolist())
        expected = best(world.scores[query], sorted(asked[query]), 30)
        assert outcome.positions[query].tolist() == expected
    assert len(outcome.rounds) > 1 and outcome.reports[1].calls == 30
    alone = run_pipeline(
        problem, Pipeline.parse("crosscut:30"), lambda name, items: items, lambda q, i: world.scores[q, i]
    )
    assert alone.reports[0].items_in == 300 and alone.positions.shape == (5, 30)
