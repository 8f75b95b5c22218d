"""Blocks of features for the estimator: each knows its items' features, its prior scale, and Φw for all items.

A block keeps the features of the items that have been scored (one set per query), so that a new batch costs
only its products with them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np


class Block(Protocol):
    """What the estimator asks of features, whose prior is N(0, 1) once a block has scaled them."""

    def reserve(self, queries: int, capacity: int, dtype: type) -> None:
        """Make room for `capacity` scored items per query."""

    def add(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take in items (Q, b); inner products of their features with the n old ones and among themselves."""

    def values(self, alpha: np.ndarray) -> np.ndarray:
        """Φ Φ_Sᵀ α: what dual weights (Q, n) of the items taken in say about all items, (Q, N)."""


class Dense(ABC):
    """Features as rows of numbers."""

    width: int

    def reserve(self, queries: int, capacity: int, dtype: type) -> None:
        self.kept: np.ndarray = np.empty((queries, capacity, self.width), dtype)
        self.n = 0

    def add(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        old, n = self.kept[:, : self.n], self.n + positions.shape[1]
        new = self.kept[:, self.n : n]
        new[...] = self.rows(positions)
        self.n = n
        # BLAS is faster with the larger factor first, here and in Shared.predict.
        return (old @ new.transpose(0, 2, 1)).transpose(0, 2, 1), new @ new.transpose(0, 2, 1)

    def values(self, alpha: np.ndarray) -> np.ndarray:
        return self.predict((alpha.astype(self.kept.dtype)[:, None] @ self.kept[:, : self.n])[:, 0])

    @abstractmethod
    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Scaled features of items: (Q, b) to (Q, b, width)."""

    @abstractmethod
    def predict(self, weights: np.ndarray) -> np.ndarray:
        """Φw for weights (Q, width): (Q, N)."""


class Shared(Dense):
    """Features (N, d) that all queries share, with prior standard deviations: one, (d,) or (Q, d).

    >>> block = Shared(np.array([[1.0, 0.0], [0.0, 2.0]]), scale=np.array([1.0, 0.5]))
    >>> block.rows(np.array([[1, 0]])).tolist(), block.predict(np.array([[3.0, 4.0]])).tolist()
    ([[[0.0, 1.0], [1.0, 0.0]]], [[3.0, 4.0]])
    """

    def __init__(self, features: np.ndarray, scale: np.ndarray | float = 1.0) -> None:
        self.features = features
        self.scale = np.atleast_2d(np.asarray(scale, features.dtype))
        self.width = features.shape[1]

    def rows(self, positions: np.ndarray) -> np.ndarray:
        return self.features[positions] * self.scale[:, None, :]

    def predict(self, weights: np.ndarray) -> np.ndarray:
        return (self.features @ (weights * self.scale).astype(self.features.dtype, copy=False).T).T


class Own(Dense):
    """Features (Q, t, N) that belong to a query, with `root` (t, t): root @ root.T is their prior covariance.

    >>> block = Own(np.array([[[1.0, 2.0, 3.0]]]), root=np.array([[2.0]]))
    >>> block.rows(np.array([[2]])).tolist(), block.predict(np.array([[1.0]])).tolist()
    ([[[6.0]]], [[2.0, 4.0, 6.0]])
    """

    def __init__(self, features: np.ndarray, root: np.ndarray) -> None:
        self.features = features
        self.root = root.astype(features.dtype)
        self.width = root.shape[1]

    def rows(self, positions: np.ndarray) -> np.ndarray:
        taken = np.take_along_axis(self.features, positions[:, None, :], axis=2)
        return taken.transpose(0, 2, 1) @ self.root

    def predict(self, weights: np.ndarray) -> np.ndarray:
        coefficients = weights.astype(self.root.dtype, copy=False) @ self.root.T
        return (coefficients[:, None] @ self.features)[:, 0]


class Sparse:
    """Features in a sparse matrix (N, V) that all queries share: the words of the items.

    >>> from scipy.sparse import csr_matrix
    >>> block = Sparse(csr_matrix(np.array([[1.0, 0.0], [1.0, 2.0]])), scale=2.0)
    >>> block.reserve(1, 2, np.float32)
    >>> [products.tolist() for products in block.add(np.array([[1]]))], block.values(np.array([[1.0]])).tolist()
    ([[[[]]], [[[20.0]]]], [[4.0, 20.0]])
    """

    def __init__(self, matrix: Any, scale: float = 1.0) -> None:
        self.matrix, self.variance = matrix, scale**2

    def reserve(self, queries: int, capacity: int, dtype: type) -> None:
        self.positions = np.empty((queries, 0), np.int64)

    def add(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, old = self.positions.shape[1], self.positions
        self.positions = np.concatenate([old, positions], axis=1)
        products = np.stack(
            [
                (self.matrix[new] @ self.matrix[every].T).toarray()
                for new, every in zip(positions, self.positions, strict=True)
            ]
        )
        products *= self.variance
        return products[:, :, :n], products[:, :, n:]

    def values(self, alpha: np.ndarray) -> np.ndarray:
        alpha = alpha.astype(self.matrix.dtype)
        weights = np.stack(
            [self.matrix[rows].T @ a for rows, a in zip(self.positions, alpha, strict=True)], axis=1
        )
        return (self.matrix @ weights).T * self.matrix.dtype.type(self.variance)
