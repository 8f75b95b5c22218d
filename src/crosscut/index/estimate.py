"""What a build or an addition would cost, from a few batches of its own pairs. Nothing is written."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from crosscut.data.mentions import item_as_query
from crosscut.index import manifest as names
from crosscut.index.build import plan_build, to_continue, wanted_manifest
from crosscut.index.change import check_models
from crosscut.index.compared import labelled
from crosscut.index.files import DiskFiles, Files, check_folder
from crosscut.index.lines import block_of, item_lines, query_lines
from crosscut.index.manifest import ITEM_ANCHORS, Contents, Manifest
from crosscut.index.ragged import RaggedGrid
from crosscut.index.steps import ENCODE_BATCH
from crosscut.index.store import Store
from crosscut.index.tiles import Grid, missing
from crosscut.search.learn import FEWEST
from crosscut.types import Item, Query

if TYPE_CHECKING:
    from crosscut.compare.base import Comparer
    from crosscut.encoders.base import Encoder
    from crosscut.scorers.base import Scorer

QUERIES = 16  # of a measured batch: a tile, too, holds few queries and many items
LARGEST_BATCH = 16_384
SHARE = 4  # no more than one in so many of what is left is done to measure it: calls may be billed
# Bytes, as found with English texts: of the words on disk, and of texts and words in memory, per byte of text.
WORDS_ON_DISK, WORDS_IN_MEMORY = 0.6, 3
ITEM_OBJECT = 500  # that Python needs for an item beside its text

Named: TypeAlias = "Sequence[tuple[str | None, Comparer]]"  # compare models, and their names if they have any


@dataclass(frozen=True)
class Estimate:
    """What is to do, how fast it went, and what will be there in the end; bytes and seconds are about right."""

    pairs: int  # of the whole index
    pairs_done: int  # of these, scored and kept by an earlier run
    texts: int  # to encode, likewise
    texts_done: int
    pairs_per_second: float | None  # of one worker, as measured in this process
    texts_per_second: float | None
    workers: int
    calls: int  # made to measure
    truncated: int  # of these, cut to what the model can read
    score_bytes: int
    vector_bytes: int
    text_bytes: int
    derived_bytes: int  # words and the learned prior
    building_bytes: int  # of tiles, for as long as they are not yet one file
    free_bytes: int
    memory_bytes: int  # of an index that is loaded
    compare_texts: int = 0  # to encode by compare models
    compare_texts_done: int = 0
    compare_seconds: float = 0.0
    compare_bytes: int = 0

    @property
    def seconds(self) -> float:
        """Until the end: scoring is shared by the workers, encoding is not."""
        scoring = (self.pairs - self.pairs_done) / (self.pairs_per_second or math.inf) / self.workers
        encoding = (self.texts - self.texts_done) / (self.texts_per_second or math.inf)
        return scoring + encoding + self.compare_seconds

    @property
    def disk_bytes(self) -> int:
        return self.score_bytes + self.vector_bytes + self.text_bytes + self.derived_bytes + self.compare_bytes


def estimate_build(
    items: Sequence[Item],
    *,
    scorer: Scorer,
    folder: str | Path,
    encoder: Encoder | None = None,
    compare: Named = (),
    anchor_queries: Sequence[Query] = (),
    anchor_items: int = 0,
    seed: int = 0,
    overwrite: bool = False,
    dtype: str = "float16",
    workers: int = 1,
    limit: float = 10.0,
) -> Estimate:
    """What `build` with these arguments would cost; measuring takes about `limit` seconds at most.

    >>> from crosscut.scorers import as_scorer
    >>> scorer = as_scorer(lambda query, texts: [0.0 for _ in texts])
    >>> items, queries = [Item("a", "flood"), Item("b", "fire")], [Query("q", "fire")]
    >>> cost = estimate_build(items, scorer=scorer, folder="no.index", anchor_queries=queries)
    >>> cost.pairs, cost.pairs_done, cost.score_bytes
    (2, 0, 4)
    """
    check_folder(Path(folder))
    plan, texts = plan_build(items, anchor_queries, anchor_items, seed)
    files = DiskFiles(Path(folder))
    wanted = wanted_manifest(scorer, encoder, dtype, tile=None)
    found = to_continue(files, wanted, plan, overwrite)
    drawn = json.loads(texts[ITEM_ANCHORS])["positions"] if anchor_items else []
    subjects = [query.text for query in anchor_queries]
    subjects += [item_as_query(items[position].content) for position in drawn]
    task = _Task(files if found else None, found or wanted, plan, items, anchor_queries, subjects)
    cost = _estimate(task, Path(folder), scorer, encoder, workers, limit)
    return _with_compare(cost, task, compare, limit)


def estimate_addition(
    store: Store,
    items: Sequence[Item] = (),
    anchor_queries: Sequence[Query] = (),
    *,
    scorer: Scorer,
    encoder: Encoder | None = None,
    compare: Named = (),
    workers: int = 1,
    limit: float = 10.0,
) -> Estimate:
    """What adding items and anchor queries to an index on disk would cost."""
    assert store.folder
    manifest = store.manifest
    check_models(manifest, scorer, encoder)
    old_items = store.items()
    places = store.item_anchors(manifest.contents.item_anchors)
    subjects = [item_as_query(old_items[position].content) for position in places]
    all_items, all_queries = [*old_items, *items], [*store.anchor_queries(), *anchor_queries]
    subjects += [query.text for query in all_queries]
    added = Contents(
        (block_of(len(items), item_lines(items)),) if items else (),
        (block_of(len(anchor_queries), query_lines(anchor_queries)),) if anchor_queries else (),
    )
    first = replace(added, anchors=()) if items else added  # items are added before anchor queries
    task = _Task(
        store.files,
        manifest,
        manifest.contents + added,
        all_items,
        all_queries,
        subjects,
        manifest.pending == first,
    )
    return _with_compare(_estimate(task, store.folder, scorer, encoder, workers, limit), task, compare, limit)


@dataclass(frozen=True)
class _Task:
    """An index that is to be, and the files that may hold parts of it."""

    files: Files | None
    manifest: Manifest
    contents: Contents
    items: Sequence[Item]
    anchor_queries: Sequence[Query]
    subjects: Sequence[str]  # texts that stand in the query's place
    announced: bool = True  # by an earlier run: what it has left of the new part is used, and not swept away

    def score_grids(self) -> Iterator[Grid]:
        tile, item_anchors = self.manifest.tile, self.contents.item_anchors
        for s, segment in enumerate(self.contents.segments):
            for b, block in enumerate(self.contents.anchors):
                yield Grid(names.scores(b, s), block.count, segment.count, tile)
            if item_anchors:
                yield Grid(names.item_scores(s), item_anchors.count, segment.count, tile)

    def vector_grids(self) -> Iterator[Grid]:
        wanted = [(names.item_vectors(s), block.count) for s, block in enumerate(self.contents.segments)]
        wanted += [(names.anchor_vectors(b), block.count) for b, block in enumerate(self.contents.anchors)]
        return (Grid(name, count, 1, (ENCODE_BATCH, 1), any_width=True) for name, count in wanted)

    def compare_grids(self, name: str, width: int) -> Iterator[Grid]:
        for s, block in enumerate(self.contents.segments):
            yield RaggedGrid(names.compare_rows(name, s), block.count, 1, (ENCODE_BATCH, 1), width=width)

    def done(self, grid: Grid) -> int:
        """How much of it an earlier run has left that this one would use."""
        known = {*self.manifest.files(), *self.manifest.unfinished_files()}
        if self.files is None or not (self.announced or grid.file in known):
            return 0
        return grid.size - sum(tile.size for tile in missing(self.files, grid))


def _estimate(
    task: _Task, folder: Path, scorer: Scorer, encoder: Encoder | None, workers: int, limit: float
) -> Estimate:
    score_grids, vector_grids = list(task.score_grids()), list(task.vector_grids()) if encoder else []
    pairs, pairs_done = sum(grid.size for grid in score_grids), sum(map(task.done, score_grids))
    texts, texts_done = sum(grid.size for grid in vector_grids), sum(map(task.done, vector_grids))
    contents = [item.content for item in task.items]
    calls, truncated = scorer.calls, getattr(scorer, "truncated", 0)
    rng = np.random.default_rng(0)
    width = 0

    def score(size: int) -> None:
        rows = rng.choice(len(task.subjects), min(QUERIES, len(task.subjects)), replace=False)
        columns = rng.integers(len(contents), size=math.ceil(size / len(rows)))
        scorer.score([(task.subjects[r], contents[c]) for r in rows for c in columns][:size])

    def encode(size: int) -> None:
        nonlocal width
        assert encoder
        width = encoder.encode([contents[c] for c in rng.integers(len(contents), size=size)], role="item").shape[1]

    scored = _rate(score, pairs - pairs_done, LARGEST_BATCH, limit) if pairs > pairs_done else None
    # Even where no text is left, one tells how long vectors are.
    encoded = _rate(encode, max(1, texts - texts_done), ENCODE_BATCH, limit / 2) if encoder else None
    text_bytes = len(item_lines(task.items)) + len(query_lines(task.anchor_queries))
    anchor_pairs = task.contents.anchor_count * task.contents.item_count
    residuals = 4 * anchor_pairs if task.contents.anchor_count >= FEWEST else 0
    int8 = task.manifest.dtype == "int8"
    return Estimate(
        pairs=pairs,
        pairs_done=pairs_done,
        texts=texts,
        texts_done=texts_done,
        pairs_per_second=scored,
        texts_per_second=encoded,
        workers=workers,
        calls=scorer.calls - calls,
        truncated=getattr(scorer, "truncated", 0) - truncated,
        score_bytes=sum(grid.size + 8 * grid.rows if int8 else 2 * grid.size for grid in score_grids),
        vector_bytes=2 * width * texts,
        text_bytes=text_bytes,
        derived_bytes=residuals + round(WORDS_ON_DISK * text_bytes),
        building_bytes=2 * max((grid.size for grid in score_grids if task.done(grid) < grid.size), default=0),
        free_bytes=shutil.disk_usage(_existing(folder)).free,
        # A search has its scores, residuals and vectors as float32.
        memory_bytes=4 * anchor_pairs
        + residuals
        + 4 * width * texts
        + WORDS_IN_MEMORY * text_bytes
        + ITEM_OBJECT * len(task.items),
    )


def _with_compare(cost: Estimate, task: _Task, compare: Named, limit: float) -> Estimate:
    """What the vectors of compare models add."""
    contents, rng = [item.content for item in task.items], np.random.default_rng(0)
    for name, comparer in labelled(task.manifest.compare, compare).items():
        grids = list(task.compare_grids(name, comparer.width))
        texts, done = sum(grid.size for grid in grids), sum(map(task.done, grids))
        rows: list[float] = []

        def encode(size: int, comparer: Comparer = comparer, rows: list[float] = rows) -> None:
            made = comparer.encode_items([contents[c] for c in rng.integers(len(contents), size=size)])
            rows.append(len(made.rows) / size)

        rate = _rate(encode, max(1, texts - done), ENCODE_BATCH, limit / 2)
        cost = replace(
            cost,
            compare_texts=cost.compare_texts + texts,
            compare_texts_done=cost.compare_texts_done + done,
            compare_seconds=cost.compare_seconds + (texts - done) / rate,
            compare_bytes=cost.compare_bytes + round(texts * (2 * comparer.width * rows[-1] + 8)),
        )
    return cost


def _rate(work: Callable[[int], None], left: int, largest: int, limit: float) -> float:
    """Per second, in the last and largest of batches that grow for as long as time and what is left allow.

    >>> sizes: list[int] = []
    >>> _ = _rate(sizes.append, left=1000, largest=64, limit=10.0)
    >>> sizes
    [1, 1, 4, 16, 64]
    """
    most = min(left, max(2, left // SHARE))
    size, done, used = 1, 0, 0.0
    while True:
        start = perf_counter()
        work(size)
        took = max(perf_counter() - start, 1e-9)
        done += size
        rate = size / took
        if done == 1 < most:  # what is loaded or compiled at the first use is no measure
            continue
        used += took
        following = min(4 * size, largest, most - done, int(rate * (limit - used)))
        if following <= size:
            return rate
        size = following


def _existing(path: Path) -> Path:
    path = path.resolve()
    return path if path.exists() else _existing(path.parent)
