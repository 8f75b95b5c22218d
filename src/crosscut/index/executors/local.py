"""Tiles scored in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from crosscut.index.executors.base import Executor, Scored, Task
from crosscut.index.tiles import score_tile

if TYPE_CHECKING:
    from crosscut.scorers.base import Scorer


class LocalExecutor(Executor):
    """This process, with the scorer as it is.

    >>> from crosscut.scorers import as_scorer
    >>> LocalExecutor().count(as_scorer(lambda query, texts: [0.0 for _ in texts]))
    1
    """

    def check(self, scorer: Scorer) -> None:
        pass  # it stays where it is

    def count(self, scorer: Scorer) -> int:
        return 1

    def run(self, scorer: Scorer, tasks: Iterable[Task]) -> Scored:
        for task in tasks:
            yield task, score_tile(scorer, task.queries, task.items)
