"""Rank and spectrum of score matrices, and what CUR makes of them."""

from __future__ import annotations

import numpy as np

from crosscut.evaluate.matrix import Matrix
from crosscut.first_stage import top
from crosscut.search.anncur import item_vectors


def centred(scores: np.ndarray) -> np.ndarray:
    """Without the means of queries and of items: what is left decides how each query differs from the others.

    A loss that compares the items of one query leaves the level of its scores open, and with it the largest
    singular value, against which a rank is measured.

    >>> centred(np.array([[1.0, 2.0], [5.0, 6.0]])).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    rows, columns = scores.mean(axis=1, keepdims=True), scores.mean(axis=0, keepdims=True)
    return scores - rows - columns + scores.mean()


def singular_values(scores: np.ndarray) -> np.ndarray:
    """Largest first, by the smaller Gram matrix: a fraction of the time of a full decomposition.

    >>> singular_values(np.diag([3.0, 4.0])).tolist()
    [4.0, 3.0]
    """
    wide = scores.astype(np.float64)
    gram = wide @ wide.T if len(wide) <= wide.shape[1] else wide.T @ wide
    return np.sqrt(np.linalg.eigvalsh(gram)[::-1].clip(min=0))


def shape_of(scores: np.ndarray) -> tuple[int, int, int, float]:
    """Rank as NumPy has it for float32, vectors for 90 % and for 99 % of the energy, and the effective rank.

    The effective rank is the exponential of the entropy of the energy's shares.

    >>> shape_of(np.diag([2.0, 2.0]))
    (2, 2, 2, 2.0)
    """
    values = singular_values(scores)
    tolerance = values[0] * max(scores.shape) * np.finfo(np.float32).eps  # that of numpy.linalg.matrix_rank
    shares = values**2 / (values**2).sum()
    within = [int(np.searchsorted(np.cumsum(shares), share - 1e-12) + 1) for share in (0.9, 0.99)]
    positive = shares[shares > 0]
    effective = float(np.exp(-(positive * np.log(positive)).sum()))
    return int((values > tolerance).sum()), *within, round(effective, 6)


def approximation(matrix: Matrix, queries: int, items: int, retrieved: int = 500) -> tuple[float, float, float]:
    """ANNCUR on the test rows: the first `queries` anchor queries (k_q), `items` random anchor items (k_i).

    Gives ‖M − M̃‖ / ‖M‖ (Figure 8), the same with the centred M below, and how many of the true top 10 are among
    the first `retrieved` by estimate (Figure 6: Top-10-Recall@500). Means over three draws of the anchor items.
    """
    features, test = matrix.scores[:queries].T.astype(np.float64), matrix.scores[matrix.anchors :]
    truth, made = top(test, 10), []
    for seed in range(3):
        anchors = np.random.default_rng(seed).permutation(len(features))[:items]
        estimate = test[:, anchors] @ item_vectors(features, anchors).T
        error = np.linalg.norm(test - estimate)
        found = top(estimate, retrieved)
        recall = np.mean([np.isin(row, one).mean() for row, one in zip(truth, found, strict=True)])
        made.append((error / np.linalg.norm(test), error / np.linalg.norm(centred(test)), recall))
    first, second, third = np.mean(made, axis=0)
    return float(first), float(second), float(third)
