"""The two plain ways: rerank what a first stage found, or score everything."""

from __future__ import annotations

import numpy as np

from crosscut.search.loop import Plan
from crosscut.search.problem import Problem


def rerank(problem: Problem, budget: int, *, first: str | None = None) -> Plan:
    """Score the first stage's top B: the usual practice, and the baseline to beat."""
    return Plan(first=problem.first_stage(first), sizes=[budget])


def exact(problem: Problem, budget: int) -> Plan:
    """Score every item, whatever the budget: the ground truth."""
    first = np.zeros((len(problem.queries), problem.corpus.size))
    return Plan(first=first, sizes=[problem.n_allowed])
