"""`crosscut index --dry-run`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from crosscut.types import Item, Query

if TYPE_CHECKING:
    from crosscut.compare import Comparer
    from crosscut.encoders import Encoder
    from crosscut.index.estimate import Estimate
    from crosscut.index.executors import Executor
    from crosscut.index.store import Store
    from crosscut.scorers import Scorer


def dry_run(
    args: argparse.Namespace,
    store: Store | None,
    items: list[Item],
    queries: list[Query],
    scorer: Scorer,
    encoder: Encoder | None,
    comparers: Sequence[tuple[str | None, Comparer | str]],
    executor: Executor,
) -> int:
    """Measure, print what the command would take, and write nothing."""
    from crosscut.index.compared import labelled
    from crosscut.index.estimate import estimate_addition, estimate_build
    from crosscut.index.models import Models, given_comparers

    executor.check(scorer)
    workers = executor.count(scorer)
    compare: list[Any] = [(name, comparer) for name, comparer, _ in given_comparers(comparers)]
    if store:
        if items:  # they get vectors of the models that the index has, too
            compare += Models(store, comparers=labelled(store.manifest.compare, compare)).comparers().items()
        cost = estimate_addition(
            store, items, queries, scorer=scorer, encoder=encoder, compare=compare, workers=workers
        )
    else:
        cost = estimate_build(
            items,
            scorer=scorer,
            folder=args.out,
            encoder=encoder,
            compare=compare,
            anchor_queries=queries,
            anchor_items=args.anchor_items or 0,
            seed=args.seed or 0,
            overwrite=args.overwrite,
            dtype=args.store or "float16",
            workers=workers,
        )
    print_estimate(args.out, cost, args.json)
    return 0


def print_estimate(folder: str, cost: Estimate, as_json: bool) -> None:
    """Lines to read, or a JSON object."""
    if as_json:
        print(
            json.dumps({"folder": folder, **asdict(cost), "seconds": cost.seconds, "disk_bytes": cost.disk_bytes})
        )
        return
    print(f"{folder}: nothing is written; this is a dry run")
    for name, text in _lines(cost):
        print(f"  {name:<9} {text}")


def _lines(cost: Estimate) -> Iterator[tuple[str, str]]:
    yield "pairs", f"{cost.pairs:,} to score" + _done(cost.pairs_done, cost.pairs)
    if cost.texts:
        yield "texts", f"{cost.texts:,} to encode" + _done(cost.texts_done, cost.texts)
    if cost.compare_texts:
        yield (
            "compare",
            f"{cost.compare_texts:,} texts to encode" + _done(cost.compare_texts_done, cost.compare_texts),
        )
    if cost.pairs_per_second:
        shared = f", with {cost.workers} workers {cost.pairs_per_second * cost.workers:,.0f} if each is as fast"
        yield "speed", f"{cost.pairs_per_second:,.0f} pairs/s" + (shared if cost.workers > 1 else "")
    if cost.texts_per_second:
        yield "", f"{cost.texts_per_second:,.0f} texts/s"
    yield "time", f"about {duration(cost.seconds)}" if cost.seconds else "none: there is nothing left to do"
    yield (
        "disk",
        f"{size(cost.disk_bytes)}: scores {size(cost.score_bytes)}, vectors {size(cost.vector_bytes)}, "
        f"texts {size(cost.text_bytes)}, words and prior {size(cost.derived_bytes)}"
        + (f", compare models {size(cost.compare_bytes)}" if cost.compare_bytes else ""),
    )
    short = cost.disk_bytes + cost.building_bytes > cost.free_bytes
    yield (
        "",
        (
            f"up to {size(cost.building_bytes)} more while building; {size(cost.free_bytes)} are free"
            + (": NOT ENOUGH" if short else "")
        ),
    )
    yield "memory", f"{size(cost.memory_bytes)} when loaded"
    yield (
        "measured",
        f"with {cost.calls:,} calls of the scorer"
        + (f"; {cost.truncated:,} of these pairs were cut to what the model can read" if cost.truncated else ""),
    )


def _done(done: int, all: int) -> str:
    return f", {done:,} of them done already: {all - done:,} are left" if done else ""


def duration(seconds: float) -> str:
    """
    >>> duration(0.2), duration(90), duration(600), duration(86_400)
    ('1 second', '90 seconds', '10 minutes', '24.0 hours')
    """
    if seconds > 2 * 3600:
        return f"{seconds / 3600:.1f} hours"
    count, unit = (seconds / 60, "minute") if seconds > 120 else (seconds, "second")
    whole = max(1, round(count))
    return f"{whole} {unit}" if whole == 1 else f"{whole} {unit}s"


def size(count: float) -> str:
    """
    >>> size(900), size(2_500_000), size(41e9)
    ('900 B', '2.5 MB', '41.0 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
