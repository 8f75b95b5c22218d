"""ANNCUR (Yadav et al., 2022) and its item-item kin: fixed anchor items embed the query, then one retrieval."""

from __future__ import annotations

import math

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.search.features import anchor_features, item_features
from crosscut.search.loop import Plan
from crosscut.search.problem import Problem


def anncur(problem: Problem, budget: int, *, anchor_share: float = 0.5) -> Plan:
    """CUR with fixed anchor items, as in §2.3-2.4 and, for the split of the budget, ADACUR's App. B.3.

    budget: B_CE. anchor_share: the part of it that goes to the k_i anchor items, drawn at random, the same
    for all queries; the rest goes to the best of the other items by approximate score.
    """
    return _cur(problem, budget, anchor_share, anchor_features(problem))


def itemcur(problem: Problem, budget: int, *, anchor_share: float = 0.5) -> Plan:
    """ITEMCUR (§3.4): as ANNCUR, but items are indexed by their scores against anchor items (k_i^ind)."""
    return _cur(problem, budget, anchor_share, item_features(problem))


def fixeditem(problem: Problem, budget: int, *, anchor_share: float = 0.5) -> Plan:
    """FIXEDITEM (§3.4): items and query are embedded by their scores against the same anchor items."""
    features = item_features(problem)
    assert problem.corpus.item_anchors is not None
    # Anchor items that are deleted or filtered out stand aside, with their column of features.
    able = np.arange(len(problem.corpus.item_anchors))
    if problem.allowed is not None:
        able = able[problem.allowed[problem.corpus.item_anchors]]
    if not len(able):
        raise CrosscutError("all anchor items of fixeditem are deleted or filtered out: use another method")
    able = able[: _anchor_count(budget, anchor_share)]
    return _plan(problem, budget, problem.corpus.item_anchors[able], features[:, able])


def item_vectors(features: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """(U R_anc)ᵀ: (N, k_i) vectors whose inner product with a query's anchor scores C_q is its estimate.

    The MIPS route: hand these to any inner-product search and ask it with C_q.

    >>> features = np.array([[1.0, 2.0], [2.0, 1.0], [4.0, 2.0]])  # of rank 2, so two anchors tell all
    >>> abs(item_vectors(features, np.array([0, 1]))).round(3).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]
    """
    return features @ np.linalg.pinv(features[anchors].astype(np.float64)).astype(features.dtype)


class Projection:
    """Estimates are inner products of the anchor scores C_q and fixed item vectors: nothing is refitted."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors
        self._anchor_scores = np.empty((0, 0))

    def add(self, positions: np.ndarray, scores: np.ndarray) -> None:
        self._anchor_scores = scores

    def estimate(self) -> np.ndarray:
        return self._anchor_scores.astype(self.vectors.dtype, copy=False) @ self.vectors.T


def _cur(problem: Problem, budget: int, anchor_share: float, features: np.ndarray) -> Plan:
    allowed = np.arange(problem.corpus.size)
    if problem.allowed is not None:
        allowed = np.flatnonzero(problem.allowed)
    drawn = np.random.default_rng(problem.seed).permutation(allowed)
    anchors = drawn[: _anchor_count(budget, anchor_share)]
    return _plan(problem, budget, anchors, item_vectors(features, anchors))


def _anchor_count(budget: int, share: float) -> int:
    return max(1, math.floor(budget * share))


def _plan(problem: Problem, budget: int, anchors: np.ndarray, vectors: np.ndarray) -> Plan:
    """The anchors in their order, then the best of the rest."""
    first = np.full((len(problem.queries), problem.corpus.size), -np.inf)
    first[:, anchors] = -np.arange(len(anchors))
    rest = budget - len(anchors)
    return Plan(first=first, sizes=[len(anchors), rest] if rest else [len(anchors)], fit=Projection(vectors))
