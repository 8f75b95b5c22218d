"""The estimator against the textbook formulas, however the observations come in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from crosscut.search.blocks import Own, Shared, Sparse
from crosscut.search.estimator import Estimator, LeastSquares, minimum_norm

pytestmark = pytest.mark.filterwarnings("error")
EXAMPLES = settings(deadline=None, max_examples=60, derandomize=True)
SEEDS = st.integers(0, 10_000)
SPLITS = st.lists(st.integers(1, 6), min_size=1, max_size=5)

QUERIES, ITEMS = 3, 40


def feed(fit, positions: np.ndarray, scores: np.ndarray, sizes: list[int]) -> None:
    ends = np.cumsum(sizes)
    for start, end in zip(ends - sizes, ends, strict=True):
        fit.add(positions[:, start:end], scores[:, start:end])


def draw(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.stack([rng.permutation(ITEMS)[:count] for _ in range(QUERIES)])


class Blocks:
    """One block of each kind, and the kernel (Q, N, N) that they mean together."""

    def __init__(self, rng: np.random.Generator) -> None:
        features = rng.normal(size=(ITEMS, 5))
        scale = rng.uniform(0.2, 2.0, size=(QUERIES, 5))
        own = rng.normal(size=(QUERIES, 3, ITEMS))
        root = np.tril(rng.normal(size=(3, 3)))
        words = rng.normal(size=(ITEMS, 12)) * (rng.random((ITEMS, 12)) < 0.3)
        self.blocks = [Shared(features, scale), Own(own, root), Sparse(csr_matrix(words), 0.7)]
        self.kernel = np.stack(
            [
                features @ np.diag(scale[query] ** 2) @ features.T
                + own[query].T @ root @ root.T @ own[query]
                + 0.7**2 * words @ words.T
                for query in range(QUERIES)
            ]
        )


def kernel_ridge(
    kernel: np.ndarray, mean: np.ndarray, noise: float, known: np.ndarray, y: np.ndarray
) -> np.ndarray:
    gram = kernel[np.ix_(known, known)] + noise * np.eye(len(known))
    return mean + kernel[:, known] @ np.linalg.solve(gram, y - mean[known])


@EXAMPLES
@given(seed=SEEDS, sizes=SPLITS, noise=st.sampled_from([0.01, 0.3, 5.0]))
def test_all_blocks_together_are_kernel_ridge_regression(seed, sizes, noise):
    rng = np.random.default_rng(seed)
    blocks, mean = Blocks(rng), rng.normal(size=(QUERIES, ITEMS))
    fit = Estimator(QUERIES, blocks.blocks, noise=noise, capacity=sum(sizes), mean=mean, dtype=np.float64)
    known = draw(rng, sum(sizes))
    y = 10 * rng.normal(size=known.shape)
    feed(fit, known, y, sizes)
    for query, estimates in enumerate(fit.estimate()):
        expected = kernel_ridge(blocks.kernel[query], mean[query], noise, known[query], y[query])
        np.testing.assert_allclose(estimates, expected, rtol=1e-6, atol=1e-6)


@EXAMPLES
@given(seed=SEEDS, sizes=SPLITS)
def test_without_a_mean_the_first_batch_gives_the_level(seed, sizes):
    rng = np.random.default_rng(seed)
    blocks = Blocks(rng)
    fit = Estimator(QUERIES, blocks.blocks, noise=0.3, capacity=sum(sizes), dtype=np.float64)
    known = draw(rng, sum(sizes))
    y = rng.normal(size=known.shape) - 50.0
    feed(fit, known, y, sizes)
    for query, estimates in enumerate(fit.estimate()):
        level = np.full(ITEMS, y[query, : sizes[0]].mean())
        expected = kernel_ridge(blocks.kernel[query], level, 0.3, known[query], y[query])
        np.testing.assert_allclose(estimates, expected, rtol=1e-6, atol=1e-6)


def test_estimates_between_batches_are_those_of_the_observations_so_far():
    rng = np.random.default_rng(0)
    blocks, mean = Blocks(rng), np.zeros((QUERIES, ITEMS))
    fit = Estimator(QUERIES, blocks.blocks, noise=0.1, capacity=20, mean=mean, dtype=np.float64)
    known, y = draw(rng, 20), rng.normal(size=(QUERIES, 20))
    for end in range(4, 21, 4):
        fit.add(known[:, end - 4 : end], y[:, end - 4 : end])
        expected = kernel_ridge(blocks.kernel[1], mean[1], 0.1, known[1, :end], y[1, :end])
        np.testing.assert_allclose(fit.estimate()[1], expected, rtol=1e-6, atol=1e-6)


@EXAMPLES
@given(seed=SEEDS, sizes=SPLITS, width=st.integers(1, 25), kind=st.sampled_from(["full", "copies", "rank 2"]))
def test_least_squares_equals_lstsq(seed, sizes, width, kind):
    """Also with more items than features, with items that are copies of others, and with features of rank 2."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(ITEMS, width))
    if kind == "copies":
        features = features[np.arange(ITEMS) // 2]
    elif kind == "rank 2":
        features = (rng.integers(-3, 4, (ITEMS, 2)) @ rng.integers(-3, 4, (2, width))).astype(float)
    fit = LeastSquares(QUERIES, Shared(features), capacity=sum(sizes))
    known = draw(rng, sum(sizes))
    y = rng.normal(size=known.shape)
    feed(fit, known, y, sizes)
    for query, estimates in enumerate(fit.estimate()):
        weights = np.linalg.lstsq(features[known[query]], y[query], rcond=1e-10)[0]
        expected = features @ weights
        tolerance = 1e-6 * (1 + np.abs(expected).max())
        np.testing.assert_allclose(estimates, expected, rtol=0, atol=tolerance)


def test_dependent_items_of_one_query_leave_the_others_alone():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(6, 4))
    features[1] = features[0]
    known = np.array([[0, 1, 2], [2, 3, 4]])
    y = rng.normal(size=(2, 3))
    fit = LeastSquares(2, Shared(features), capacity=3)
    feed(fit, known, y, [2, 1])
    for query, estimates in enumerate(fit.estimate()):
        np.testing.assert_allclose(estimates, features @ np.linalg.pinv(features[known[query]]) @ y[query])


@EXAMPLES
@given(seed=SEEDS, rows=st.integers(1, 12), columns=st.integers(1, 12), copies=st.booleans())
def test_minimum_norm_is_the_pseudo_inverse(seed, rows, columns, copies):
    rng = np.random.default_rng(seed)
    features, y = rng.normal(size=(rows, columns)), rng.normal(size=rows)
    if copies:
        features[:, -1] = features[:, 0]
    expected = np.linalg.pinv(features, rcond=1e-10) @ y
    tolerance = 1e-6 * (1 + np.abs(expected).max())
    np.testing.assert_allclose(minimum_norm(features, y), expected, rtol=0, atol=tolerance)
