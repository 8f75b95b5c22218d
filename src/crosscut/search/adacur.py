"""ADACUR (Yadav et al., 2023): CUR in adaptive rounds; the best items found become the next anchors."""

from __future__ import annotations

from crosscut.search.blocks import Shared
from crosscut.search.estimator import LeastSquares
from crosscut.search.features import anchor_features
from crosscut.search.loop import Plan, split_evenly
from crosscut.search.problem import Problem


def adacur(
    problem: Problem,
    budget: int,
    *,
    rounds: int | None = None,
    first: str | None = None,
    selection: str = "topk",
) -> Plan:
    """Algorithm 1 of the paper.

    budget: B_CE, calls per query. rounds: N_R, each of k_s = B_CE / N_R items; 5 unless given. first: INIT, the
    ranking that picks the first batch (the encoder where there is one, as ADACUR with DE_BASE; else random).
    selection: A, the way SAMPLEITEMS (Algorithm 2) picks the others: topk, softmax or random.
    """
    if first is None:
        first = "random" if problem.similarity is None else "encoder"
    return Plan(
        first=problem.first_stage(first),
        sizes=split_evenly(budget, min(5, budget) if rounds is None else rounds),
        # Ŝ = C_test U R_anc with U = pinv(R_anc[I_anc]), by lines 12-13 and 17-18
        fit=LeastSquares(len(problem.queries), Shared(anchor_features(problem)), capacity=budget),
        selection=selection,
    )
