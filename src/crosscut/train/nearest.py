"""The items whose vectors are nearest, of many queries at once: on a GPU if there is one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crosscut.first_stage import dense_scores, top

BLOCK = 256  # queries whose scores are in memory at once
GPU_SCORES = 1 << 28  # scores that are in the memory of a GPU at once


def by_vectors(
    queries: np.ndarray, items: np.ndarray, depth: int, without: Sequence[np.ndarray], device: str | None = None
) -> np.ndarray:
    """The places of the `depth` items with the largest inner products, on a GPU if there is one.

    >>> by_vectors(np.eye(2), np.eye(2), 2, [np.array([0]), np.array([], int)]).tolist()
    [[1, -1], [1, 0]]
    """
    depth = min(depth, len(items))
    if (gpu := _gpu(device)) is not None:
        return _by_vectors_on(gpu, queries, items, depth, without)
    found = np.empty((len(queries), depth), np.int32)
    for start in range(0, len(queries), BLOCK):
        block = slice(start, start + BLOCK)
        scores = dense_scores(items, queries[block])
        for row, places in zip(scores, without[block], strict=True):
            row[places] = -np.inf
        best = top(scores, depth)
        found[block] = np.where(np.isneginf(np.take_along_axis(scores, best, axis=1)), -1, best)
    return found


def _gpu(device: str | None) -> str | None:
    if device is not None:
        return device if device.startswith("cuda") else None
    try:
        import torch
    except ImportError:
        return None
    return "cuda" if torch.cuda.is_available() else None


def _by_vectors_on(
    device: str, queries: np.ndarray, items: np.ndarray, depth: int, without: Sequence[np.ndarray]
) -> np.ndarray:
    import torch

    columns = torch.as_tensor(items, dtype=torch.float32, device=device).T
    size = max(1, GPU_SCORES // max(1, len(items)))
    found = np.empty((len(queries), depth), np.int32)
    for start in range(0, len(queries), size):
        block = slice(start, start + size)
        scores = torch.as_tensor(queries[block], dtype=torch.float32, device=device) @ columns
        rows = np.repeat(np.arange(len(scores)), [len(places) for places in without[block]])
        left_out = np.concatenate([np.zeros(0, np.int64), *without[block]])
        scores[torch.as_tensor(rows, device=device), torch.as_tensor(left_out, device=device)] = -torch.inf
        values, best = scores.topk(depth, dim=1)
        found[block] = best.masked_fill(values == -torch.inf, -1).cpu().numpy()
    return found
