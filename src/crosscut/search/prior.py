"""What the default method believes of a query's scores before it has seen one.

    score of item i = item_mean_i + basis_i · c + anchors_i · a + vectors_i · e + words_i · l + terms_i · t + noise

Cheap *signals* (similarity, lexical score, what a compare model says, what the anchor queries most like this one
scored) enter through a *basis*: each as a line with two bends, whose coefficients c differ between queries, with
the mean and the covariance kept here. The other parts have weights of mean zero; their variances are kept here.
`learn.py` learns all of it from the anchor queries; without any, `default_prior` serves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crosscut.search.blocks import Block, Own, Shared, Sparse
from crosscut.search.features import wide
from crosscut.search.problem import Corpus, Problem

BENDS = (1.5, 3.0)  # in standard deviations of the signal

# Per signal: mean and standard deviation of the coefficients of (line, first bend, second bend) to begin with,
# in standard deviations of the scores. Few anchor queries move them a little, many anchor queries altogether.
# Set by what is learned on two data sets: docs/method.md, "Where the constants come from".
START = {
    "similarity": ((0.0, 0.4, 0.0), (0.2, 0.5, 0.6)),
    "lexical": ((0.15, 0.2, 0.0), (0.2, 0.3, 0.3)),
    "compare": ((0.2, 0.4, 0.0), (0.3, 0.5, 0.6)),
    "anchors": ((0.6, 0.0, 0.0), (0.4, 0.4, 0.4)),
}
START_OFFSET = 0.5

NEARNESS = 0.3  # how fast an anchor query's say falls with its distance: exp((cosine − 1) / NEARNESS)
RIDGE = 0.3  # of the regression on the anchor queries
ROUNDING = 1e-6  # a spread below this share of the largest score is but float32's rounding of equal scores


@dataclass(frozen=True)
class Prior:
    """The belief. `variances`: per feature of a block, plus "coefficients", which multiplies their covariance.

    Without `item_mean` the level and the unit of the scores are unknown; all numbers are then relative.
    """

    coefficients: np.ndarray  # (t,) mean of c
    covariance: np.ndarray  # (t, t) of c
    variances: dict[str, float]
    noise: float
    anchor_spread: float = 0.0  # standard deviation of the anchors' signal; 0 without one
    item_mean: np.ndarray | None = None  # (N,)
    residuals: np.ndarray | None = None  # (N, k_q): what the basis does not explain of the anchor scores

    def to_json(self) -> dict[str, Any]:
        """All but the arrays over items."""
        return {
            "coefficients": self.coefficients.tolist(),
            "covariance": self.covariance.tolist(),
            "variances": self.variances,
            "noise": self.noise,
            "anchor_spread": self.anchor_spread,
        }

    @classmethod
    def from_json(cls, keys: dict[str, Any], item_mean: np.ndarray | None, residuals: np.ndarray | None) -> Prior:
        arrays = {name: np.array(keys[name]) for name in ("coefficients", "covariance")}
        return cls(**{**keys, **arrays}, item_mean=item_mean, residuals=residuals)


def default_prior(problem: Problem) -> Prior:
    """The belief without anchor queries: only ratios matter, and the signals' common size is left open."""
    mean, variance = start_coefficients(list(raw_signals(problem)))
    variance[0] = 25.0
    return Prior(
        coefficients=mean,
        covariance=np.diag(variance) + 4.0 * np.outer(mean, mean),
        variances={"coefficients": 1.0, "vectors": 0.3, "words": 0.3, "terms": 0.03},
        noise=0.25,
    )


def start_coefficients(names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the coefficients to begin with: offset first, then three per signal."""
    starts = [START[name.partition(":")[0]] for name in names]
    mean = [0.0] + [value for means, _ in starts for value in means]
    deviation = [START_OFFSET] + [value for _, deviations in starts for value in deviations]
    return np.array(mean), np.array(deviation) ** 2


def raw_signals(problem: Problem) -> dict[str, np.ndarray]:
    signals = {"similarity": problem.similarity, "lexical": problem.queries.lexical}
    signals |= {f"compare:{name}": problem.queries.compare[name] for name in problem.corpus.compare}
    return {name: scores for name, scores in signals.items() if scores is not None}


def signals(problem: Problem, prior: Prior) -> list[np.ndarray]:
    """The signals that there are, each (Q, N), in a fixed order."""
    there = [standardise(scores) for scores in raw_signals(problem).values()]
    if prior.anchor_spread:
        there.append(_regress_on_anchors(problem, prior) / np.float32(prior.anchor_spread))
    return there


def basis(signals: list[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """(Q, 1 + 3 · signals, N): the offset, then each signal as a line with two bends.

    >>> basis([np.array([[1.0, 2.0, 4.0]])], (1, 3))[0].tolist()
    [[1.0, 1.0, 1.0], [1.0, 2.0, 4.0], [0.0, 0.5, 2.5], [0.0, 0.0, 1.0]]
    """
    rows = np.empty((shape[0], 1 + 3 * len(signals), shape[1]), np.float32)
    rows[:, 0] = 1.0
    for number, signal in enumerate(signals):
        rows[:, 3 * number + 1] = signal
        for bend, knot in enumerate(BENDS):
            np.maximum(signal - np.float32(knot), 0.0, out=rows[:, 3 * number + 2 + bend])
    return rows


def standardise(scores: np.ndarray) -> np.ndarray:
    """Each query's scores with mean 0 and standard deviation 1 over the items."""
    rounding = ROUNDING * np.abs(scores).max(axis=1, keepdims=True)
    scores = scores - scores.mean(axis=1, keepdims=True)
    spread = scores.std(axis=1, keepdims=True)
    return (scores / np.where(spread > rounding, spread, np.inf)).astype(np.float32)


def nearness(queries: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """How near anchor queries are to queries, by their unit vectors: (Q, k_q), 1 for the same."""
    return np.exp((wide(queries) @ wide(anchors).T - 1.0) / NEARNESS)


def anchor_weights(near: np.ndarray) -> np.ndarray:
    """Prior variances of the anchor queries' features: nearer ones have more to say; the mean is 1."""
    return near / near.mean(axis=1, keepdims=True)


def make_blocks(problem: Problem, prior: Prior, rows: np.ndarray, weights: np.ndarray | None) -> dict[str, Block]:
    """The feature blocks for a batch of queries, whose basis is `rows` and whose anchor weights `weights`."""
    corpus, variances = problem.corpus, prior.variances
    root = np.linalg.cholesky(prior.covariance * variances["coefficients"])
    blocks: dict[str, Block] = {"coefficients": Own(rows, root)}
    if prior.residuals is not None and "anchors" in variances:
        scale = np.sqrt(variances["anchors"] / prior.residuals.shape[1])
        blocks["anchors"] = Shared(
            prior.residuals,
            scale * (np.ones(prior.residuals.shape[1]) if weights is None else np.sqrt(weights)),
        )
    if corpus.vectors is not None and "vectors" in variances:
        blocks["vectors"] = Shared(wide(corpus.vectors), variances["vectors"] ** 0.5)
    if corpus.words is not None and "words" in variances:
        blocks["words"] = Sparse(corpus.words, variances["words"] ** 0.5)
    if problem.queries.terms is not None and "terms" in variances:
        terms = _term_rows(problem)
        if terms.shape[1]:
            blocks["terms"] = Own(terms, np.eye(terms.shape[1]) * variances["terms"] ** 0.5)
    return blocks


def with_unit_variances(prior: Prior) -> Prior:
    return replace(prior, variances=dict.fromkeys(prior.variances, 1.0))


def regression_matrix(corpus: Corpus) -> np.ndarray:
    """Of the kernel regression on the anchor queries: K + ridge, (k_q, k_q)."""
    assert corpus.anchor_vectors is not None
    kernel = nearness(corpus.anchor_vectors, corpus.anchor_vectors).astype(np.float64)
    return kernel + RIDGE * np.eye(len(kernel))


def _regress_on_anchors(problem: Problem, prior: Prior) -> np.ndarray:
    """What the anchor queries predict for each query, above the item's mean: (Q, N)."""
    corpus, queries = problem.corpus, problem.queries
    assert corpus.anchor_scores is not None and corpus.anchor_vectors is not None
    assert queries.vectors is not None and prior.item_mean is not None
    near = nearness(queries.vectors, corpus.anchor_vectors)
    weights = np.linalg.solve(regression_matrix(corpus), near.T).T.astype(np.float32)
    return weights @ wide(corpus.anchor_scores) - weights.sum(axis=1, keepdims=True) * prior.item_mean


def _term_rows(problem: Problem) -> np.ndarray:
    """(Q, terms, N): the lexical score of each query term alone, in standard deviations of their sum."""
    queries = problem.queries
    assert queries.terms is not None and queries.lexical is not None
    spread = queries.lexical.std(axis=1)
    rows = np.zeros((len(queries), max(map(len, queries.terms), default=0), problem.corpus.size), np.float32)
    for query, terms in enumerate(queries.terms):
        for number, (positions, scores) in enumerate(terms):
            rows[query, number, positions] = scores / (spread[query] or 1.0)
    return rows
