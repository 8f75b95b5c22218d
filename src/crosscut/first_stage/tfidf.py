"""TF-IDF with cosine similarity."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from crosscut.first_stage.terms import StopWords, TermIndex, tokenize_to_ids


def TFIDF(texts: Sequence[str], stopwords: StopWords = "en") -> TermIndex:
    """Index `texts` so that `scores(query)` is the cosine between TF-IDF vectors.

    A word weighs (1 + log tf) · idf with idf = 1 + log((1 + N) / (1 + df)), which is never zero, so that a
    word that every item has still counts.

    >>> print(TFIDF(["blue whale", "blue sky", "grey sky"]).scores("blue whale").round(2))
    [1.   0.43 0.  ]
    """
    from scipy import sparse

    ids, vocabulary = tokenize_to_ids(texts, stopwords)
    lengths = [len(text_ids) for text_ids in ids]
    rows = np.repeat(np.arange(len(texts)), lengths)
    columns = np.fromiter(chain.from_iterable(ids), dtype=np.int64, count=sum(lengths))
    ones = np.ones(len(rows), dtype=np.float64)
    counts = sparse.coo_matrix((ones, (rows, columns)), shape=(len(texts), len(vocabulary))).tocsc()
    counts.sum_duplicates()  # sorts the positions of each term as well

    items_with_term = np.diff(counts.indptr)
    idf = 1 + np.log((1 + len(texts)) / (1 + items_with_term))
    weights = (1 + np.log(counts.data)) * np.repeat(idf, items_with_term)
    lengths_squared = np.bincount(counts.indices, weights=weights**2, minlength=len(texts))
    weights /= np.sqrt(lengths_squared)[counts.indices]
    return TermIndex(
        vocabulary=vocabulary,
        starts=counts.indptr.astype(np.int64),
        positions=counts.indices.astype(np.int32),
        weights=weights.astype(np.float32),
        n_items=len(texts),
        stopwords=stopwords,
        idf=idf.astype(np.float32),
    )
