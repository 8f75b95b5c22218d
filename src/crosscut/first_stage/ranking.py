"""From scores to positions. The one tie rule: higher score first, then lower position.

Every function takes the scores of one query, (N,), or of several, (Q, N), and works along the last axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crosscut.errors import CrosscutError


def ranking(scores: np.ndarray) -> np.ndarray:
    """All positions, best first.

    >>> import numpy as np
    >>> ranking(np.array([0.1, 0.9, 0.9])).tolist()
    [1, 2, 0]
    """
    return np.argsort(-_checked(scores), axis=-1, kind="stable")


def top(scores: np.ndarray, k: int) -> np.ndarray:
    """The first `k` positions of `ranking(scores)`, without sorting the rest; all of them if there are fewer.

    >>> import numpy as np
    >>> top(np.array([0.5, 0.9, 0.5, 0.5]), 2).tolist()
    [1, 0]
    """
    scores = _checked(scores)
    if k < 0:
        raise CrosscutError(f"k must not be negative, but is {k}")
    if k >= scores.shape[-1]:
        return ranking(scores)
    if k == 0:
        return np.empty((*scores.shape[:-1], 0), dtype=np.intp)
    rows = np.atleast_2d(scores)
    cut = np.partition(rows, -k, axis=1)[:, -k, None]
    chosen = rows >= cut
    if np.count_nonzero(chosen) > len(rows) * k:
        # Ties: the places left after everything above the cut go to the lowest positions at the cut.
        above, at_cut = rows > cut, rows == cut
        places = k - above.sum(axis=1, keepdims=True)
        chosen = above | (at_cut & (np.cumsum(at_cut, axis=1, dtype=np.int32) <= places))
    positions = np.nonzero(chosen)[1].reshape(len(rows), k)
    order = ranking(np.take_along_axis(rows, positions, axis=1))
    return np.take_along_axis(positions, order, axis=1).reshape(*scores.shape[:-1], k)


def reciprocal_rank_fusion(score_arrays: Sequence[np.ndarray], constant: float = 60) -> np.ndarray:
    """Fuse several score arrays of one shape: the sum of 1 / (constant + rank), ranks counted from 1.

    The result is float64: in float32 the far ends of long rankings would tie.

    >>> import numpy as np
    >>> fused = reciprocal_rank_fusion([np.array([3.0, 2.0, 1.0]), np.array([0.0, 9.0, 5.0])])
    >>> ranking(fused).tolist()
    [1, 0, 2]
    """
    shapes = {np.shape(scores) for scores in score_arrays}
    if len(shapes) != 1:
        raise CrosscutError(f"fusion needs score arrays of one shape, but got {sorted(shapes) or 'no arrays'}")
    if constant < 0:
        raise CrosscutError(f"the constant of the fusion must not be negative, but is {constant}")
    shape = shapes.pop()
    shares = np.broadcast_to(1.0 / (constant + np.arange(1, shape[-1] + 1)), shape)
    fused = np.zeros(shape, dtype=np.float64)
    for scores in score_arrays:
        part = np.empty(shape, dtype=np.float64)
        np.put_along_axis(part, ranking(scores), shares, axis=-1)
        fused += part
    return fused


def random_scores(n: int, rng: np.random.Generator) -> np.ndarray:
    """Scores whose ranking is a random order of `n` items, each order equally likely.

    >>> import numpy as np
    >>> random_scores(3, np.random.default_rng(0)).shape
    (3,)
    """
    return rng.random(n)


def _checked(scores: np.ndarray) -> np.ndarray:
    scores = np.asarray(scores)
    if scores.ndim not in (1, 2):
        raise CrosscutError(f"scores must have the shape (items,) or (queries, items), but have {scores.shape}")
    if not np.issubdtype(scores.dtype, np.floating):
        scores = scores.astype(np.float64)
    if np.isnan(scores).any():
        raise CrosscutError(f"{np.isnan(scores).sum()} of the scores to rank are not numbers (NaN)")
    return scores
