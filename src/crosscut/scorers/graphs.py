"""CUDA graphs: the kernels of a batch are recorded once and then started by a single call.

A graph has fixed shapes, so a batch is filled up to the next of a few sizes: tokens that belong to no pair, and
pairs of length 0. The big batches of a long job fill their size but for the last few tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

SMALLEST = 256  # tokens


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    sent: torch.Tensor
    scores: torch.Tensor


class Graphs:
    """`forward(sent, size, longest)` as graphs, one for each shape that comes up."""

    def __init__(self, forward: Callable[[torch.Tensor, int, int], torch.Tensor], device: str) -> None:
        self._forward, self._device = forward, device
        self._key: object = None
        self._forget()

    def _forget(self) -> None:
        torch.cuda.synchronize(self._device)  # none of them may be running
        self._recorded: dict[tuple[int, int, int], _Recorded] = {}
        self._pool = torch.cuda.graph_pool_handle()  # graphs run one after the other and may share memory

    def run(self, sent: torch.Tensor, size: int, longest: int, key: object) -> torch.Tensor:
        """Scores of the pairs `sent`; graphs that were recorded under another `key` are out of date."""
        if self._key is not key:
            self._forget()
            self._key = key
        count = sent.shape[1]
        shape = (round_up(size, SMALLEST), _power(count), -(-longest // 64) * 64)
        if shape not in self._recorded:
            self._recorded[shape] = self._record(sent, shape)
        recorded = self._recorded[shape]
        recorded.sent[:, :count] = sent
        recorded.sent[:, count:] = 0
        recorded.graph.replay()
        return recorded.scores[:count].clone()

    def _record(self, sent: torch.Tensor, shape: tuple[int, int, int]) -> _Recorded:
        size, count, longest = shape
        static = torch.zeros(len(sent), count, dtype=sent.dtype, device=self._device)
        static[:, : sent.shape[1]] = sent
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self._forward(static, size, longest)  # compiles what has to be compiled
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            scores = self._forward(static, size, longest)
        return _Recorded(graph, static, scores)


def round_up(size: int, smallest: int) -> int:
    """The next of smallest × 1, 1.25, 1.5, 1.75, 2, 2.5, 3, …: at most a quarter is filled up.

    >>> [round_up(size, 256) for size in (1, 256, 257, 600, 65_500)]
    [256, 256, 320, 640, 65536]
    """
    quarter = max(smallest // 4, _power(size) // 8)
    return max(smallest, -(-size // quarter) * quarter)


def _power(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()
