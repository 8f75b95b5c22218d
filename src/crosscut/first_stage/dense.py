"""Bi-encoder scores."""

from __future__ import annotations

import numpy as np

from crosscut.errors import CrosscutError


def dense_scores(item_vectors: np.ndarray, query_vectors: np.ndarray) -> np.ndarray:
    """Inner products of every query (rows) with every item (columns), float32 whatever the vectors are.

    >>> import numpy as np
    >>> print(dense_scores(np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([[0.0, 1.0]])))
    [[0.  0.8]]
    """
    items, queries = np.asarray(item_vectors, np.float32), np.asarray(query_vectors, np.float32)
    if items.ndim != 2 or queries.ndim != 2 or items.shape[1] != queries.shape[1]:
        raise CrosscutError(
            f"item vectors of shape {items.shape} and query vectors of shape {queries.shape} do not go "
            "together: both must be tables with equally many columns, made by the same encoder"
        )
    return queries @ items.T
