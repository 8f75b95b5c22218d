"""Sharing tiles out among workers that may die."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from crosscut.errors import CrosscutError
from crosscut.index.executors.base import Scored, Task
from crosscut.index.executors.worker import Answer

if TYPE_CHECKING:
    from crosscut.scorers.base import Scorer

AHEAD = 2  # tiles that a worker has: one in work, and one to go on with at once
TRIES = 3


@dataclass(frozen=True)
class Lost:
    """A worker is no more."""

    why: str


class Crew(Protocol):
    """Workers by number, 0 to count − 1. Each answers once when it is ready, then to its tasks in order."""

    count: int
    patience: float | None  # seconds to wait for a first worker

    def start(self, number: int) -> None:
        """Start this worker, or another one in its place."""

    def give(self, number: int, task: Task) -> None: ...

    def wait(self, timeout: float | None) -> tuple[int, Answer | Lost] | None:
        """The next answer, or the next loss; None when there was neither."""

    def stop(self) -> None:
        """End all workers now."""


def share_out(crew: Crew, scorer: Scorer, tasks: Iterable[Task]) -> Scored:
    """Score tasks with a crew, whose workers are replaced when lost, and their tasks done by others.

    Calls and truncations of the workers are counted into `scorer`, the one at home.
    """
    rest = iter(tasks)
    first = next(rest, None)
    if first is None:
        return
    again = deque([first])  # what was given to nobody, or to a worker that is lost
    held: dict[int, deque[Task]] = {}  # what those workers have that are ready
    failed = [0] * crew.count  # starts of each worker that came to nothing, in a row
    try:
        for number in range(crew.count):
            crew.start(number)
        while True:
            _deal(crew, held, again, rest)
            if held and not any(held.values()):
                return
            event = crew.wait(None if held else crew.patience)
            if event is None:
                raise CrosscutError(f"no worker was ready within {crew.patience:g} s: see that they can start")
            number, answer = event
            if isinstance(answer, Lost):
                failed[number] += number not in held
                again += _taken_back(held.pop(number, deque()), answer)
                if failed[number] < TRIES:
                    crew.start(number)
                elif min(failed) >= TRIES:
                    raise CrosscutError(f"no worker can be started: {answer.why}, {TRIES} times")
                continue
            _count(scorer, answer)
            if answer.error:
                raise CrosscutError(answer.error)
            if answer.scores is None:
                held[number], failed[number] = deque(), 0
            else:
                yield held[number].popleft(), answer.scores
    finally:
        crew.stop()


def _deal(crew: Crew, held: dict[int, deque[Task]], again: deque[Task], rest: Iterator[Task]) -> None:
    """Give the workers what they have room for, first to those who have least."""
    while held:
        number = min(held, key=lambda number: len(held[number]))
        if len(held[number]) == AHEAD:
            return
        task = again.popleft() if again else next(rest, None)
        if task is None:
            return
        held[number].append(task)
        crew.give(number, task)


def _taken_back(tasks: deque[Task], lost: Lost) -> deque[Task]:
    if tasks:
        tasks[0].losses += 1  # the others had not been begun
        if tasks[0].losses >= TRIES:
            raise CrosscutError(
                f"{TRIES} workers have ended over the tile {tasks[0].tile.name} ({lost.why}): "
                "if they ran out of memory, use fewer workers"
            )
    return tasks


def _count(scorer: Scorer, answer: Answer) -> None:
    scorer.calls += answer.calls
    if answer.truncated:
        scorer.truncated = getattr(scorer, "truncated", 0) + answer.truncated  # type: ignore[attr-defined]
