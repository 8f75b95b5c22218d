"""The default: Bayesian regression on everything that is known of the items, in adaptive rounds."""

from __future__ import annotations

import numpy as np

from crosscut.first_stage import reciprocal_rank_fusion
from crosscut.search.estimator import Estimator
from crosscut.search.loop import Plan, split_evenly
from crosscut.search.prior import anchor_weights, basis, default_prior, make_blocks, nearness, raw_signals, signals
from crosscut.search.problem import Problem

SMALLEST_BATCH = 5
MOST_ROUNDS = 40


def crosscut(
    problem: Problem,
    budget: int,
    *,
    rounds: int | None = None,
    first: str | None = None,
    selection: str = "topk",
) -> Plan:
    """Like ADACUR, but with a prior that is learned from the anchor queries, and more to go by.

    rounds: of equal size if given; else a fifth of the budget first, then up to 40 rounds of at least 5 items.
    first: what picks the first batch; unless given, the scores that the prior expects, fused with the plain
    first stages, so that what a plain retriever puts first is always looked at. selection: how the other
    batches are picked, as in ADACUR.
    """
    prior = problem.corpus.prior or default_prior(problem)
    rows = basis(signals(problem, prior), (len(problem.queries), problem.corpus.size))
    expected = np.einsum("t,qtn->qn", prior.coefficients.astype(np.float32), rows)
    if prior.item_mean is not None:
        expected += prior.item_mean
    weights = None
    if problem.queries.vectors is not None and problem.corpus.anchor_vectors is not None:
        weights = anchor_weights(nearness(problem.queries.vectors, problem.corpus.anchor_vectors))
    fit = Estimator(
        len(problem.queries),
        list(make_blocks(problem, prior, rows, weights).values()),
        mean=None if prior.item_mean is None else expected,
        noise=prior.noise,
        capacity=budget,
    )
    plain = list(raw_signals(problem).values())
    if first is None and (plain or prior.item_mean is not None):
        order = reciprocal_rank_fusion([expected, *plain])
    else:
        order = problem.first_stage(first)
    return Plan(
        first=order,
        sizes=_sizes(budget) if rounds is None else split_evenly(budget, rounds),
        fit=fit,
        selection=selection,
        expected=None if prior.item_mean is None else expected,
    )


def _sizes(budget: int) -> list[int]:
    """
    >>> _sizes(20), _sizes(2), len(_sizes(1000))
    ([5, 5, 5, 5], [2], 41)
    """
    first = min(budget, max(SMALLEST_BATCH, budget // 5))
    rest = budget - first
    rounds = min(MOST_ROUNDS, rest // SMALLEST_BATCH or 1)
    return [first, *split_evenly(rest, min(rounds, rest))] if rest else [first]
