"""The one estimator: for each query of a batch, scores of all items as s ≈ μ + Φw, fitted on those scored so far.

`Estimator` is Bayesian linear regression in its dual form; every block of features carries its prior scale.
`LeastSquares` is its limit of no noise and a flat prior, which is what CUR needs: w = pinv(Φ_S) y. Adding a
batch extends the Cholesky factor of the Gram matrix and never recomputes it; the only work that grows with
the corpus is one product of weights and features per round, for all queries together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crosscut.search.blocks import Block, Dense

RESOLUTION = 1e-6  # of a sum of float32 products, relative to its size, with room for some hundred items


class Estimator:
    """Bayesian linear regression: prior mean, blocks of features, noise variance.

    `mean` is (Q, N), or None where not even the level of scores is known: it is then that of the first batch.
    `capacity` is the number of items per query that it must be able to hold: the budget.

    Noise below what products of `dtype` can resolve is raised to that, or there might be no factor.

    >>> from crosscut.search.blocks import Shared
    >>> features = np.array([[1.0], [2.0], [3.0]])
    >>> estimator = Estimator(1, [Shared(features, 10.0)], mean=np.zeros((1, 3)), noise=1e-6, capacity=2)
    >>> estimator.add(np.array([[0, 1]]), np.array([[2.0, 4.0]]))
    >>> estimator.estimate().round(3).tolist()
    [[2.0, 4.0, 6.0]]
    """

    def __init__(
        self,
        queries: int,
        blocks: Sequence[Block],
        *,
        noise: float,
        capacity: int,
        mean: np.ndarray | None = None,
        dtype: type = np.float32,
    ) -> None:
        self.blocks, self.noise, self.mean = blocks, noise, mean
        for block in blocks:
            block.reserve(queries, capacity, dtype)
        self._resolution = RESOLUTION if dtype is np.float32 else 0.0
        self.n = 0
        self._inverse = np.zeros((queries, capacity, capacity))  # L⁻¹, where LLᵀ = Φ_S Φ_Sᵀ + noise
        self._whitened = np.zeros((queries, capacity))  # L⁻¹ (y − μ)
        self._dual = np.zeros((queries, capacity))  # L⁻ᵀ L⁻¹ (y − μ): a sum over rows, so new rows add to it

    def add(self, positions: np.ndarray, scores: np.ndarray) -> None:
        """Take in the scores (Q, b) of the items at positions (Q, b)."""
        products = [block.add(positions) for block in self.blocks]
        across = np.asarray(sum(old for old, _ in products), np.float64)
        among = np.asarray(sum(new for _, new in products), np.float64)
        if self.mean is None:
            self.mean = scores.mean(axis=1, keepdims=True)
        at = positions if self.mean.shape[1] > 1 else np.zeros_like(positions)
        means = np.take_along_axis(self.mean, at, axis=1)
        self._extend(across, among, np.asarray(scores, np.float64) - means)
        self.n += positions.shape[1]

    def estimate(self) -> np.ndarray:
        """Scores of all items, (Q, N)."""
        assert self.mean is not None, "nothing has been added yet"
        alpha = self._alpha()
        return self.mean + sum(block.values(alpha) for block in self.blocks)

    def _extend(self, across: np.ndarray, among: np.ndarray, residuals: np.ndarray) -> None:
        """Extend L by the block row [L21 L22], given the new rows' products with the old and with themselves."""
        old, new = slice(0, self.n), slice(self.n, self.n + among.shape[1])
        noise = np.maximum(self.noise, self._resolution * np.diagonal(among, axis1=1, axis2=2))
        among = among + noise[:, :, None] * np.eye(among.shape[1])
        inverse = self._inverse[:, old, old]
        l21 = across @ inverse.transpose(0, 2, 1)
        corner = self._invert_factor(among, among - l21 @ l21.transpose(0, 2, 1))
        self._inverse[:, new, old] = -(corner @ l21) @ inverse
        self._inverse[:, new, new] = corner
        rest = residuals[:, :, None] - l21 @ self._whitened[:, old, None]
        self._whitened[:, new] = (corner @ rest)[:, :, 0]
        self._dual[:, : new.stop] += (self._whitened[:, None, new] @ self._inverse[:, new, : new.stop])[:, 0]

    def _invert_factor(self, among: np.ndarray, schur: np.ndarray) -> np.ndarray:
        """L22⁻¹; `schur` is what the old rows leave unexplained of the products among the new ones."""
        return np.linalg.inv(np.linalg.cholesky(schur))

    def _alpha(self) -> np.ndarray:
        """Dual weights (Q, n): (Φ_S Φ_Sᵀ + noise)⁻¹ (y − μ)."""
        return self._dual[:, : self.n]


class LeastSquares(Estimator):
    """Minimum-norm least squares over one block, w = pinv(Φ_S) y: the fit of ANNCUR and ADACUR.

    While a query's scored items are independent its factor is extended as above. If they are not (more items
    than features, or duplicates), the query is solved anew each round.

    >>> from crosscut.search.blocks import Shared
    >>> features = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> estimator = LeastSquares(1, Shared(features), capacity=2)
    >>> estimator.add(np.array([[0, 1]]), np.array([[1.0, 3.0]]))
    >>> estimator.estimate().round(3).tolist()
    [[1.4, 2.8, 0.0]]
    """

    # Squared share of a new row that the old ones leave unexplained, below which the factor loses precision.
    DEPENDENT = 1e-8

    def __init__(self, queries: int, block: Dense, *, capacity: int) -> None:
        zero = np.zeros((queries, 1))
        super().__init__(queries, [block], mean=zero, noise=0.0, capacity=capacity, dtype=np.float64)
        self.block = block
        self._scores = np.empty((queries, capacity))
        self._dependent = np.zeros(queries, bool)

    def add(self, positions: np.ndarray, scores: np.ndarray) -> None:
        self._scores[:, self.n : self.n + positions.shape[1]] = scores
        super().add(positions, scores)

    def estimate(self) -> np.ndarray:
        weights = (self._alpha()[:, None] @ self.block.kept[:, : self.n])[:, 0]
        for query in np.flatnonzero(self._dependent):
            weights[query] = minimum_norm(self.block.kept[query, : self.n], self._scores[query, : self.n])
        return self.block.predict(weights)

    def _extend(self, across: np.ndarray, among: np.ndarray, residuals: np.ndarray) -> None:
        self._dependent |= self.n + among.shape[1] > self.block.width
        if not self._dependent.all():
            super()._extend(across, among, residuals)
            self._inverse[self._dependent] = 0.0  # of no more use, and must not grow without bound
            self._whitened[self._dependent] = 0.0
            self._dual[self._dependent] = 0.0

    def _invert_factor(self, among: np.ndarray, schur: np.ndarray) -> np.ndarray:
        for query in np.flatnonzero(~self._dependent):
            self._dependent[query] = _loses_precision(schur[query], among[query])
        schur[self._dependent] = np.eye(schur.shape[1])
        return super()._invert_factor(among, schur)


def minimum_norm(features: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """pinv(features) @ scores, by normal equations where they are precise enough, else by SVD.

    >>> minimum_norm(np.array([[1.0, 1.0]]), np.array([2.0])).round(6).tolist()
    [1.0, 1.0]
    """
    if features.shape[0] > features.shape[1]:
        gram = features.T @ features
        if not _loses_precision(gram, gram):
            return np.linalg.solve(gram, features.T @ scores)
    return np.linalg.lstsq(features, scores, rcond=None)[0]


def _loses_precision(matrix: np.ndarray, scale: np.ndarray) -> bool:
    """Whether a pivot of the Cholesky factor is tiny beside the diagonal of `scale`, or there is no factor."""
    try:
        pivots = np.diagonal(np.linalg.cholesky(matrix)) ** 2
    except np.linalg.LinAlgError:
        return True
    return bool((pivots <= LeastSquares.DEPENDENT * np.diagonal(scale)).any())
