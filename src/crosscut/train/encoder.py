"""Training a bi-encoder on queries and the items that answer them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.scorers.tokens import check_limits
from crosscut.system import needs_extra
from crosscut.train.mining import SELF, check_sources, mine_all
from crosscut.train.negatives import Groups
from crosscut.train.settings import Settings
from crosscut.train.splits import read_splits


def train_encoder(
    data: str | Path,
    *,
    base: str | Path,
    out: str | Path,
    negatives: str | list[str] = SELF,
    negative_count: int = 4,
    depth: int = 100,
    scale: float = 20.0,
    max_length: int | None = None,
    licence: str | None = None,
    overwrite: bool = False,
    progress: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Train `base`, a bi-encoder or any encoder, and write the best checkpoint to `out` for sentence-transformers.

    Each query's positive is told apart from all other items of its batch, among them `negative_count` that are
    hard for this query. negatives: where these come from: self (the first `depth` by the model itself, found anew
    when an epoch begins), random, bm25, tfidf, encoder:MODEL or run:FILE (TREC's), several in equal parts. scale:
    cosines are multiplied by it. max_length: texts are cut to so many tokens. The rest is as in
    `train_cross_encoder`.

    >>> train_encoder("faq", base="google-bert/bert-base-uncased", out="model", scale=0)
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: scale must be above 0, but is 0
    """
    sources = check_sources(negatives, SELF)
    check_scale(scale)
    check_limits(max_length=max_length, negative_count=negative_count, depth=depth)
    chosen = Settings.of(settings)
    with needs_extra("train", "training"):
        from crosscut.train import trainer, vectors
    train, dev = read_splits(data, chosen)
    Groups(train, [], negative_count, chosen.seed)  # too few are told before time is spent on finding them
    record = {
        "model": "encoder",
        "data": str(data),
        "examples": train.digest(),
        "base": str(base),
        "negatives": sources,
        "negative_count": negative_count,
        "depth": depth,
        "scale": scale,
        "max_length": max_length,
        **chosen.record(),
    }

    def make(work: Path, arguments: Any) -> vectors.InBatchTask:
        encoder = vectors.load_base(base, train.markers, max_length, chosen.seed)
        others = [source for source in sources if source != SELF]
        mined = mine_all(train, others, depth, device=chosen.own_device)
        mines = SELF in sources
        if mines:
            mined.append(np.full((len(train), 1), -1))  # until the first epoch begins
        rows = Groups(train, mined, negative_count, chosen.seed, random="random" in sources)
        more: dict[str, Any] = {"depth": depth if mines else None, "work": work}
        more["progress"] = progress and arguments.process_index == 0
        return vectors.InBatchTask(encoder, rows, train, dev, scale=scale, **more)

    order = trainer.Order(Path(out), "encoder", record, chosen, len(train), licence, overwrite, progress)
    return trainer.train(order, vectors.InBatchTask, make)


def check_scale(scale: float) -> None:
    """Refuse what cosines cannot be multiplied by.

    >>> check_scale(20.0)
    """
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < float("inf"):
        raise CrosscutError(f"scale must be above 0, but is {scale!r}")
