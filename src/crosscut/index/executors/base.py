"""What an executor is: tasks in, scores out, in whatever order they get done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.index.tiles import Grid, Tile

if TYPE_CHECKING:
    from crosscut.scorers.base import Scorer

# Queries × items that are some seconds of work: a kill costs little, and handling the tile costs nothing.
TILES = {"cuda": (32, 4096), "cpu": (16, 128)}
OTHER_TILE = (16, 1024)


@dataclass(eq=False)
class Task:
    """One tile to score, with its own texts only: the corpus need not fit into a worker."""

    grid: Grid
    tile: Tile
    queries: Sequence[str]
    items: Sequence[str]
    losses: int = 0  # workers that ended while they had it in work


Scored = Generator[tuple[Task, np.ndarray], None, None]


class Executor(ABC):
    """Scores tiles somewhere. It writes nothing: whoever asks keeps what comes back.

    >>> from crosscut.index.executors import as_executor
    >>> from crosscut.scorers import as_scorer
    >>> scorer = as_scorer(lambda query, texts: [float(query in text) for text in texts])
    >>> grid = Grid("scores/x", rows=1, columns=2, tile=(1, 2))
    >>> task = Task(grid, grid.tiles()[0], ["fire"], ["flood", "fire"])
    >>> [scores.tolist() for _, scores in as_executor("local").run(scorer, [task])]
    [[[0.0, 1.0]]]
    """

    @abstractmethod
    def run(self, scorer: Scorer, tasks: Iterable[Task]) -> Scored:
        """Every task with its scores, as they come; `tasks` is read only a little ahead of them."""

    @abstractmethod
    def count(self, scorer: Scorer) -> int:
        """How many workers there will be."""

    @abstractmethod
    def check(self, scorer: Scorer) -> None:
        """Refuse a scorer that no worker could be given, before anything is begun."""

    def device(self, scorer: Scorer) -> str:
        """Where the model will run: "cuda", "cpu", or "" where there is no telling."""
        return str(getattr(scorer, "device", "")).partition(":")[0]

    def tile(self, scorer: Scorer) -> tuple[int, int]:
        """The shape of tiles (anchor queries, items) for a build that is not told another."""
        return TILES.get(self.device(scorer), OTHER_TILE)


def check_workers(workers: int | None) -> int | None:
    """
    >>> check_workers(0)
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: workers must be a whole number of at least 1, but is 0
    """
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise CrosscutError(f"workers must be a whole number of at least 1, but is {workers!r}")
    return workers
