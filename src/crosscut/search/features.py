"""Features Φ that the methods take from the index, one row per item."""

from __future__ import annotations

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.search.problem import Problem


def anchor_features(problem: Problem) -> np.ndarray:
    """R_anc transposed: an item's scores for the anchor queries are its features, E^I in the papers."""
    scores = problem.corpus.anchor_scores
    if scores is None or not len(scores):
        raise CrosscutError(
            "this method needs anchor queries, and the index has none: add some, or use another method"
        )
    return wide(scores).T


def item_features(problem: Problem) -> np.ndarray:
    """An item's scores against the anchor *items*, each of which stood in the query's place."""
    scores = problem.corpus.item_scores
    if scores is None or not len(scores):
        raise CrosscutError(
            "this method needs scores against anchor items, and the index has none: build it with anchor_items"
        )
    return wide(scores).T


def wide(array: np.ndarray) -> np.ndarray:
    """Stored numbers in the precision that products are made in: float32, or float64 if they come so."""
    return np.asarray(array, np.float64 if array.dtype == np.float64 else np.float32)
