"""What the experiments share while they run: a clock, steps that are done once, and rows of scores."""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from crosscut.data.atomic import atomic_write
from crosscut.scorers import Scorer

BLOCK = 262_144  # pairs that are scored in one call
PROBE = 20  # steps that are timed
SPARE = 60  # seconds that are not planned: to load models, mine negatives, evaluate, write


def run_command(parser: argparse.ArgumentParser, report: argparse.ArgumentParser) -> None:
    """Read the command line, and do what it says; `report` also gets the flags that all reports have."""
    report.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="for tables (.md) and plots (.svg)"
    )
    report.add_argument("--page", type=Path, metavar="FILE", help="put the tables between its marks")
    args = parser.parse_args()
    args.run(args)


class Clock:
    """Seconds since the start, and how many are left of `minutes` (None: no end)."""

    def __init__(self, minutes: float | None = None) -> None:
        self._start = perf_counter()
        self._limit = float("inf") if minutes is None else 60 * minutes
        self.times: dict[str, float] = {}

    def now(self) -> float:
        return perf_counter() - self._start

    def left(self) -> float:
        return self._limit - self.now()

    def say(self, *words: Any) -> None:
        print(f"[{self.now():6.1f} s]", *words, flush=True)

    @contextmanager
    def step(self, name: str, may_fail: bool = False) -> Iterator[None]:
        """A step of the run; one that `may_fail` leaves the others their time."""
        begun = self.now()
        self.say(name, "...")
        try:
            yield
        except Exception:
            if not may_fail:
                raise
            traceback.print_exc()
        self.times[name] = round(self.now() - begun, 1)
        self.say(name, "took", self.times[name], "s")


@contextmanager
def encoding(precision: str | None) -> Iterator[None]:
    """Encode and compare in bf16 on a CPU too, where a training was asked for it."""
    import torch

    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        yield


def is_trained(folder: Path) -> bool:
    """Whether a training has written its model there."""
    return (folder / "training.json").is_file()


@dataclass(frozen=True)
class Training:
    """How many steps are planned, how many seconds each takes, and how many models take as many."""

    steps: int
    each: float
    models: int = 1

    def within(self, seconds: float, least: int = 100) -> int:
        """The steps of each model that fit into so many seconds for all: `least`, if that is planned, in any case.

        >>> Training(1000, each=0.1).within(60), Training(1000, each=0.1, models=2).within(60)
        (600, 300)
        """
        fitting = seconds / self.each / self.models
        return self.steps if fitting >= self.steps else max(min(least, self.steps), int(fitting))


def share_out(seconds: float, encoder: Training, cross: Training) -> dict[str, int]:
    """Steps of the bi-encoder, which gets 30 % of the time at most, and of the cross-encoders.

    >>> share_out(100, Training(100, each=0.1), Training(1000, each=0.1))
    {'encoder': 100, 'cross': 900}
    """
    steps = encoder.within(0.3 * seconds)
    return {"encoder": steps, "cross": cross.within(seconds - steps * encoder.each)}


def seconds_per_step(train: Callable[..., object]) -> float:
    """Of `train(steps, eval_every=steps)`, without what comes before and after the steps."""
    train(3, eval_every=3)  # whatever is slow only once
    taken = []
    for steps in (3, 3 + PROBE):
        begun = perf_counter()
        train(steps, eval_every=steps)
        taken.append(perf_counter() - begun)
    return max(taken[1] - taken[0], 0.001) / PROBE


def pairs_per_second(scorer: Scorer, queries: Sequence[str], items: Sequence[str]) -> float:
    """How fast a model scores pairs of these texts; takes a second or two."""
    count, took = 1024, 0.0
    scorer.score(list(islice(product(queries, items), count)))  # whatever is slow only once
    while took < 1 and count < 2**20:
        count *= 4
        pairs = list(islice(product(queries, items), count))
        begun = perf_counter()
        scorer.score(pairs)
        took = perf_counter() - begun
    return len(pairs) / took


def score_rows(scorer: Scorer, queries: Sequence[str], items: Sequence[str]) -> np.ndarray:
    """Every query (row) with every item, float32."""
    size = max(1, BLOCK // len(items))
    blocks = [queries[start : start + size] for start in range(0, len(queries), size)]
    rows = [scorer.score([(q, i) for q in block for i in items]).reshape(len(block), -1) for block in blocks]
    return np.concatenate(rows)


def in_half(scores: np.ndarray) -> dict[str, np.ndarray]:
    """Scores in float16 without losing what tells them apart: [EMB] scores can lie near 100, where it has steps
    of 1/16. Each row is kept as its mean and what differs from it; see `from_half`.

    >>> print(from_half(in_half(np.array([[100.01, 100.02]]))).round(2))
    [[100.01 100.02]]
    """
    means = scores.mean(axis=1, dtype=np.float64)
    return {"scores": (scores - means[:, None]).astype(np.float16), "means": means.astype(np.float32)}


def from_half(arrays: Any) -> np.ndarray:
    """The scores of `in_half`, float32."""
    return arrays["scores"].astype(np.float32) + arrays["means"][:, None]


def score_lists(
    scorer: Scorer, queries: Sequence[str], items: Sequence[str], candidates: np.ndarray
) -> np.ndarray:
    """Every query with its own candidates (queries x candidates, positions of items), float32."""
    size = max(1, BLOCK // candidates.shape[1])
    rows = []
    for start in range(0, len(queries), size):
        block = candidates[start : start + size]
        pairs = [(query, items[at]) for query, row in zip(queries[start:], block, strict=False) for at in row]
        rows.append(scorer.score(pairs).reshape(block.shape))
    return np.concatenate(rows)


def as_int8(vectors: np.ndarray) -> np.ndarray:
    """Directions of vectors in a quarter of the room; a score matrix scales its rows to unit length anyway.

    >>> as_int8(np.array([[0.6, -0.8]])).tolist()
    [[95, -127]]
    """
    return np.round(127 * vectors / np.abs(vectors).max(axis=1, keepdims=True).clip(1e-9)).astype(np.int8)


def save(path: Path, array: np.ndarray | None = None, **arrays: Any) -> None:
    """An .npy of one array or an .npz of several, whole or not at all."""
    with atomic_write(path, "wb") as file:
        if array is not None:
            np.save(file, array, allow_pickle=False)
        else:
            np.savez_compressed(file, **arrays)


def note(path: Path, **values: Any) -> None:
    """Add to the JSON object in a file."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    with atomic_write(path) as file:
        json.dump(known | values, file, indent=1)
