"""What teachers say of some items for each query: scorers, or matrices of known scores, on the mean of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from crosscut.data.atomic import atomic_write
from crosscut.errors import CrosscutError
from crosscut.first_stage import top
from crosscut.scorers import as_scorer
from crosscut.train.data import Examples
from crosscut.train.negatives import Row

BLOCK = 32  # queries whose scores are written to disk together


class Teacher(Protocol):
    """Gives raw scores of items, which are named by their positions among the examples."""

    name: str

    def digest(self) -> str: ...

    def scores(self, examples: Examples, query: int, items: np.ndarray) -> np.ndarray: ...


def as_teacher(obj: Any) -> Teacher:
    """A teacher of a score-matrix file (.npz), or of whatever `as_scorer` takes.

    >>> as_teacher(lambda query, texts: [0.0 for _ in texts]).name
    '<lambda>'
    """
    if isinstance(obj, str | Path) and str(obj).endswith(".npz"):
        return MatrixTeacher(obj)
    return ScorerTeacher(as_scorer(obj))


class ScorerTeacher:
    """A scorer that is asked."""

    def __init__(self, scorer: Any) -> None:
        self.scorer, self.name = scorer, scorer.name

    def digest(self) -> str:
        return str(self.scorer.digest())

    def scores(self, examples: Examples, query: int, items: np.ndarray) -> np.ndarray:
        return self.scorer.score([(examples.queries[query], examples.items[item]) for item in items])


class MatrixTeacher:
    """A score-matrix file whose queries and items are found by their ids."""

    def __init__(self, path: str | Path) -> None:
        from crosscut.evaluate.matrix import Matrix

        self.name = str(path)
        matrix = Matrix.load(path)
        if matrix.query_ids is None or matrix.item_ids is None:
            raise CrosscutError(f"{path} cannot be a teacher: it has no query_ids and item_ids to find texts by")
        self._scores = matrix.scores
        self.rows = {str(id): row for row, id in enumerate(matrix.query_ids)}
        self._columns = {str(id): column for column, id in enumerate(matrix.item_ids)}

    def digest(self) -> str:
        return ""

    def scores(self, examples: Examples, query: int, items: np.ndarray) -> np.ndarray:
        ids = [examples.item_ids[item] for item in items]
        if lost := [id for id in ids if id not in self._columns]:
            raise CrosscutError(f"the score matrix {self.name} has no item {lost[0]!r}: it is of another data set")
        row = self._scores[self.rows[examples.query_ids[query]]]
        return row[[self._columns[id] for id in ids]].astype(np.float32)


def known_to(teachers: Sequence[Teacher], examples: Examples) -> Examples:
    """The examples whose queries all teachers know: a matrix knows some, a scorer knows all.

    >>> from crosscut.types import Item, Query
    >>> examples = Examples.of([Query("q", "water?")], [Item("a", "flood")], {"q": {"a": 1}})
    >>> len(known_to([as_teacher(lambda query, texts: [0.0 for _ in texts])], examples))
    1
    """
    matrices = [teacher for teacher in teachers if isinstance(teacher, MatrixTeacher)]
    return examples.take(
        place for place, id in enumerate(examples.query_ids) if all(id in matrix.rows for matrix in matrices)
    )


@dataclass(frozen=True)
class Taught:
    """For each query some items, the teachers' best first, and their scores. A short row ends with items -1."""

    items: np.ndarray
    scores: np.ndarray

    @property
    def shortest(self) -> int:
        """Items that every query has."""
        return int((self.items >= 0).sum(axis=1).min())


def ask(
    teachers: Sequence[Teacher],
    examples: Examples,
    candidates: np.ndarray | None,
    keep: int,
    cache: Path,
    *,
    process: tuple[int, int] = (0, 1),
    wait: Callable[[], None] = lambda: None,
    progress: bool = False,
) -> Taught:
    """Score the `candidates` of each query (None: all items of its pool) and keep the best `keep`.

    What is scored is written to the folder `cache` at once, and read from there by a run that continues. `process`
    is which of how many this is: they share the work, and `wait` for each other.

    >>> import tempfile
    >>> from crosscut.types import Item, Query
    >>> items = [Item("a", "flood"), Item("b", "water"), Item("c", "waters")]
    >>> examples = Examples.of([Query("q", "water?")], items, {"q": {"a": 1}})
    >>> longest = as_teacher(lambda query, texts: [len(text) for text in texts])
    >>> ask([longest], examples, None, keep=2, cache=Path(tempfile.mkdtemp())).items.tolist()
    [[2, 0]]
    """
    cache.mkdir(exist_ok=True)
    index, count = process
    starts = range(0, len(examples), BLOCK)
    files = [cache / f"{start}.npz" for start in starts]
    mine = [(start, file) for start, file in zip(starts, files, strict=True) if start // BLOCK % count == index]
    todo = [(start, file) for start, file in mine if not file.exists()]
    for start, file in tqdm(todo, unit="block", desc="teacher", disable=None if progress else True):
        rows = [
            _best(teachers, examples, query, None if candidates is None else candidates[query], keep)
            for query in range(start, min(start + BLOCK, len(examples)))
        ]
        with atomic_write(file, "wb") as handle:
            np.savez(handle, items=np.stack([items for items, _ in rows]), scores=np.stack([s for _, s in rows]))
    wait()
    read = [np.load(file, allow_pickle=False) for file in files]
    return Taught(*(np.concatenate([part[name] for part in read]) for name in ("items", "scores")))


def _best(
    teachers: Sequence[Teacher], examples: Examples, query: int, candidates: np.ndarray | None, keep: int
) -> tuple[np.ndarray, np.ndarray]:
    pool = examples.pools[query]
    items = np.arange(pool.start, pool.stop) if candidates is None else candidates[candidates >= 0]
    scores = np.mean([teacher.scores(examples, query, items) for teacher in teachers], axis=0)
    best = top(scores, keep)
    row = np.full(keep, -1, np.int32), np.zeros(keep, np.float32)
    row[0][: len(best)], row[1][: len(best)] = items[best], scores[best]
    return row


class TaughtRows:
    """Training rows: a query with `sample` of its items, drawn anew in every epoch, and the teachers' scores.

    >>> taught = Taught(np.array([[2, 0, 1]]), np.array([[3.0, 2.0, 1.0]]))
    >>> row = TaughtRows(taught, sample=None, seed=0)[0]
    >>> row.items.tolist(), row.scores.tolist()
    ([2, 0, 1], [3.0, 2.0, 1.0])
    """

    def __init__(self, taught: Taught, sample: int | None, seed: int) -> None:
        self.taught, self.seed, self.epoch = taught, seed, 0
        # As many for every query, so that they fill a table.
        self.sample = min(sample or taught.shortest, taught.shortest)

    def __len__(self) -> int:
        return len(self.taught.items)

    def __getitem__(self, query: int) -> Row:
        items, scores = self.taught.items[query], self.taught.scores[query]
        there = int((items >= 0).sum())
        generator = np.random.default_rng([self.seed, self.epoch, query])
        drawn = np.sort(generator.choice(there, self.sample, replace=False))
        return Row(query, items[drawn].astype(np.int64), scores[drawn])
