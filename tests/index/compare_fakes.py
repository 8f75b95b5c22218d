"""Compare models without torch: one row per item, and one per word."""

from __future__ import annotations

import hashlib

import numpy as np
from search_fakes import vector

from crosscut.compare import Comparer, ItemVectors


class OneRow(Comparer):
    """Candidates see each other: a score is the product with the query, less that of the candidates' mean."""

    kind, per_item = "one-row", 1

    def __init__(self, salt: str = "", width: int = 8, fail_at: int = 0) -> None:
        self.salt, self.width, self.name = salt, width, f"{self.kind}{salt}"
        self.items = self.batches = self.query_batches = self.passes = 0
        self.fail_at, self.error = fail_at, RuntimeError("boom")
        self.largest = 0

    def digest(self) -> str:
        return hashlib.sha256(f"{self.kind}-{self.salt}-{self.width}".encode()).hexdigest()[:16]

    def rows(self, text: str) -> np.ndarray:
        return np.resize(vector(text, self.salt), self.width)[None]

    def _encode(self, texts, role, progress):
        if role == "query":
            self.query_batches += 1
        else:
            self.batches += 1
            if self.batches == self.fail_at:
                raise self.error
            self.items += len(texts)
        made = [self.rows(text) for text in texts]
        return ItemVectors(np.concatenate(made), np.cumsum([0, *map(len, made)]))

    def _score(self, queries, candidates):
        self.passes += 1
        self.largest = max([self.largest, *map(len, candidates)])
        return [self.compare(queries.take([n]).rows, items) for n, items in enumerate(candidates)]

    def compare(self, query: np.ndarray, items: ItemVectors) -> np.ndarray:
        products = items.rows.astype(np.float64) @ query[0].astype(np.float64)
        return products - products.mean()


class Words(OneRow):
    """A row per word, and a sum of maxima; candidates do not see each other."""

    kind, per_item = "words", None

    def rows(self, text: str) -> np.ndarray:
        return np.stack([np.resize(vector(word, self.salt), self.width) for word in text.split() or [""]])

    def compare(self, query: np.ndarray, items: ItemVectors) -> np.ndarray:
        products = query.astype(np.float64) @ items.rows.astype(np.float64).T
        return np.add.reduceat(np.maximum.reduceat(products, items.starts[:-1], axis=1), [0], axis=0)[0]


def truth(model: OneRow, query: str, texts: list[str]) -> np.ndarray:
    """The scores of all texts in one pass, without an index."""
    return model.score(model.encode_queries([query]), [model.encode_items(texts)])[0]
