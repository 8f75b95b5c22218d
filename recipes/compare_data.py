"""The tasks of the experiment with compare models: data to learn from and to test on, and the models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from entity_linking_data import WINDOW, read_worlds

from crosscut.compare import KINDS
from crosscut.train.data import Examples
from crosscut.train.splits import read_examples

STARTS = ("base", "encoder", "vanilla")  # what the encoder of a model begins as
DEPTH = 1024  # items of the first stage that are kept of every test query
RERANKED = 64  # of them, where a model is the last stage
MANY = (64, 128, 256, 512, 1024)  # candidates that CMC compares, to see what more of them give
WIDE = 512  # candidates of an intermediate stage
SOURCES = (64, 256, 512)  # candidates of CMC before the cross-encoder
CALLS = (8, 16, 64)  # of the cross-encoder
CHUNK = 256  # candidates that are compared with each other, where CMC is measured in this way, too
LINES = {  # whose time is measured
    "query": "the query's encoding alone",
    "cmc": "CMC",
    "chunked": f"CMC, in chunks of {CHUNK:,}",
    "at hand": "CMC, items' vectors where it runs",
    "cross": "cross-encoder",
    "predict": "cross-encoder, `CrossEncoder.predict`",
}


@dataclass(frozen=True)
class Task:
    """A kind of data. `limits`: tokens that a cross-encoder reads. `candidates`: of a query in training."""

    limits: Mapping[str, int]
    max_length: int
    candidates: int
    batch_size: int
    units: tuple[str, ...]
    has_stage: bool = True  # a first stage finds candidates; or else they are given, and negatives random
    reranked: int = RERANKED

    def training(self) -> dict[str, Any]:
        """Arguments of `train_compare` that the data asks for."""
        return {} if self.has_stage else {"negatives": "random", "regularise": "none"}


@dataclass(frozen=True)
class Variant:
    """A compare model to train. `start`: None is that of the run. `counts`: candidates that it is tested on."""

    kind: str
    label: str
    model: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    start: str | None = None
    counts: tuple[int, ...] = (RERANKED, WIDE)


NAMES = {
    "cmc": "CMC",
    "poly": "Poly-encoder",
    "sum-of-max": "Sum-of-max",
    "deformer": "DeFormer",
    "mix": "MixEncoder",
    "bi": "bi-encoder",
}
ABLATIONS = {
    "cmc-no-skip": Variant("cmc", "without the extra skip connection", model={"skip": "none"}),
    "cmc-mean-skip": Variant("cmc", "skip connection as an average", model={"skip": "mean"}),
    "cmc-no-kl": Variant("cmc", "without regularisation", training={"regularise": "none"}),
    "cmc-reverse-kl": Variant("cmc", "KL(r‖p) instead of KL(p‖r)", training={"regularise": "reverse"}),
    "cmc-less-kl": Variant("cmc", "λ2 = 0.1", training={"regularise_weight": 0.1}),
    "cmc-more-kl": Variant("cmc", "λ2 = 0.8", training={"regularise_weight": 0.8}),
    "cmc-fixed": Variant("cmc", "without sampling: always the first", training={"top_share": 1.0}),
    "cmc-drawn": Variant("cmc", "all negatives drawn, none always there", training={"top_share": 0.0}),
    "cmc-two-encoders": Variant("cmc", "an encoder each for queries and items", training={"two_encoders": True}),
    "cmc-free": Variant("cmc", "the encoder of items learns, too", training={"fixed_items": False}),
    "cmc-marks": Variant("cmc", "with marks of query and candidate", model={"marks": True}),
}
COUNTS = {"cmc": MANY, "deformer": (RERANKED,)}  # a DeFormer is too slow for many
VARIANTS = {kind: Variant(kind, NAMES[kind], counts=COUNTS.get(kind, (RERANKED, WIDE))) for kind in KINDS}
VARIANTS |= ABLATIONS
VARIANTS |= {
    f"{kind}-from-{start}": Variant(kind, NAMES[kind], start=start, counts=(RERANKED,))
    for kind in KINDS
    for start in STARTS
}
PEERS = ("poly", "sum-of-max", "mix", "deformer", "bi")
TASKS = {
    "linking": Task(
        {"query_tokens": 96, "item_tokens": 64},
        max_length=96,
        candidates=64,
        batch_size=64,
        units=("encoder", "first", "cmc", "cross", "final", "time", "curve", "join", *PEERS, *ABLATIONS),
    ),
    "passages": Task(
        {"query_tokens": 48, "item_tokens": 160},
        max_length=160,
        candidates=32,
        batch_size=32,
        units=("encoder", "first", "cmc", *PEERS, "cross", "final", "join"),
    ),
    "replies": Task(
        {"query_tokens": 96, "item_tokens": 64},
        max_length=128,
        candidates=8,
        batch_size=64,
        units=("cmc", *PEERS, "cross", "final"),
        has_stage=False,
        reranked=100,
    ),
}

REPORTED = {  # runs that a report can have
    "linking": "entity linking, by definitions alone",
    "easy": "entity linking with --easy",
    "brief": "entity linking behind a bi-encoder that was trained for a short time",
    "public": "entity linking behind a bi-encoder of no domain (--encoder)",
    "passages": "passages",
    "public_passages": "passages behind a bi-encoder of no domain",
    "scifact": "passages of another data set",
    "replies": "replies",
}
WEAK = ("brief", "public", "public_passages", "scifact")  # whose first stage knows little of the data


@dataclass(frozen=True)
class Part:
    """Queries to test on, with the items that they are tested on: a world, or all there is."""

    name: str
    examples: Examples

    @cached_property
    def _answers(self) -> np.ndarray:
        """The kinds of the items that answer each query, filled up with -1."""
        answers = [np.unique(self.examples.answers(query)) for query in range(len(self.examples))]
        table = np.full((len(answers), max(map(len, answers))), -1)
        for row, kinds in zip(table, answers, strict=True):
            row[: len(kinds)] = kinds
        return table

    def drawn(self, most: int, seed: int) -> Part:
        """At most so many of the queries, by chance."""
        order = np.random.default_rng(seed).permutation(len(self.examples))
        return Part(self.name, self.examples.take(np.sort(order[:most]).tolist()))

    def right(self, items: np.ndarray) -> np.ndarray:
        """Whether each of some items (queries x items, -1 for none) answers the query, or has the text of one."""
        kinds = np.append(self.examples.kinds, -2)[items]
        return (kinds[..., None] == self._answers[:, None]).any(axis=-1)


def read_parts(task: str, data: Path) -> list[Part]:
    """What a task is tested on, the smallest world first."""
    if task == "linking":
        return [Part(world.name, world.examples) for world in read_worlds(data)]
    return [Part(task, read_examples(data, "test", window=WINDOW))]


def drawn_candidates(part: Part, count: int, seed: int) -> np.ndarray:
    """For each query the item that answers it and others at random, all of different texts where possible.

    The order is random, too.
    """
    examples, generator = part.examples, np.random.default_rng(seed)
    _, firsts = np.unique(examples.kinds, return_index=True)
    rows = []
    for query, positives in enumerate(examples.positives):
        others = firsts[~np.isin(examples.kinds[firsts], examples.answers(query))]
        row = np.append(generator.choice(others, min(count - 1, len(others)), replace=False), positives[0])
        rows.append(generator.permutation(row))
    return np.stack(rows).astype(np.int32)


def gold_ranks(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The rank of the best right candidate of each query, a tie counting against it; 0 where there is none.

    >>> gold_ranks(np.array([[3.0, 2.0, 2.0], [1.0, 0.0, 0.0]]), np.array([[0, 1, 0], [0, 0, 0]], bool)).tolist()
    [3, 0]
    """
    best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
    ranks = 1 + ((scores >= best) & ~right).sum(axis=1)
    return np.where(right.any(axis=1), ranks, 0).astype(np.int32)
