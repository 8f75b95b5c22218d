"""The default: Bayesian regression on everything that is known of the items, in adaptive rounds."""

from __future__ import annotations

import numpy as np

from crosscut.search.estimator import Estimator
from crosscut.search.loop import Plan, split_evenly
from crosscut.search.prior import anchor_weights, basis, default_prior, make_blocks, nearness, signals
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

    rounds: 40, or as many as leave each round 5 items; fewer make larger batches for the model. first: what picks the first batch; unless given, the
    scores that the prior expects. selection: how the others are picked, as in ADACUR.
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
    if rounds is None:
        rounds = min(MOST_ROUNDS, max(1, budget // SMALLEST_BATCH))
    return Plan(
        first=expected if first is None else problem.first_stage(first),
        sizes=split_evenly(budget, rounds),
        fit=fit,
        selection=selection,
        first_estimates=first is None and prior.item_mean is not None,
    )
