"""Pipelines: stages that hand on ever fewer items, such as `dense:512 > cmc:64 > cross:16`.

    dense, lexical, rrf    a first stage: the best of all items by encoder, by words, or by both fused
    cmc, poly, ...         a compare model of the index, by its name there: compares what came in, keeps the best
    cross                  the scorer: scores the best of what came in, and nothing else
    crosscut               the default search, with so many calls of the scorer, among what came in

The number is how many items a stage hands on. A compare model and `crosscut` may come first, and then have all
items before them. What a stage does not hand on is gone: all scores of a result come from its last stage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from re import fullmatch
from time import perf_counter

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.first_stage import top
from crosscut.search.default import crosscut
from crosscut.search.loop import Scored, ScorePairs, run
from crosscut.search.problem import Problem
from crosscut.types import Seconds, StageReport

FIRST = {"dense": "encoder", "lexical": "lexical", "rrf": "rrf"}  # a first stage, and what `first=` calls it
SCORERS = ("cross", "crosscut")
RESERVED = (*FIRST, *SCORERS)
MEANINGS = {
    "dense": "cosine of the encoder's vectors",
    "lexical": "lexical score",
    "rrf": "reciprocal-rank fusion of encoder and lexical score",
    "cross": "raw score of the scorer",
    "crosscut": "raw score of the scorer",
}

# Scores of a compare model: its name and the items (Q, n) of each query, to (Q, n).
Compare = Callable[[str, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Stage:
    """One stage: its name, and how many items it hands on. `>>` puts stages one after the other.

    >>> str(Stage("dense", 512) >> Stage("cmc", 64) >> Stage("cross", 16))
    'dense:512 > cmc:64 > cross:16'
    """

    name: str
    keep: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not fullmatch(r"[a-z][a-z0-9-]*", self.name):
            raise CrosscutError(f"{self.name!r} is not the name of a stage, such as dense, cmc or cross")
        if isinstance(self.keep, bool) or not isinstance(self.keep, int | np.integer) or self.keep < 1:
            raise CrosscutError(
                f"stage {self.name!r} must hand on a whole number of items, at least 1, but is told {self.keep!r}"
            )

    def __str__(self) -> str:
        return f"{self.name}:{self.keep}"

    def __rshift__(self, other: Stage | Pipeline) -> Pipeline:
        return Pipeline((self,)) >> other

    @property
    def meaning(self) -> str:
        """What its scores are."""
        return MEANINGS.get(self.name, f"raw score of the compare model {self.name}")


@dataclass(frozen=True)
class Pipeline:
    """Stages in order, checked: none asks for more than the one before gives, and only the first finds anew.

    >>> pipeline = Pipeline.parse("dense:512 > cmc:64>cross:16")
    >>> [stage.keep for stage in pipeline.stages], str(pipeline)
    ([512, 64, 16], 'dense:512 > cmc:64 > cross:16')
    """

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        given = self.stages if isinstance(self.stages, Iterable) else (self.stages,)
        object.__setattr__(self, "stages", tuple(given))
        for stage in self.stages:
            if not isinstance(stage, Stage):
                raise CrosscutError(f"a pipeline is made of stages such as Stage('dense', 512), not {stage!r}")
        if not self.stages:
            raise CrosscutError("a pipeline needs a stage, such as dense:100")
        if self.stages[0].name == "cross":
            raise CrosscutError(
                "'cross' scores what another stage has found: put one before it, as in "
                f"'dense:512 > {self.stages[0]}', or use 'crosscut:{self.stages[0].keep}' to search all items"
            )
        for before, stage in zip(self.stages, self.stages[1:], strict=False):
            if stage.name in FIRST:
                raise CrosscutError(
                    f"{stage.name!r} ranks all items, so it can only come first, but here it follows '{before}'"
                )
            if stage.keep > before.keep:
                raise CrosscutError(
                    f"a pipeline cannot widen: '{stage}' asks for {stage.keep} items, but '{before}' before it "
                    f"gives only {before.keep}"
                )
        names = [stage.name for stage in self.stages]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated or set(SCORERS) <= set(names):
            twice = f"{repeated[0]!r} comes twice" if repeated else "'cross' and 'crosscut' are the same scorer"
            raise CrosscutError(f"{twice} in this pipeline, and has nothing to say the second time: leave one out")

    @classmethod
    def parse(cls, text: str) -> Pipeline:
        """The pipeline that a text describes: NAME:NUMBER, with `>` between stages.

        >>> Pipeline.parse("dense:64 > cross:100")
        Traceback (most recent call last):
        crosscut.errors.CrosscutError: a pipeline cannot widen: 'cross:100' asks for 100 items, but 'dense:64' ...
        """
        if not isinstance(text, str):
            raise CrosscutError(f"a pipeline is a text such as 'dense:512 > cross:16', not {text!r}")
        return cls(tuple(_parse_stage(part.strip(), text) for part in text.split(">")))

    def __str__(self) -> str:
        return " > ".join(map(str, self.stages))

    @property
    def needs_scorer(self) -> bool:
        """Whether a stage calls the scorer."""
        return any(stage.name in SCORERS for stage in self.stages)

    def __rshift__(self, other: Stage | Pipeline) -> Pipeline:
        return Pipeline((*self.stages, *(other.stages if isinstance(other, Pipeline) else (other,))))

    def check(self, compare: Collection[str], *, encoder: bool, lexical: bool) -> None:
        """See that an index with these compare models, an encoder and words or not, has what the stages need.

        >>> Pipeline.parse("dense:64 > cmc:8").check(["poly"], encoder=True, lexical=True)
        Traceback (most recent call last):
        crosscut.errors.CrosscutError: unknown stage 'cmc': the index has no compare model of that name; ...
        """
        lacking = []
        for stage in self.stages:
            if stage.name not in RESERVED and stage.name not in compare:
                known = ", ".join([*RESERVED, *compare])
                lacking.append(
                    f"unknown stage {stage.name!r}: the index has no compare model of that name; "
                    f"the stages are {known}"
                )
            for what, there in (("encoder", encoder), ("lexical", lexical)):
                if not there and FIRST.get(stage.name) in (what, "rrf"):
                    lacking.append(f"stage {stage.name!r} is not possible: the index has no {what} scores")
        if lacking:
            raise CrosscutError("; ".join(lacking))


def _parse_stage(part: str, text: str) -> Stage:
    name, _, number = (piece.strip() for piece in part.partition(":"))
    if not fullmatch(r"[a-z][a-z0-9-]*", name) or not fullmatch(r"[0-9]{1,12}", number):
        shown = text if len(text) <= 80 else text[:79] + "…"
        raise CrosscutError(
            f"{part[:40]!r} is not a stage: write NAME:NUMBER, with > between stages, as in "
            f"'dense:512 > cmc:64 > cross:16' (the pipeline is {shown!r})"
        )
    return Stage(name, int(number))


@dataclass
class PipelineOutcome:
    """What the last stage handed on, best first, (Q, n); the scorer's rounds; and a report for each stage."""

    positions: np.ndarray
    scores: np.ndarray
    rounds: list[Scored] = field(default_factory=list)
    reports: list[StageReport] = field(default_factory=list)
    seconds: Seconds = field(default_factory=lambda: Seconds(0.0, 0.0, 0.0))


def run_pipeline(
    problem: Problem, pipeline: Pipeline, compare: Compare, score_pairs: ScorePairs
) -> PipelineOutcome:
    """Carry out a pipeline for a batch of queries; seconds are those of the whole batch.

    >>> from crosscut.search.problem import Corpus, Queries
    >>> problem = Problem(Corpus(4), Queries([0], lexical=np.array([[0.1, 0.9, 0.5, 0.4]])))
    >>> pipeline = Pipeline.parse("lexical:3 > cross:2")
    >>> outcome = run_pipeline(problem, pipeline, lambda name, items: items, lambda queries, items: items * 1.0)
    >>> outcome.positions.tolist(), [(report.items_in, report.items_out) for report in outcome.reports]
    ([[2, 1]], [(4, 3), (3, 2)])
    """
    state = _Run(problem, compare, score_pairs)
    for stage in pipeline.stages:
        state.take(stage)
    assert state.positions is not None
    return PipelineOutcome(state.positions, state.scores, state.rounds, state.reports, state.seconds)


class _Run:
    """A pipeline at work: `positions` (Q, n) are what the last stage handed on, None before the first."""

    def __init__(self, problem: Problem, compare: Compare, score_pairs: ScorePairs) -> None:
        self.problem, self.compare, self.score_pairs = problem, compare, score_pairs
        self.positions: np.ndarray | None = None
        self.scores = np.empty((len(problem.queries), 0))
        self.rounds: list[Scored] = []
        self.reports: list[StageReport] = []
        self.seconds = Seconds(0.0, 0.0, 0.0)

    def take(self, stage: Stage) -> None:
        start, before, done = perf_counter(), self.items, len(self.rounds)
        within = self.seconds.total
        keep = min(stage.keep, before)
        if stage.name in FIRST:
            self._first(FIRST[stage.name], keep)
        elif stage.name == "cross":
            self._cross(keep)
        elif stage.name == "crosscut":
            self._crosscut(keep)
        else:
            pool = self.pool()
            self._keep(pool, self.compare(stage.name, pool), keep)
        calls = sum(one.positions.shape[1] for one in self.rounds[done:])
        took = perf_counter() - start
        rest = took - (self.seconds.total - within)
        self.seconds = replace(self.seconds, selecting=self.seconds.selecting + rest)
        self.reports.append(StageReport(stage.name, before, self.items, calls, took, stage.meaning))

    @property
    def items(self) -> int:
        return self.problem.n_allowed if self.positions is None else self.positions.shape[1]

    def pool(self) -> np.ndarray:
        """What came in, (Q, n)."""
        if self.positions is not None:
            return self.positions
        allowed = self.problem.allowed
        all_items = np.arange(self.problem.corpus.size) if allowed is None else np.flatnonzero(allowed)
        return np.broadcast_to(all_items, (len(self.problem.queries), len(all_items)))

    def _first(self, name: str, keep: int) -> None:
        values = self.problem.first_stage(name)
        if self.problem.allowed is not None:
            values = np.where(self.problem.allowed, values, -np.inf)
        self.positions = top(values, keep)
        self.scores = np.take_along_axis(values, self.positions, axis=1)

    def _cross(self, keep: int) -> None:
        pool = self.pool()[:, :keep]  # the best by the stage before
        queries = np.repeat(np.arange(len(pool)), keep)
        start = perf_counter()
        scores = np.asarray(self.score_pairs(queries, pool.ravel()), np.float64).reshape(pool.shape)
        self.seconds = replace(self.seconds, scoring=self.seconds.scoring + perf_counter() - start)
        self.rounds.append(Scored(pool, None, scores))
        self._keep(pool, scores, keep)

    def _crosscut(self, budget: int) -> None:
        problem = self.problem
        if self.positions is not None:
            allowed = np.zeros((len(problem.queries), problem.corpus.size), bool)
            np.put_along_axis(allowed, self.positions, True, axis=1)
            problem = replace(problem, allowed=allowed)
        outcome = run(problem, crosscut(problem, budget), self.score_pairs)
        self.rounds += outcome.rounds
        self.seconds = _sum(self.seconds, outcome.seconds)
        self.positions, self.scores = outcome.best(budget)

    def _keep(self, pool: np.ndarray, scores: np.ndarray, keep: int) -> None:
        """The best, by score; of equal ones the lower position."""
        all_items = self.positions is None  # in order of their positions: no need to sort them all
        order = top(scores, keep) if all_items else np.lexsort((pool, -scores), axis=1)[:, :keep]
        self.positions = np.take_along_axis(pool, order, axis=1)
        self.scores = np.take_along_axis(scores, order, axis=1)


def _sum(one: Seconds, other: Seconds) -> Seconds:
    return Seconds(*(a + b for a, b in zip(_values(one), _values(other), strict=True)))


def _values(seconds: Seconds) -> Sequence[float]:
    return (seconds.scoring, seconds.fitting, seconds.selecting)
