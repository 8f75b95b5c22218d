"""What teachers say of some items for each query, on the mean of several: scorers, encoders, or known scores."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from crosscut.data.atomic import atomic_write
from crosscut.encoders import Encoder, as_encoder
from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.first_stage import top
from crosscut.scorers import as_scorer, option_types
from crosscut.scorers.model_files import files_digest
from crosscut.train.data import Examples
from crosscut.train.mining import ENCODER
from crosscut.train.negatives import Row

# Pairs that are scored, and written to disk, together: a GPU wants many, and a CPU takes its time for a few.
GPU_PAIRS, CPU_PAIRS = 65_536, 2_048
SCALE = 20.0  # a cosine times this is a score


class Teacher(Protocol):
    """Gives raw scores of pairs, whose queries and items are named by their positions among the examples.

    `pairs`: how many it is best asked about at once.
    """

    name: str
    pairs: int

    def digest(self) -> str: ...

    def scores(self, examples: Examples, queries: np.ndarray, items: np.ndarray) -> np.ndarray: ...


def as_teacher(obj: Any, device: str | None = None, scale: float = SCALE) -> Teacher:
    """A teacher of a score-matrix file (.npz), of an encoder (encoder:MODEL), or of whatever `as_scorer` takes.

    A model runs on `device`; `scale` is what cosines are multiplied by.

    >>> as_teacher(lambda query, texts: [0.0 for _ in texts]).name
    '<lambda>'
    """
    if isinstance(obj, str | Path) and str(obj).endswith(".npz"):
        return MatrixTeacher(obj)
    if isinstance(obj, str) and obj.startswith(ENCODER):
        return EncoderTeacher(as_encoder(obj.removeprefix(ENCODER), device), scale)
    options = {"device": device} if device and "device" in option_types(obj) else {}
    return ScorerTeacher(as_scorer(obj, **options))


class ScorerTeacher:
    """A scorer that is asked."""

    def __init__(self, scorer: Any) -> None:
        self.scorer, self.name = scorer, scorer.name
        self.pairs = GPU_PAIRS if str(getattr(scorer, "device", "")).startswith("cuda") else CPU_PAIRS

    def digest(self) -> str:
        return str(self.scorer.digest())

    def scores(self, examples: Examples, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
        pairs = zip(queries.tolist(), items.tolist(), strict=True)
        return self.scorer.score([(examples.queries[query], examples.items[item]) for query, item in pairs])


class EncoderTeacher:
    """An encoder: `scale` times the cosine of its vectors, of which each is made once.

    >>> from crosscut.encoders import GivenVectors
    >>> from crosscut.types import Item, Query
    >>> examples = Examples.of([Query("q", "sky")], [Item("a", "sky"), Item("b", "sea")], {"q": {"a": 1}})
    >>> teacher = EncoderTeacher(GivenVectors(["sky", "sea"], [[1.0, 0.0], [0.6, 0.8]]), scale=20)
    >>> teacher.scores(examples, np.array([0, 0]), np.array([0, 1])).round(2).tolist()
    [20.0, 12.0]
    """

    pairs = GPU_PAIRS

    def __init__(self, encoder: Encoder, scale: float) -> None:
        self._encoder, self._scale, self.name = encoder, scale, f"{ENCODER}{encoder.name}"
        self._examples: Examples | None = None

    def digest(self) -> str:
        digest = self._encoder.digest()
        return f"{ENCODER}{digest}*{self._scale}" if digest else ""

    def scores(self, examples: Examples, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
        if examples is not self._examples:
            self._examples = examples
            self._queries, self._items = _Vectors(examples.queries, "query"), _Vectors(examples.items, "item")
        sides = self._queries.of(self._encoder, queries), self._items.of(self._encoder, items)
        return (self._scale * np.einsum("nd,nd->n", *sides)).astype(np.float32)


class _Vectors:
    """Vectors of texts, made when they are first asked for and kept in half precision."""

    def __init__(self, texts: Sequence[str], role: Role) -> None:
        self._texts, self._role = texts, role
        self._is_known = np.zeros(len(texts), bool)
        self._table = np.zeros((0, 0), np.float16)

    def of(self, encoder: Encoder, places: np.ndarray) -> np.ndarray:
        new = np.unique(places[~self._is_known[places]])
        if len(new):
            made = encoder.encode([self._texts[place] for place in new.tolist()], self._role)
            if not len(self._table):
                self._table = np.zeros((len(self._texts), made.shape[1]), np.float16)
            self._table[new], self._is_known[new] = made, True
        return self._table[places].astype(np.float32)


class MatrixTeacher:
    """A score-matrix file whose queries and items are found by their ids."""

    pairs = GPU_PAIRS

    def __init__(self, path: str | Path) -> None:
        from crosscut.evaluate.matrix import Matrix

        self.name = str(path)
        matrix = Matrix.load(path)
        self._digest = files_digest([Path(path)])
        if matrix.query_ids is None or matrix.item_ids is None:
            raise CrosscutError(f"{path} cannot be a teacher: it has no query_ids and item_ids to find texts by")
        self._scores = matrix.scores
        self.rows = {str(id): row for row, id in enumerate(matrix.query_ids)}
        self._columns = {str(id): column for column, id in enumerate(matrix.item_ids)}

    def digest(self) -> str:
        return self._digest

    def scores(self, examples: Examples, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
        ids = [examples.item_ids[item] for item in items.tolist()]
        if lost := [id for id in ids if id not in self._columns]:
            raise CrosscutError(f"the score matrix {self.name} has no item {lost[0]!r}: it is of another data set")
        rows = [self.rows[examples.query_ids[query]] for query in queries.tolist()]
        return self._scores[rows, [self._columns[id] for id in ids]].astype(np.float32)


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

    What is scored is written at once to a folder next to `cache`, named for all that scores depend on, and read
    from there by a run that asks the same. `process` is which of how many this is: they share the work, and `wait`
    for each other.

    >>> import tempfile
    >>> from crosscut.types import Item, Query
    >>> items = [Item("a", "flood"), Item("b", "water"), Item("c", "waters")]
    >>> examples = Examples.of([Query("q", "water?")], items, {"q": {"a": 1}})
    >>> longest = as_teacher(lambda query, texts: [len(text) for text in texts])
    >>> ask([longest], examples, None, keep=2, cache=Path(tempfile.mkdtemp()) / "teacher").items.tolist()
    [[2, 0]]
    """
    cache = cache.with_name(f"{cache.name}-{_key(teachers, examples, candidates, keep)}")
    cache.mkdir(exist_ok=True)
    per_query = max(map(len, examples.pools)) if candidates is None else candidates.shape[1]
    size = max(1, min(teacher.pairs for teacher in teachers) // max(1, per_query))
    spans = _spans(cache, len(examples), size)
    todo = [span for span in spans if not _file(cache, span).exists()][process[0] :: process[1]]
    wait()  # until all processes have seen which spans are there
    total = sum(_pair_count(examples, candidates, span) for span in todo)
    with tqdm(
        total=total, unit="pair", unit_scale=True, desc="teacher", disable=None if progress else True
    ) as bar:
        for span in todo:
            items, scores = _best(teachers, examples, span, candidates, keep)
            with atomic_write(_file(cache, span), "wb") as handle:
                np.savez(handle, items=items, scores=scores)
            bar.update(_pair_count(examples, candidates, span))
    wait()
    read = [np.load(_file(cache, span), allow_pickle=False) for span in spans]
    return Taught(*(np.concatenate([part[name] for part in read]) for name in ("items", "scores")))


def _key(teachers: Sequence[Teacher], examples: Examples, candidates: np.ndarray | None, keep: int) -> str:
    about = [examples.digest(), [teacher.digest() or teacher.name for teacher in teachers], keep]
    sha = hashlib.sha256(repr(about).encode("utf-8", "surrogatepass"))
    sha.update(b"" if candidates is None else candidates.astype("<i4").tobytes())
    return sha.hexdigest()[:16]


def _file(cache: Path, span: range) -> Path:
    return cache / f"{span.start}-{span.stop}.npz"


def _spans(cache: Path, count: int, size: int) -> list[range]:
    """Queries whose scores are in one file: those that are there, and between them new ones of at most `size`."""
    there = (path.stem.split("-") for path in cache.glob("*-*.npz"))
    known = {int(start): int(stop) for start, stop in there}
    spans: list[range] = []
    while (start := spans[-1].stop if spans else 0) < count:
        limit = min((other for other in known if other > start), default=count)
        spans.append(range(start, known.get(start, min(start + size, limit))))
    return spans


def _pair_count(examples: Examples, candidates: np.ndarray | None, span: range) -> int:
    if candidates is not None:
        return int((candidates[span.start : span.stop] >= 0).sum())
    return sum(len(examples.pools[query]) for query in span)


def _best(
    teachers: Sequence[Teacher], examples: Examples, span: range, candidates: np.ndarray | None, keep: int
) -> tuple[np.ndarray, np.ndarray]:
    """Items and scores of the queries of a span, best first, as `Taught` has them."""
    table = _pool_table(examples, span) if candidates is None else candidates[span.start : span.stop]
    rows, columns = np.nonzero(table >= 0)
    pairs = rows + span.start, table[rows, columns]
    scores = np.full(table.shape, -np.inf, np.float32)
    scores[rows, columns] = np.mean([teacher.scores(examples, *pairs) for teacher in teachers], axis=0)
    best = top(scores, keep)
    room = (0, 0), (0, keep - best.shape[1])
    items = np.pad(np.take_along_axis(table, best, axis=1), room, constant_values=-1).astype(np.int32)
    kept = np.pad(np.take_along_axis(scores, best, axis=1), room)
    return items, np.where(items < 0, np.float32(0), kept)


def _pool_table(examples: Examples, span: range) -> np.ndarray:
    pools = [examples.pools[query] for query in span]
    table = np.full((len(span), max(map(len, pools))), -1)
    for row, pool in zip(table, pools, strict=True):
        row[: len(pool)] = np.arange(pool.start, pool.stop)
    return table


class TaughtRows:
    """Training rows: a query with `sample` of its items, drawn anew in every epoch, and the teachers' scores.

    A query that has fewer gives all of them.

    >>> taught = Taught(np.array([[2, 0, 1], [1, -1, -1]]), np.array([[3.0, 2.0, 1.0], [5.0, 0.0, 0.0]]))
    >>> rows = TaughtRows(taught, sample=2, seed=0)
    >>> rows[0].items.tolist(), rows[0].scores.tolist(), rows[1].items.tolist()
    ([0, 1], [2.0, 1.0], [1, -1])
    """

    def __init__(self, taught: Taught, sample: int | None, seed: int) -> None:
        self.taught, self.seed, self.epoch = taught, seed, 0
        most = taught.items.shape[1]
        self.sample = min(sample or most, most)

    def __len__(self) -> int:
        return len(self.taught.items)

    def __getitem__(self, query: int) -> Row:
        all_items, all_scores = self.taught.items[query], self.taught.scores[query]
        there = int((all_items >= 0).sum())
        generator = np.random.default_rng([self.seed, self.epoch, query])
        drawn = np.sort(generator.choice(there, min(self.sample, there), replace=False))
        items, scores = np.full(self.sample, -1, np.int64), np.zeros(self.sample, np.float32)
        items[: len(drawn)], scores[: len(drawn)] = all_items[drawn], all_scores[drawn]
        return Row(query, items, scores)
