"""Training a cross-encoder on queries and the items that answer them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crosscut.errors import CrosscutError
from crosscut.scorers.tokens import check_limits
from crosscut.system import needs_extra
from crosscut.train.data import Examples
from crosscut.train.mining import check_sources, mine_all
from crosscut.train.negatives import Groups
from crosscut.train.settings import Settings
from crosscut.train.splits import read_splits


def train_cross_encoder(
    data: str | Path,
    *,
    base: str | Path,
    out: str | Path,
    head: str = "cls",
    negatives: str | list[str] = "bm25,random",
    negative_count: int = 15,
    depth: int = 100,
    query_tokens: int | None = None,
    item_tokens: int | None = None,
    max_length: int | None = None,
    licence: str | None = None,
    overwrite: bool = False,
    progress: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Train the model `base` (a name on the hub, or a folder) and write the best checkpoint to the folder `out`.

    head: "cls" (the first token's vector gives the score) or "emb" (the dot product of two marked vectors, ANNCUR
    §2.6). negatives: where the `negative_count` items come from that each query's positive is told apart from:
    random, bm25, tfidf, encoder:MODEL or run:FILE (TREC's), several in equal parts; all but random are drawn anew
    in every epoch from the first `depth`. data: see `read_examples`. query_tokens, item_tokens, max_length: texts
    are cut as scorers cut them. settings: those of `Settings`. The same call continues a run that was stopped;
    `overwrite` begins anew. Returns the figures of the model that was kept.

    >>> train_cross_encoder("faq", base="google-bert/bert-base-uncased", out="model", head="tail")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no head 'tail': use cls or emb
    """
    if head not in ("cls", "emb"):
        raise CrosscutError(f"there is no head {head!r}: use cls or emb")
    sources = check_sources(negatives)
    check_limits(query_tokens=query_tokens, item_tokens=item_tokens, max_length=max_length)
    check_limits(negative_count=negative_count, depth=depth)
    chosen = Settings.of(settings)
    with needs_extra("train", "training"):
        from crosscut.train import pairs, trainer
    train, dev = read_splits(data, chosen)
    limits: dict[str, Any] = {"query_tokens": query_tokens, "item_tokens": item_tokens, "max_length": max_length}
    record = {
        "model": "cross-encoder",
        "data": str(data),
        "examples": train.digest(),
        "base": str(base),
        "head": head,
        "negatives": sources,
        "negative_count": negative_count,
        "depth": depth,
        **limits,
        **chosen.record(),
    }

    def make(work: Path, arguments: Any) -> pairs.PairTask:
        loaded = pairs.load_base(base, head, train.markers, chosen.seed)
        rows, dev_rows = (
            draw_groups(part, sources, negative_count, depth, chosen.seed, chosen.own_device)
            for part in (train, dev)
        )
        more: dict[str, Any] = {"eval_batch": chosen.batch_size}
        more["progress"] = progress and arguments.process_index == 0
        return pairs.PairTask(loaded, rows, train, dev_rows, dev, **limits, **more)

    order = trainer.Order(Path(out), head, record, chosen, len(train), licence, overwrite, progress)
    return trainer.train(order, pairs.PairTask, make)


def draw_groups(
    examples: Examples, sources: list[str], count: int, depth: int, seed: int, device: str | None = None
) -> Groups:
    """Each query's positive with negatives from `sources`.

    >>> from crosscut.types import Item, Query
    >>> items = [Item(str(n), f"text {n}") for n in range(9)]
    >>> examples = Examples.of([Query("q", "text 4")], items, {"q": {"4": 1}})
    >>> len(draw_groups(examples, ["bm25", "random"], count=3, depth=5, seed=0)[0].items)
    4
    """
    Groups(examples, [], count, seed)  # too few negatives are told before time is spent on finding them
    mined = mine_all(examples, sources, max(depth, count), device=device)
    return Groups(examples, mined, count, seed, random="random" in sources)
