"""Search: one estimator, one loop, and each method as a short configuration of both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from crosscut.errors import CrosscutError
from crosscut.search.adacur import adacur
from crosscut.search.anncur import anncur, fixeditem, itemcur
from crosscut.search.default import crosscut
from crosscut.search.loop import SELECTIONS, Plan
from crosscut.search.pipeline import Pipeline, Stage
from crosscut.search.problem import FIRST_STAGES, Problem
from crosscut.search.rerank import exact, rerank

__all__ = ["DEFAULT_METHOD", "METHODS", "Pipeline", "Stage", "make_plan", "settings_of"]

METHODS: dict[str, Callable[..., Plan]] = {
    "exact": exact,
    "rerank": rerank,
    "anncur": anncur,
    "adacur": adacur,
    "itemcur": itemcur,
    "fixeditem": fixeditem,
    "crosscut": crosscut,
}
DEFAULT_METHOD = "crosscut"


def settings_of(method: str) -> list[str]:
    """The settings that a method knows.

    >>> settings_of("rerank")
    ['first']
    """
    if not isinstance(method, str) or method not in METHODS:
        raise CrosscutError(f"unknown method {method!r}: choose from {', '.join(METHODS)}")
    return list(inspect.signature(METHODS[method]).parameters)[2:]


def make_plan(method: str, problem: Problem, budget: int, **settings: Any) -> Plan:
    """The plan of a method for a batch of queries; a setting that is None counts as not given."""
    known = settings_of(method)
    given = {name: value for name, value in settings.items() if value is not None}
    for name in given:
        if name not in known:
            raise CrosscutError(
                f"method {method!r} has no setting {name!r}; it knows: {', '.join(known) or 'none'}"
            )
    _check(given, (*FIRST_STAGES, *problem.queries.compare))
    if budget > problem.n_allowed:  # to have few items is no mistake: they get as many rounds as they fill
        budget = problem.n_allowed
        if "rounds" in given:
            given["rounds"] = min(given["rounds"], budget)
    return METHODS[method](problem, budget, **given)


def _check(settings: dict[str, Any], first_stages: Sequence[str]) -> None:
    """Refuse what makes no sense before anything is paid for."""
    rounds, share = settings.get("rounds", 1), settings.get("anchor_share", 0.5)
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise CrosscutError(f"rounds must be a whole number of at least 1, but is {rounds!r}")
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise CrosscutError(f"anchor_share must lie between 0 and 1, but is {share!r}")
    for name, choices in (("selection", SELECTIONS), ("first", first_stages)):
        if settings.get(name, choices[0]) not in choices:
            kind = name if name == "selection" else "first stage"
            raise CrosscutError(f"unknown {kind} {settings[name]!r}: choose from {', '.join(choices)}")
