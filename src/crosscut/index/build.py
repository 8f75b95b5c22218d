"""Building an index, from nothing or from where an earlier build stopped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.index import manifest as names
from crosscut.index.executors import Executor, as_executor
from crosscut.index.files import DiskFiles, Files, MemoryFiles, prepare_folder
from crosscut.index.lines import block_of, check_unique, item_lines, query_lines
from crosscut.index.manifest import FORMATS, ITEM_ANCHORS, MANIFEST, Contents, Manifest, Model
from crosscut.index.steps import announce, commit, compute, write_texts
from crosscut.index.store import Store, read_manifest
from crosscut.types import Item, Query

if TYPE_CHECKING:
    from crosscut.encoders.base import Encoder
    from crosscut.scorers.base import Scorer

ANY_TILE = (0, 0)


def build(
    items: Sequence[Item],
    *,
    scorer: Scorer,
    encoder: Encoder | None = None,
    anchor_queries: Sequence[Query] = (),
    anchor_items: int = 0,
    seed: int = 0,
    folder: str | Path | None = None,
    overwrite: bool = False,
    tile: tuple[int, int] | None = None,
    dtype: str = "float16",
    executor: str | Executor = "local",
    progress: bool = False,
) -> Store:
    """Score every anchor query (k_q of them) against every item, and encode both.

    Without `folder` the index stays in memory. `anchor_items` of the items, drawn with `seed`, are scored
    against every item as well (for `itemcur` and `fixeditem`). The same call into an unfinished folder
    continues; into a finished one it calls no model. `overwrite` replaces whatever index is there, but an
    unfinished one of the same input and models it continues as well: it may be its own.
    `dtype`, float16 or int8, is how scores are stored. `executor` is where tiles are scored, `tile` their shape
    (anchor queries, items): by default that of the build to be continued, or one that suits the executor.

    >>> from crosscut.scorers import as_scorer
    >>> scorer = as_scorer(lambda query, texts: [float(query in text) for text in texts])
    >>> items, queries = [Item("a", "flood"), Item("b", "fire")], [Query("q", "fire")]
    >>> store = build(items, scorer=scorer, anchor_queries=queries)
    >>> store.parts().anchor_scores.tolist()
    [[0.0, 1.0]]
    """
    plan, texts = plan_build(items, anchor_queries, anchor_items, seed)
    if tile and (len(tile) != 2 or min(tile) < 1):
        raise CrosscutError(f"tile is (anchor queries, items), both at least 1, not {tile}")
    if dtype not in FORMATS:
        raise CrosscutError(f"scores are stored as {' or '.join(FORMATS)}, not as {dtype!r}")
    executor = as_executor(executor)
    executor.check(scorer)
    files: Files = MemoryFiles()
    if folder is not None:
        prepare_folder(Path(folder))
        files = DiskFiles(Path(folder))
    with files.lock():
        manifest = wanted_manifest(scorer, encoder, dtype, tile)
        if found := to_continue(files, manifest, plan, overwrite):
            manifest = found
        else:
            rows, columns = tile or executor.tile(scorer)
            manifest = replace(manifest, tile=(int(rows), int(columns)))
            files.remove(MANIFEST)
        store = Store(files, manifest)
        if store.manifest.state == "building":
            announce(store, plan)
        write_texts(store, texts)
        compute(store, plan, scorer, encoder, {}, executor, progress)
        if store.manifest.state == "building":
            commit(store)
    return store


def plan_build(
    items: Sequence[Item], anchor_queries: Sequence[Query], anchor_items: int, seed: int
) -> tuple[Contents, dict[str, bytes]]:
    """What a build brings, and its texts by file name.

    >>> plan_build([Item("a", "flood")], [], anchor_items=0, seed=0)[0].item_count
    1
    """
    if not items:
        raise CrosscutError("there are no items: an index needs at least one")
    if not 0 <= anchor_items <= len(items):
        raise CrosscutError(f"anchor_items is {anchor_items}, but must be between 0 and the {len(items)} items")
    check_unique("item", (item.id for item in items))
    check_unique("anchor query", (query.id for query in anchor_queries))
    texts = {names.items_file(0): item_lines(items)}
    plan = Contents(segments=(block_of(len(items), texts[names.items_file(0)]),))
    if anchor_queries:
        texts[names.anchors_file(0)] = query_lines(anchor_queries)
        plan += Contents(anchors=(block_of(len(anchor_queries), texts[names.anchors_file(0)]),))
    if anchor_items:
        drawn = np.random.default_rng(seed).choice(len(items), anchor_items, replace=False)
        texts[ITEM_ANCHORS] = json.dumps({"positions": np.sort(drawn).tolist()}).encode()
        plan += Contents(item_anchors=block_of(anchor_items, texts[ITEM_ANCHORS]))
    return plan, texts


def wanted_manifest(scorer: Scorer, encoder: Encoder | None, dtype: str, tile: tuple[int, int] | None) -> Manifest:
    """The manifest that a build begins with; without `tile`, one that tiles of any shape suit."""
    options = scorer.options()
    extra = {"scorer_options": options} if options else {}
    model = Model.of(encoder) if encoder else None
    return Manifest(Model.of(scorer), model, tile or ANY_TILE, dtype=dtype, extra=extra)


def to_continue(files: Files, wanted: Manifest, plan: Contents, overwrite: bool) -> Manifest | None:
    """The index in the folder, if this build has begun it; None if there is none, or one to overwrite.

    >>> from crosscut.index.manifest import Contents, Manifest
    >>> to_continue(MemoryFiles(), Manifest(None, None, ANY_TILE), Contents(), overwrite=False) is None
    True
    """
    try:
        found = read_manifest(files)
    except CrosscutError:
        if overwrite:
            return None
        raise
    unfinished = found is not None and not all(one.complete for one in found.compare.values())
    if found is None or (overwrite and found.state == "complete" and not unfinished):
        return None
    differs = _differences(found, wanted, plan)
    if differs and not overwrite:
        raise CrosscutError(
            f"{files.folder} holds an index of something else; what differs: {', '.join(differs)}. "
            "Use another folder, or overwrite=True to replace it; Index.add and `crosscut index --add` bring more "
            "items or anchor queries to a finished one"
        )
    return None if differs else found


def _differences(found: Manifest, wanted: Manifest, plan: Contents) -> list[str]:
    """What this build would not have begun."""
    there = found.contents if found.state == "complete" else found.pending or Contents()
    differs = [
        f"{what} ({before or 'none'} there, {now or 'none'} here)"
        for what, before, now in (
            ("scorer", found.scorer, wanted.scorer),
            ("scorer options", found.scorer_options, wanted.scorer_options),
            ("encoder", found.encoder, wanted.encoder),
            ("tile", found.tile, found.tile if wanted.tile == ANY_TILE else wanted.tile),
            ("store", found.dtype, wanted.dtype),
            ("number of items", there.item_count, plan.item_count),
            ("number of anchor queries", there.anchor_count, plan.anchor_count),
            ("deleted items", len(found.deleted), 0),
        )
        if before != now
    ]
    if not differs:
        for what, before, after in (
            ("content of the items", there.segments, plan.segments),
            ("content of the anchor queries", there.anchors, plan.anchors),
            ("anchor items or seed", there.item_anchors, plan.item_anchors),
        ):
            differs += [what] if before != after else []
    return differs
