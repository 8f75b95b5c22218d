"""A scorer, an encoder and a corpus to search in, small and without a model, but not without structure."""

from __future__ import annotations

import hashlib

import numpy as np

from crosscut import Item
from crosscut.scorers import as_scorer

_RNG = np.random.default_rng(3)
WORDS = [f"word{number}" for number in range(40)]


def make_texts(count: int, length: int) -> list[str]:
    return [" ".join(_RNG.choice(WORDS, length, replace=False)) for _ in range(count)]


ITEMS = [
    Item(f"i{n}", text, title=WORDS[n] if n % 3 == 0 and n < 40 else "")
    for n, text in enumerate(make_texts(60, 6))
]
ANCHORS = make_texts(14, 4)  # enough to learn from
QUERIES = make_texts(4, 4)


def vector(text: str, salt: str = "") -> np.ndarray:
    """The sum of one fixed vector per word."""
    total = np.zeros(8)
    for word in text.split():
        digest = hashlib.sha256((salt + word).encode("utf-8", "surrogatepass")).digest()
        total += np.frombuffer(digest, np.uint8)[:8] / 128.0 - 1.0
    return total


class Words:
    """f(query, texts): a product of word vectors, and what words they share. Keeps every pair it has scored."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []

    def __call__(self, query: str, texts: list[str]) -> list[float]:
        self.pairs += [(query, text) for text in texts]
        return [words_score(query, text) for text in texts]

    def scorer(self):
        return as_scorer(self, name="words")

    def asked(self, query: str) -> list[str]:
        return [text for asked, text in self.pairs if asked == query]


def words_score(query: str, text: str) -> float:
    shared = set(query.split()) & set(text.split())
    return float(vector(query) @ vector(text) / 8 + 2 * len(shared) - 5)


class Vectors:
    """An encoder that sees part of what the scorer sees."""

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.stack([np.append(vector(text)[:4], vector(text, "other")[:2]) for text in texts])


def best(query: str, items: list[Item] = ITEMS) -> list[tuple[str, float]]:
    """The truth, by a plain sort."""
    scored = [(item.id, float(np.float32(words_score(query, item.content)))) for item in items]
    return sorted(scored, key=lambda pair: -pair[1])


def found(result) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in result]
