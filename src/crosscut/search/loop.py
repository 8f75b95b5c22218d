"""The one search loop: choose a batch, score it, refit, choose the next, until the budget is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.first_stage import top
from crosscut.search.problem import Problem
from crosscut.types import Seconds

# Scores of pairs: (n,) rows of the query batch and (n,) item positions, to (n,) raw scores.
ScorePairs = Callable[[np.ndarray, np.ndarray], np.ndarray]

SELECTIONS = ("topk", "softmax", "random")


class Fit(Protocol):
    """What turns scored items into estimates for all; see `estimator.py`."""

    def add(self, positions: np.ndarray, scores: np.ndarray) -> None: ...

    def estimate(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Plan:
    """A method, made ready for one batch of queries: everything in which methods differ.

    `first` (Q, N) ranks the items for the first batch; `expected` (Q, N) are the scores expected before any is
    known, if there is anything to expect. `sizes` are the items per query in each round. Without `fit` the
    first ranking serves to the end. `selection` chooses later batches: SAMPLEITEMS of ADACUR's Algorithm 2.
    """

    first: np.ndarray
    sizes: Sequence[int]
    fit: Fit | None = None
    selection: str = "topk"
    expected: np.ndarray | None = None


@dataclass(frozen=True)
class Scored:
    """One round of a whole batch: positions, estimates (None if there were none) and scores, each (Q, b)."""

    positions: np.ndarray
    estimates: np.ndarray | None
    scores: np.ndarray


@dataclass
class Outcome:
    """All that a search has scored, round by round, and where its time went."""

    rounds: list[Scored] = field(default_factory=list)
    seconds: Seconds = field(default_factory=lambda: Seconds(0.0, 0.0, 0.0))

    def best(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions and scores (Q, k) of the best scored items; ties go to the lower position."""
        positions = np.concatenate([scored.positions for scored in self.rounds], axis=1)
        scores = np.concatenate([scored.scores for scored in self.rounds], axis=1)
        order = np.lexsort((positions, -scores), axis=1)[:, :k]
        return np.take_along_axis(positions, order, axis=1), np.take_along_axis(scores, order, axis=1)


def run(problem: Problem, plan: Plan, score_pairs: ScorePairs) -> Outcome:
    """Carry out a plan. Every round scores the batches of all queries in one call of `score_pairs`.

    >>> from crosscut.search.problem import Corpus, Queries
    >>> problem = Problem(Corpus(4), Queries([0]))
    >>> plan = Plan(first=np.array([[0.1, 0.9, 0.5, 0.4]]), sizes=[2])
    >>> outcome = run(problem, plan, lambda queries, items: items * 1.0)
    >>> outcome.best(2)[0].tolist()
    [[2, 1]]
    """
    outcome = Outcome()
    scoring = fitting = selecting = 0.0
    closed = np.zeros((len(problem.queries), problem.corpus.size), bool)
    if problem.allowed is not None:
        closed |= ~problem.allowed
    values, estimates = plan.first, plan.expected
    for number, size in enumerate(plan.sizes):
        start = perf_counter()
        if number and plan.fit is not None:
            values = estimates = plan.fit.estimate()
        fitted = perf_counter()
        positions = _choose(problem, values, closed, size, plan.selection if number else "topk")
        np.put_along_axis(closed, positions, True, axis=1)
        chosen = perf_counter()
        scores = _score(problem, positions, score_pairs)
        scored = perf_counter()
        if plan.fit is not None and number + 1 < len(plan.sizes):
            plan.fit.add(positions, scores)
        guessed = None if estimates is None else np.take_along_axis(estimates, positions, axis=1)
        outcome.rounds.append(Scored(positions, guessed, scores))
        fitting += (fitted - start) + (perf_counter() - scored)
        selecting += chosen - fitted
        scoring += scored - chosen
    outcome.seconds = Seconds(scoring, fitting, selecting)
    return outcome


def split_evenly(budget: int, rounds: int) -> list[int]:
    """Batch sizes of `rounds` rounds that spend the budget, the larger ones first.

    >>> split_evenly(10, 4)
    [3, 3, 2, 2]
    """
    if budget < rounds:
        raise CrosscutError(
            f"a budget of {budget} calls cannot be spent in {rounds} rounds: lower rounds, or raise the budget"
        )
    share, rest = divmod(budget, rounds)
    return [share + 1] * rest + [share] * (rounds - rest)


def _choose(problem: Problem, values: np.ndarray, closed: np.ndarray, size: int, selection: str) -> np.ndarray:
    if selection == "softmax":
        # The top of values plus Gumbel noise is a sample without replacement from their softmax.
        noise = [generator.gumbel(size=problem.corpus.size) for generator in problem.generators]
        values = values + np.stack(noise)
    elif selection == "random":
        values = problem.random()
    return top(np.where(closed, -np.inf, values), size)


def _score(problem: Problem, positions: np.ndarray, score_pairs: ScorePairs) -> np.ndarray:
    queries = np.repeat(np.arange(len(positions)), positions.shape[1])
    return np.asarray(score_pairs(queries, positions.ravel()), np.float64).reshape(positions.shape)
