"""A scorer and an encoder without a model, and small inputs for them."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import numpy as np

from crosscut.types import Item, Query


def numbers(text: str, count: int) -> list[float]:
    digest = hashlib.sha256(text.encode()).digest()
    return [(byte - 128) / 16 for byte in digest[:count]]


class FakeScorer:
    """Scores by hash. Logs every pair, can be slow, and can fail at the n-th call of `score`."""

    name = "fake"

    def __init__(self, log: Path | None = None, seconds: float = 0.0, fail_at: int = 0, scale: float = 1.0):
        self.log, self.seconds, self.fail_at, self.scale = log, seconds, fail_at, scale
        self.calls = 0
        self.batches = 0
        self.error: BaseException | None = None

    def digest(self) -> str:
        return "cafe"

    def options(self) -> dict[str, int]:
        return {}

    def score(self, pairs):
        self.batches += 1
        if self.batches == self.fail_at:
            raise self.error
        for query, item in pairs:
            time.sleep(self.seconds)
            if self.log:
                with open(self.log, "a") as file:
                    file.write(f"{query}\t{item}\n")
        self.calls += len(pairs)
        return np.array([numbers(q + "|" + i, 1)[0] * self.scale for q, i in pairs], np.float32)


class FakeEncoder:
    name = "fake-encoder"

    def __init__(self, width: int = 4):
        self.width = width
        self.texts = 0

    def digest(self) -> str:
        return "beef"

    def encode(self, texts, role="item"):
        self.texts += len(texts)
        return np.array([numbers(role + text, self.width) for text in texts], np.float32)


def make_items(count: int, prefix: str = "i") -> list[Item]:
    return [Item(f"{prefix}{n}", f"text {prefix}{n}", title="Title" if n % 2 else "") for n in range(count)]


def make_queries(count: int, prefix: str = "q") -> list[Query]:
    return [Query(f"{prefix}{n}", f"question {prefix}{n}") for n in range(count)]


def expected_scores(queries: list[str], items: list[Item]) -> np.ndarray:
    return np.array([[numbers(q + "|" + i.content, 1)[0] for i in items] for q in queries]).reshape(
        len(queries), len(items)
    )


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but the lock."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "crosscut.lock"
    }
