"""BM25, by the library bm25s."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crosscut.first_stage.terms import StopWords, TermIndex, tokenize_to_ids


def BM25(texts: Sequence[str], stopwords: StopWords = "en", k1: float = 1.5, b: float = 0.75) -> TermIndex:
    """Index `texts` with BM25 weights in Lucene's variant.

    `stopwords` is a language, a list of words, or None to keep every word.

    >>> print(BM25(["blue whale", "blue sky", "grey sky"]).scores("blue whale").round(2))
    [0.58 0.19 0.  ]
    """
    ids, vocabulary = tokenize_to_ids(texts, stopwords)
    if not vocabulary:  # bm25s cannot index a corpus without a single word
        nothing = np.zeros(0, dtype=np.int32)
        return TermIndex({}, np.zeros(1, np.int64), nothing, nothing.astype(np.float32), len(texts), stopwords)
    import bm25s

    model = bm25s.BM25(k1=k1, b=b, method="lucene", backend="numpy")
    model.index((ids, dict(vocabulary)), show_progress=False)  # a copy: bm25s adds the word "" to it
    return TermIndex(
        vocabulary=vocabulary,
        starts=np.asarray(model.scores["indptr"], dtype=np.int64),
        positions=np.asarray(model.scores["indices"], dtype=np.int32),
        weights=np.asarray(model.scores["data"], dtype=np.float32),
        n_items=len(texts),
        stopwords=stopwords,
    )
