"""Learning the default method's prior from the anchor queries, whose scores for all items are known.

Each anchor query plays a query that is yet to come, and the other anchor queries play the index. Three steps:
how the coefficients of the basis differ between queries (EM for a mixed linear model), what the basis leaves
unexplained (the residuals, which become features), and the variances of all blocks (marginal likelihood).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from crosscut.search.features import wide
from crosscut.search.prior import (
    ROUNDING,
    Prior,
    anchor_weights,
    basis,
    default_prior,
    make_blocks,
    nearness,
    raw_signals,
    regression_matrix,
    standardise,
    start_coefficients,
    with_unit_variances,
)
from crosscut.search.problem import Corpus, Problem, Queries

FEWEST = 10  # anchor queries to learn from; with fewer the default belief is the better one
POOL = 300  # likely items, and as many random ones, that the coefficients are learned from
DESIGN = (200, 10)  # likely and random items per query that the variances are learned from
DESIGN_QUERIES = 60
BELIEF = 20.0, 5.0  # what the start is worth against one anchor query: for the covariance, for the mean
START_SHARES = {"vectors": 0.1, "words": 0.1, "terms": 0.03}  # of the scores' variance, to begin with
START_NOISE = 0.06
STEADINESS = 20.0  # penalty on a variance's departure from its start, per squared e-fold
FARTHEST = 7.0  # e-folds that it may depart at all: with nothing to explain, the noise would go to zero


def learn(corpus: Corpus, anchors: Queries, seed: int = 0) -> Prior:
    """The prior for this corpus. `anchors` are its anchor queries, seen as queries.

    >>> learn(Corpus(3), Queries([])).item_mean is None
    True
    """
    if corpus.anchor_scores is None or len(corpus.anchor_scores) < FEWEST:
        return default_prior(Problem(corpus, anchors))
    lesson = _Lesson(corpus, anchors, seed)
    prior, coefficients = lesson.learn_coefficients()
    prior = replace(prior, residuals=lesson.residuals(coefficients))
    return lesson.learn_variances(prior)


class _Lesson:
    """The anchor queries' scores, and their signals as if each were not among them."""

    def __init__(self, corpus: Corpus, anchors: Queries, seed: int) -> None:
        assert corpus.anchor_scores is not None
        self.corpus, self.anchors = corpus, anchors
        self.rng = np.random.default_rng(seed)
        self.scores = wide(corpus.anchor_scores).astype(np.float32, copy=False)
        self.count, self.size = self.scores.shape
        self.total = self.scores.sum(axis=0)
        mean = self.total / self.count
        rounding = ROUNDING * float(np.abs(self.scores).max())
        variance = float(np.mean((self.scores - mean) ** 2))
        self.variance = variance if variance > rounding**2 else 1.0
        # Few anchor queries tell an item's mean badly: it is drawn to the common mean (empirical Bayes).
        self.trust = float(np.clip(1 - self.variance / self.count / max(mean.var(), 1e-12), 0.0, 1.0))
        self.common = float(mean.mean())
        self.mean = self._shrink(mean)
        self.predicted: np.ndarray | None = None
        self.spread = 0.0
        if corpus.anchor_vectors is not None and corpus.vectors is not None:
            # Leave-one-out weights of the regression on the other anchor queries, in closed form.
            inverse = np.linalg.inv(regression_matrix(corpus))
            weights = (np.eye(self.count) - inverse / np.diagonal(inverse)[:, None]).astype(np.float32)
            predicted = weights @ self.scores
            predicted -= weights.sum(axis=1, keepdims=True) * self._mean_without(np.arange(self.count))
            spread = float(predicted.std())
            if spread > rounding:
                self.predicted, self.spread = predicted / np.float32(spread), spread
        self.names = list(raw_signals(self._problem(slice(0, 1))))
        if self.predicted is not None:
            self.names.append("anchors")

    def learn_coefficients(self) -> tuple[Prior, np.ndarray]:
        """The prior but for what is still to be learned, and each anchor query's own coefficients, (k_q, t)."""
        start, start_variance = start_coefficients(self.names)
        start, start_variance = start * self.variance**0.5, start_variance * self.variance
        squares, products, totals = [], [], []
        for batch, rows in self._bases():
            expected = np.einsum("t,atn->an", start.astype(np.float32), rows)
            anywhere = self.rng.integers(0, self.size, (len(batch), POOL))
            pool = np.concatenate([_top(expected, min(POOL, self.size)), anywhere], axis=1)
            x = np.take_along_axis(rows, pool[:, None], axis=2).transpose(0, 2, 1).astype(np.float64)
            y = np.take_along_axis(self._above_mean(batch), pool, axis=1).astype(np.float64)
            squares.append(x.transpose(0, 2, 1) @ x)
            products.append((x.transpose(0, 2, 1) @ y[:, :, None])[:, :, 0])
            totals.append((y**2).sum(axis=1))
        xx, xy, yy = map(np.concatenate, (squares, products, totals))
        mean, covariance, each = _mixed_model(xx, xy, yy, pool.shape[1], start, start_variance, self.variance)
        variances = {"coefficients": 1.0, "anchors": 0.5}
        variances |= {name: share * self.variance for name, share in START_SHARES.items()}
        noise = START_NOISE * self.variance
        return Prior(mean, covariance, variances, noise, self.spread, self.mean), each

    def residuals(self, coefficients: np.ndarray) -> np.ndarray:
        """(N, k_q): the anchor scores less item mean and each anchor query's own fit of the basis.

        All anchor queries get the same spread, so that a few vivid ones do not drown the others.
        """
        residuals = np.empty((self.size, self.count), np.float32)
        for batch, rows in self._bases():
            explained = np.einsum("at,atn->an", coefficients[batch].astype(np.float32), rows)
            residuals[:, batch] = (self._above_mean(batch) - explained).T
        spread = residuals.std(axis=0)
        residuals *= np.sqrt(np.mean(spread**2)) / np.where(spread > 0, spread, 1.0)
        return residuals

    def learn_variances(self, prior: Prior) -> Prior:
        """Variances and noise of largest marginal likelihood over designs like those that a search makes."""
        chosen = np.sort(self.rng.permutation(self.count)[:DESIGN_QUERIES])
        unit = with_unit_variances(prior)
        grams, residuals = [], []
        names: list[str] = []
        for batch, rows in self._bases(chosen):
            problem = self._problem(batch)
            expected = np.einsum("t,atn->an", prior.coefficients.astype(np.float32), rows)
            residual = self._above_mean(batch) - expected
            design = self._design(expected + self._mean_without(batch))
            blocks = make_blocks(problem, unit, rows, self._anchor_weights(batch))
            names = list(blocks)
            for block in blocks.values():
                block.reserve(len(batch), design.shape[1], np.float32)
            grams.append(np.stack([block.add(design)[1] for block in blocks.values()], axis=1))
            residuals.append(np.take_along_axis(residual, design, axis=1))
        start = np.array([prior.variances[name] for name in names] + [prior.noise])
        found = _maximise(np.concatenate(grams).astype(np.float64), np.concatenate(residuals), start)
        variances = prior.variances | dict(zip(names, found[:-1].tolist(), strict=True))
        return replace(prior, variances=variances, noise=float(found[-1]))

    def _bases(self, anchors: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Anchor queries in small batches, each with its basis: the whole would not fit into memory."""
        anchors = np.arange(self.count) if anchors is None else anchors
        step = max(1, int(64e6 / (self.size * (1 + 3 * len(self.names)))))
        for start in range(0, len(anchors), step):
            batch = anchors[start : start + step]
            there = [standardise(scores) for scores in raw_signals(self._problem(batch)).values()]
            if self.predicted is not None:
                there.append(self.predicted[batch])
            yield batch, basis(there, (len(batch), self.size))

    def _problem(self, batch: np.ndarray | slice) -> Problem:
        a = self.anchors
        rows = range(self.count)[batch] if isinstance(batch, slice) else batch
        return Problem(
            self.corpus,
            Queries(
                keys=[a.keys[row] for row in rows],
                vectors=None if a.vectors is None else a.vectors[batch],
                lexical=None if a.lexical is None else a.lexical[batch],
                terms=None if a.terms is None else [a.terms[row] for row in rows],
                compare={name: scores[batch] for name, scores in a.compare.items()},
            ),
        )

    def _mean_without(self, batch: np.ndarray) -> np.ndarray:
        return self._shrink((self.total - self.scores[batch]) / (self.count - 1))

    def _shrink(self, mean: np.ndarray) -> np.ndarray:
        return np.float32(self.common) + np.float32(self.trust) * (mean - np.float32(self.common))

    def _above_mean(self, batch: np.ndarray) -> np.ndarray:
        return self.scores[batch] - self._mean_without(batch)

    def _anchor_weights(self, batch: np.ndarray) -> np.ndarray:
        vectors = self.corpus.anchor_vectors
        near = np.ones((len(batch), self.count)) if vectors is None else nearness(vectors[batch], vectors)
        near[np.arange(len(batch)), batch] = 0.0  # a query to come is not among the anchors
        return anchor_weights(near)

    def _design(self, expected: np.ndarray) -> np.ndarray:
        likely = _top(expected, min(DESIGN[0], self.size))
        closed = np.zeros(expected.shape, bool)
        np.put_along_axis(closed, likely, True, axis=1)
        lots = np.where(closed, -1.0, self.rng.random(expected.shape))
        return np.concatenate([likely, _top(lots, min(DESIGN[1], self.size - likely.shape[1]))], axis=1)


def _mixed_model(
    xx: np.ndarray,
    xy: np.ndarray,
    yy: np.ndarray,
    n: int,
    start: np.ndarray,
    start_variance: np.ndarray,
    variance: float,
    iterations: int = 15,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """EM for y = x·c_a + noise with c_a ~ N(mean, covariance), one c_a per anchor query.

    From the moments of each anchor query's n observations: mean, covariance, and the c_a, (k_q, t).
    """
    count = len(xx)
    mean, covariance, noise = start, np.diag(start_variance), 0.2 * variance
    for _ in range(iterations):
        precision = np.linalg.inv(covariance)
        spread = np.linalg.inv(xx / noise + precision)
        each = (spread @ (xy / noise + precision @ mean)[:, :, None])[:, :, 0]
        mean = (BELIEF[1] * start + each.sum(axis=0)) / (BELIEF[1] + count)
        apart = each - mean
        covariance = BELIEF[0] * np.diag(start_variance) + apart.T @ apart + spread.sum(axis=0)
        covariance /= BELIEF[0] + count
        left = yy - 2 * (each * xy).sum(axis=1) + np.einsum("at,atu,au->a", each, xx, each)
        left += np.einsum("atu,aut->a", xx, spread)
        noise = max(float(left.sum()) / (count * n), 1e-6 * variance)
    return mean, covariance, each


def _maximise(grams: np.ndarray, residuals: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Variances of the blocks, noise last, from Gram matrices (queries, blocks, n, n), residuals (queries, n)."""
    y = residuals.astype(np.float64)
    eye = np.eye(y.shape[1])

    def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
        variances = np.exp(logs)
        covariance = np.einsum("b,qbij->qij", variances[:-1], grams) + variances[-1] * eye
        inverse = np.linalg.inv(covariance)
        alpha = (inverse @ y[:, :, None])[:, :, 0]
        value = 0.5 * np.sum(alpha * y) + 0.5 * np.linalg.slogdet(covariance)[1].sum()
        slope = inverse - alpha[:, :, None] * alpha[:, None, :]
        gradient = np.append(np.einsum("qij,qbij->b", slope, grams), np.einsum("qii->", slope))
        apart = logs - np.log(start)
        penalty = 0.5 * STEADINESS * np.sum(apart**2)
        return value + penalty, 0.5 * variances * gradient + STEADINESS * apart

    begin = np.log(start)
    bounds = np.stack([begin - FARTHEST, begin + FARTHEST], axis=1)
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40})
    return np.exp(found.x)


def _top(values: np.ndarray, count: int) -> np.ndarray:
    """Positions of the largest values, in no order."""
    return np.argpartition(-values, count - 1, axis=1)[:, :count] if count else np.empty((len(values), 0), int)
