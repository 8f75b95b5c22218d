"""Lexical scores as sums of per-term weights: what BM25 and TF-IDF have in common."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from crosscut.data.atomic import atomic_write
from crosscut.errors import CrosscutError

StopWords: TypeAlias = "str | Sequence[str] | None"

_ARRAYS = ("starts", "positions", "weights", "idf")


@dataclass(frozen=True, eq=False)
class TermIndex:
    """Which items a word speaks for, and how loudly. Made by `BM25(texts)` or `TFIDF(texts)`.

    The items of term t are `positions[starts[t]:starts[t + 1]]`, in ascending order, and `weights` runs
    parallel. With `idf`, a query is weighted as an item is (TF-IDF), so that `scores` is a cosine; without, a
    query term weighs as often as the query says it (BM25).

    >>> from crosscut.first_stage import TFIDF
    >>> index = TFIDF(["blue whale", "blue sky", ""])
    >>> print(len(index), index.scores("Whale!").round(2))
    3 [0.8 0.  0. ]
    """

    vocabulary: dict[str, int]
    starts: np.ndarray
    positions: np.ndarray
    weights: np.ndarray
    n_items: int
    stopwords: StopWords
    idf: np.ndarray | None = None

    def __len__(self) -> int:
        return self.n_items

    def scores(self, query: str) -> np.ndarray:
        """One score per item, float32; all zero when the query has no known word.

        >>> from crosscut.first_stage import BM25
        >>> BM25(["blue whale", "blue sky"]).scores("grey").tolist()
        [0.0, 0.0]
        """
        total = np.zeros(self.n_items, dtype=np.float32)
        for positions, weights in self.term_scores(query):
            total[positions] += weights
        return total

    def term_scores(self, query: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """What each distinct known word of the query adds, and to which items; these sum to `scores(query)`.

        >>> from crosscut.first_stage import BM25
        >>> [positions.tolist() for positions, _ in BM25(["blue whale", "blue sky"]).term_scores("sky blue")]
        [[1], [0, 1]]
        """
        terms, query_weights = self._weigh_query(query)
        spans = [slice(self.starts[term], self.starts[term + 1]) for term in terms]
        return [
            (self.positions[span], self.weights[span] * weight)
            for span, weight in zip(spans, query_weights, strict=True)
        ]

    def unit_rows(self) -> csr_matrix:
        """The items' term weights as rows of unit length, less the terms of a single item: they relate nothing.

        >>> from crosscut.first_stage import BM25
        >>> BM25(["blue whale", "blue sky", "blue"]).unit_rows().toarray().tolist()
        [[1.0], [1.0], [1.0]]
        """
        shape = (self.n_items, len(self.starts) - 1)
        by_term = csc_matrix((self.weights, self.positions, self.starts), shape=shape)
        rows = by_term[:, np.flatnonzero(np.diff(self.starts) > 1)].tocsr().astype(np.float32)
        lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).ravel()
        lengths[lengths == 0] = 1.0
        rows.data /= np.repeat(lengths, np.diff(rows.indptr))
        return rows

    def _weigh_query(self, query: str) -> tuple[np.ndarray, np.ndarray]:
        words = tokenize([query], self.stopwords)[0]
        counts = Counter(self.vocabulary[word] for word in words if word in self.vocabulary)
        terms = np.fromiter(counts.keys(), dtype=np.int64, count=len(counts))
        weights = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))
        if self.idf is not None and len(terms):
            weights = (1 + np.log(weights)) * self.idf[terms]
            weights /= np.linalg.norm(weights)
        return terms, weights

    def save(self, folder: str | Path) -> None:
        """Write `terms.json` and one .npy file per array into `folder`, which is made if need be.

        >>> import tempfile
        >>> from crosscut.first_stage import BM25
        >>> folder = tempfile.mkdtemp()
        >>> BM25(["blue whale", "blue sky"]).save(folder)
        >>> len(TermIndex.load(folder))
        2
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CrosscutError(f"cannot make the folder {folder}: {error.strerror}") from error
        for name in _ARRAYS:
            if (array := getattr(self, name)) is not None:
                with atomic_write(folder / f"{name}.npy", "wb") as file:
                    np.save(file, array, allow_pickle=False)
        stopwords = self.stopwords
        about = {
            "format": 1,
            "weighting": "bm25" if self.idf is None else "tfidf",
            "items": self.n_items,
            "stopwords": stopwords if stopwords is None or isinstance(stopwords, str) else list(stopwords),
            "terms": list(self.vocabulary),
        }
        with atomic_write(folder / "terms.json") as text_file:
            json.dump(about, text_file)

    @classmethod
    def load(cls, folder: str | Path) -> TermIndex:
        """Open what `save` wrote; the arrays stay on disk, memory-mapped.

        >>> TermIndex.load("no/such/folder")
        Traceback (most recent call last):
        crosscut.errors.CrosscutError: no term index in no/such/folder: terms.json is missing
        """
        folder = Path(folder)
        try:
            about = json.loads((folder / "terms.json").read_text(encoding="utf-8"))
            names = _ARRAYS if about["weighting"] == "tfidf" else _ARRAYS[:-1]
            arrays = {name: _map_array(folder / f"{name}.npy") for name in names}
            vocabulary = {term: number for number, term in enumerate(about["terms"])}
            index = cls(vocabulary, n_items=about["items"], stopwords=about["stopwords"], **arrays)
        except FileNotFoundError as error:
            name = Path(error.filename).name
            raise CrosscutError(f"no term index in {folder}: {name} is missing") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(folder) from error
        sizes_agree = len(index.starts) == len(vocabulary) + 1 and (
            index.starts[-1] == len(index.positions) == len(index.weights)
        )
        if not sizes_agree or (index.idf is not None and len(index.idf) != len(vocabulary)):
            raise _damaged(folder)
        return index


def tokenize(texts: Sequence[str], stopwords: StopWords) -> list[list[str]]:
    """Lower-case words of two letters and more, less the stop words: a language's ("en"), your own, or None.

    >>> tokenize(["The whale, a mammal"], "en")
    [['whale', 'mammal']]
    """
    ids, vocabulary = tokenize_to_ids(texts, stopwords)
    words = list(vocabulary)
    return [[words[i] for i in text_ids] for text_ids in ids]


def tokenize_to_ids(texts: Sequence[str], stopwords: StopWords) -> tuple[list[list[int]], dict[str, int]]:
    """As `tokenize`, but a word is its number in the vocabulary, which comes second.

    >>> tokenize_to_ids(["big blue whale", "blue blue"], None)
    ([[0, 1, 2], [1, 1]], {'big': 0, 'blue': 1, 'whale': 2})
    """
    import bm25s

    if isinstance(texts, str):
        raise CrosscutError("expected a list of texts, but got one string: put it in a list")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise CrosscutError(f"text {position} is a {type(text).__name__}, not a string")
    words = stopwords if stopwords is None or isinstance(stopwords, str) else list(stopwords)
    try:
        tokens = bm25s.tokenize(list(texts), stopwords=words, show_progress=False)
    except ValueError as error:
        raise CrosscutError(
            f"no stop words for {stopwords!r}: give a language such as 'en', your own list of words, or None"
        ) from error
    return tokens.ids, tokens.vocab


def _map_array(path: Path) -> np.ndarray:
    if path.stat().st_size == 0:
        raise ValueError("an empty file")
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _damaged(folder: Path) -> CrosscutError:
    return CrosscutError(f"the term index in {folder} is damaged: make it again from the texts")
