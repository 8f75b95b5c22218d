"""Searching a score matrix: methods compared at equal budgets, with no model in the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any
from zipfile import BadZipFile

import numpy as np
from tqdm import tqdm

from crosscut.data import read_items, read_queries
from crosscut.encoders.base import to_unit_length
from crosscut.errors import CrosscutError
from crosscut.first_stage import BM25, TermIndex, top
from crosscut.index.int8 import quantise, restore
from crosscut.index.manifest import FORMATS
from crosscut.index.tiles import compact
from crosscut.search import make_plan, settings_of
from crosscut.search.learn import learn
from crosscut.search.loop import run
from crosscut.search.problem import Corpus, Problem, Queries, batches

COMPARE = "compare"  # the name of the compare model whose scores a matrix has


@dataclass(frozen=True)
class Row:
    """What one method found of the true top k, on the mean of the test queries."""

    method: str
    anchors: int
    budget: int
    k: int
    recall: float
    calls: float
    overhead_ms: float


@dataclass(frozen=True)
class Matrix:
    """A score-matrix file: the first `anchors` rows are anchor queries, the others test queries."""

    scores: np.ndarray
    anchors: int
    item_embeddings: np.ndarray | None = None
    query_embeddings: np.ndarray | None = None
    lexical_scores: np.ndarray | None = None
    compare_scores: np.ndarray | None = None
    item_ids: np.ndarray | None = None
    query_ids: np.ndarray | None = None

    @classmethod
    def load(cls, path: str | Path) -> Matrix:
        """Read and check an .npz file.

        >>> Matrix.load("no.npz")
        Traceback (most recent call last):
        crosscut.errors.CrosscutError: there is no file no.npz
        """
        if not Path(path).is_file():
            raise CrosscutError(f"there is no file {path}")
        try:
            with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files if name in cls.__dataclass_fields__}
        except (OSError, ValueError, EOFError, KeyError, BadZipFile, AttributeError, TypeError) as error:
            raise CrosscutError(f"{path} is not a readable .npz file: {error}") from error
        for name in ("scores", "anchors"):
            if name not in arrays:
                raise CrosscutError(f"{path} has no array {name!r}: a score-matrix file needs scores and anchors")
        anchors = arrays.pop("anchors")
        if anchors.size != 1 or not np.issubdtype(anchors.dtype, np.integer):
            raise CrosscutError(f"{path}: anchors must be one whole number")
        return cls(**arrays, anchors=int(anchors.reshape(())))._checked(path)

    def _checked(self, path: str | Path) -> Matrix:
        if self.scores.ndim != 2 or not self.scores.size:
            raise CrosscutError(f"{path}: scores must be (queries, items), but have shape {self.scores.shape}")
        queries, items = self.scores.shape
        if not 0 <= self.anchors < queries:
            raise CrosscutError(f"{path}: {self.anchors} of {queries} rows are anchors: no test query is left")
        lengths = {
            "item_embeddings": items,
            "query_embeddings": queries,
            "lexical_scores": queries,
            "compare_scores": queries,
            "item_ids": items,
            "query_ids": queries,
        }
        for name, length in lengths.items():
            array = getattr(self, name)
            if array is not None and len(array) != length:
                raise CrosscutError(f"{path}: {name} has {len(array)} rows, but there should be {length}")
        for name in ("scores", "item_embeddings", "query_embeddings", "lexical_scores", "compare_scores"):
            array = getattr(self, name)
            if array is not None and not (array.ndim == 2 and np.issubdtype(array.dtype, np.number)):
                raise CrosscutError(f"{path}: {name} must be a table of numbers, not {array.dtype} {array.shape}")
            if array is not None and not np.isfinite(array).all():
                query, item = np.argwhere(~np.isfinite(array))[0]
                raise CrosscutError(f"{path}: {name} is not finite at row {query}, column {item}")
            if name in ("lexical_scores", "compare_scores") and array is not None and array.shape[1] != items:
                raise CrosscutError(f"{path}: {name} has {array.shape[1]} columns, but there should be {items}")
        return self


def bench_matrix(
    matrix: Matrix,
    methods: Sequence[str],
    budgets: Sequence[int],
    ks: Sequence[int],
    *,
    anchors: int | None = None,
    data: str | Path | None = None,
    seeds: Sequence[int] = (0,),
    store: str | None = None,
    signal: bool = True,
    progress: bool = False,
    **settings: Any,
) -> list[Row]:
    """Run every method at every budget on the test queries; figures are means over `seeds`.

    `anchors`: use the first so many of the anchor queries. `data`: a BEIR folder, to join texts by id.
    `store`: round the anchor scores as an index that keeps them as float16 or int8; None takes them as they are.
    `signal`: whether the default goes by the compare model's scores, if there are any.
    `settings` (rounds, first) go to the methods that know them.

    >>> matrix = Matrix(np.random.default_rng(0).normal(size=(20, 50)), anchors=10)
    >>> [(row.method, row.k, row.recall) for row in bench_matrix(matrix, ["exact"], [5], [1])]
    [('exact', 1, 1.0)]
    """
    anchors = matrix.anchors if anchors is None else anchors
    _check(matrix, methods, budgets, ks, anchors)
    if store not in (None, *FORMATS):
        raise CrosscutError(f"scores are stored as {' or '.join(FORMATS)}, not as {store!r}")
    bench = MatrixBench(matrix, anchors, data, store, signal)
    truth = top(matrix.scores[matrix.anchors :].astype(np.float32), max(ks))
    rows = []
    runs = [(method, budget) for method in methods for budget in budgets]
    # disable=None: tqdm shows nothing unless stderr is a terminal.
    for method, budget in tqdm(runs, unit=" runs", disable=None if progress else True):
        known = {name: value for name, value in settings.items() if name in settings_of(method)}
        found = [bench.run(method, budget, seed, known) for seed in seeds]
        for k in ks:
            recall = np.mean(
                [[np.isin(t[:k], f).mean() for t, f in zip(truth, one.positions, strict=True)] for one in found]
            )
            calls, overhead = np.mean([[one.positions.shape[1], one.overhead] for one in found], axis=0)
            rows.append(Row(method, anchors, budget, k, float(recall), float(calls), float(1000 * overhead)))
    return rows


@dataclass(frozen=True)
class _Found:
    positions: np.ndarray  # (test queries, calls)
    overhead: float  # seconds per query beside scoring


class MatrixBench:
    """The matrix as a corpus, its rows as anchor queries and test queries."""

    def __init__(
        self, matrix: Matrix, anchors: int, data: str | Path | None, store: str | None = None, signal: bool = True
    ) -> None:
        self.matrix = matrix
        self.terms: TermIndex | None = None
        self.texts: list[str] = []
        if data:
            self.terms, self.texts = _join_texts(matrix, data)
        vectors = self._vectors(matrix.item_embeddings)
        self.anchors = self._queries(range(anchors))
        self.corpus = Corpus(
            size=matrix.scores.shape[1],
            vectors=vectors,
            words=self.terms.unit_rows() if self.terms else None,
            anchor_scores=_as_stored(matrix.scores[:anchors], store) if anchors else None,
            anchor_vectors=self.anchors.vectors if anchors and vectors is not None else None,
            compare=(COMPARE,) if signal and matrix.compare_scores is not None else (),
        )
        self.test = self._queries(range(matrix.anchors, len(matrix.scores)))
        self._learned: dict[int, Corpus] = {}

    def run(self, method: str, budget: int, seed: int, settings: dict[str, Any]) -> _Found:
        corpus = self.learned(seed) if method == "crosscut" else self.corpus
        positions, seconds = [], 0.0
        for batch in batches(len(self.test), corpus.size):
            problem = Problem(corpus, self.test[batch], seed=seed)
            rows = np.arange(self.matrix.anchors, len(self.matrix.scores))[batch]
            start = perf_counter()
            plan = make_plan(method, problem, budget, **settings)
            outcome = run(problem, plan, partial(_look_up, self.matrix.scores, rows))
            seconds += perf_counter() - start - outcome.seconds.scoring
            positions.append(np.concatenate([scored.positions for scored in outcome.rounds], axis=1))
        return _Found(np.concatenate(positions), seconds / len(self.test))

    def learned(self, seed: int) -> Corpus:
        """What an index would have learned when it was built."""
        if seed not in self._learned:
            self._learned[seed] = replace(self.corpus, prior=learn(self.corpus, self.anchors, seed))
        return self._learned[seed]

    def _queries(self, rows: range) -> Queries:
        lexical, terms = None, None
        if self.terms is not None:
            terms = [self.terms.term_scores(self.texts[row]) for row in rows]
            lexical = np.array([self.terms.scores(self.texts[row]) for row in rows], np.float32)
        if self.matrix.lexical_scores is not None:
            lexical = self.matrix.lexical_scores[rows.start : rows.stop].astype(np.float32)
        compare = {}
        if self.matrix.compare_scores is not None:
            compare[COMPARE] = self.matrix.compare_scores[rows.start : rows.stop].astype(np.float32)
        return Queries(rows, self._vectors(self.matrix.query_embeddings, rows), lexical, terms, compare)

    def _vectors(self, vectors: np.ndarray | None, rows: range | None = None) -> np.ndarray | None:
        if vectors is None or self.matrix.item_embeddings is None or self.matrix.query_embeddings is None:
            return None
        return to_unit_length(vectors if rows is None else vectors[rows.start : rows.stop])


def _as_stored(scores: np.ndarray, store: str | None) -> np.ndarray:
    """The scores after they were written to an index and read again."""
    if store == "int8":
        return restore(quantise(compact(scores)))
    return compact(scores) if store == "float16" else scores


def _look_up(scores: np.ndarray, rows: np.ndarray, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
    return scores[rows[queries], items]


def _check(
    matrix: Matrix, methods: Sequence[str], budgets: Sequence[int], ks: Sequence[int], anchors: int
) -> None:
    for method in methods:
        settings_of(method)
    for name, values in (("budget", budgets), ("k", ks)):
        if not values:
            raise CrosscutError(f"no {name} is given")
        if min(values) < 1:
            raise CrosscutError(f"{name} must be at least 1, but is {min(values)}")
    if max(ks) > matrix.scores.shape[1]:
        raise CrosscutError(f"k is {max(ks)}, but the matrix has only {matrix.scores.shape[1]} items")
    if not 0 <= anchors <= matrix.anchors:
        raise CrosscutError(f"the matrix has {matrix.anchors} anchor queries, but {anchors} are asked for")


def _join_texts(matrix: Matrix, data: str | Path) -> tuple[TermIndex, list[str]]:
    """A term index over the items' texts, and the queries' texts, both in the order of the matrix."""
    if matrix.item_ids is None or matrix.query_ids is None:
        raise CrosscutError("texts are joined by item_ids and query_ids, and the matrix lacks them")
    items = {item.id: item.content for item in read_items(data)}
    queries = {query.id: query.text for query in read_queries(data)}
    for kind, ids, texts in (("item", matrix.item_ids, items), ("query", matrix.query_ids, queries)):
        missing = [str(id) for id in ids if str(id) not in texts]
        if missing:
            raise CrosscutError(
                f"{data} lacks {len(missing)} of the matrix's {kind} ids, the first of them {missing[0]!r}"
            )
    return BM25([items[str(id)] for id in matrix.item_ids]), [queries[str(id)] for id in matrix.query_ids]
