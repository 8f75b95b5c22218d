"""Run files against judgements, by ir-measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crosscut.errors import CrosscutError


@dataclass(frozen=True)
class Evaluation:
    """Measures by name: of each judged query, and their mean. `missing` queries are not in the run."""

    mean: dict[str, float]
    per_query: dict[str, dict[str, float]]
    missing: list[str]


def evaluate_run(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]], measures: Sequence[str]
) -> Evaluation:
    """Measure a run on the judged queries; one that the run misses counts as 0.

    >>> evaluation = evaluate_run({"q1": {"a": 2.0, "b": 1.0}}, {"q1": {"b": 1}, "q2": {"c": 1}}, ["RR@10"])
    >>> evaluation.mean, evaluation.missing
    ({'RR@10': 0.25}, ['q2'])
    """
    import ir_measures

    parsed = {_parse(name): name for name in measures}
    judged = {query: _without_ties(items) for query, items in run.items() if query in qrels}
    missing = [query for query in qrels if query not in judged]
    # Every query starts at 0, whatever a measure's provider does about those that a run misses.
    per_query = {query: dict.fromkeys(measures, 0.0) for query in qrels}
    try:
        # Without any query in common there is nothing to ask for.
        found = list(ir_measures.iter_calc(list(parsed), dict(qrels), judged)) if judged else []
    except (ValueError, RuntimeError) as error:
        raise CrosscutError(f"cannot compute {', '.join(measures)}: {error}") from error
    for metric in found:
        per_query[metric.query_id][parsed[metric.measure]] = float(metric.value)
    mean = {name: sum(values[name] for values in per_query.values()) / len(per_query) for name in measures}
    return Evaluation(mean, per_query, missing)


def _without_ties(items: Mapping[str, float]) -> dict[str, float]:
    """Places instead of scores. Ties go as in trec_eval, by id from the last; measures would else disagree."""
    order = sorted(items, key=lambda item: (items[item], item))
    return {item: float(place) for place, item in enumerate(order)}


def _parse(name: str) -> Any:
    import ir_measures

    try:
        return ir_measures.parse_measure(name)
    except (NameError, ValueError) as error:
        raise CrosscutError(
            f"unknown measure {name!r} ({error}): use names like nDCG@10, RR@10, R@100, P@5 or AP"
        ) from error
