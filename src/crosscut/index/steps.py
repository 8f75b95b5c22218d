"""The steps of every change to an index.

Announce in index.json what is about to come (`pending`), write its texts, compute tile by tile every array
that is missing, commit by one atomic rewrite of index.json. Killed anywhere on that way, the same call
continues; until the commit, readers see the index as it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import numpy as np
from tqdm import tqdm

from crosscut.errors import CrosscutError
from crosscut.index import manifest as names
from crosscut.index.files import Damaged
from crosscut.index.manifest import Contents, Manifest
from crosscut.index.store import Store
from crosscut.index.tiles import Grid, compact, fill, score_tile

if TYPE_CHECKING:
    from crosscut.encoders.base import Encoder
    from crosscut.scorers.base import Scorer

ENCODE_BATCH = 256

Role = Literal["item", "query"]
Job = tuple[Grid, Callable[[slice, slice], np.ndarray]]


def announce(store: Store, added: Contents) -> None:
    """Write down what is about to come; another, unfinished add gives way to it."""
    if store.manifest.pending == added:
        return
    if store.manifest.pending:
        warnings.warn("an earlier add did not finish and this one differs: its scores are dropped", stacklevel=4)
        store.update(pending=None)
    # Before the new announcement, so that no leftover can be taken for a part of it.
    store.sweep()
    store.update(pending=added)


def write_texts(store: Store, texts: dict[str, bytes]) -> None:
    """Write the text files that are not there as they should be."""
    for name, content in texts.items():
        with suppress(Damaged):
            if store.files.read_bytes(name) == content:
                continue
        store.files.write_bytes(name, content)


def commit(store: Store) -> None:
    """What was announced is now in the index."""
    assert store.manifest.pending
    store.update(contents=store.manifest.contents + store.manifest.pending, pending=None)
    with suppress(CrosscutError):  # leftovers harm nobody, and the change is made
        store.sweep()


def compute(store: Store, contents: Contents, scorer: Scorer, encoder: Encoder | None, progress: bool) -> None:
    """Make every array of `contents` that is not there."""
    segments = [[i.content for i in store.segment(s, block)] for s, block in enumerate(contents.segments)]
    blocks = [[q.text for q in store.anchor_block(b, block)] for b, block in enumerate(contents.anchors)]
    if encoder:
        _fill_all(store, _vector_jobs(store, encoder, segments, blocks), "texts", progress)
    anchors = [segments[0][position] for position in store.item_anchors(contents.item_anchors)]
    _fill_all(store, _score_jobs(store, scorer, segments, blocks, anchors), "pairs", progress)


def _vector_jobs(store: Store, encoder: Encoder, segments: list[list[str]], blocks: list[list[str]]) -> list[Job]:
    wanted: list[tuple[str, list[str], Role]] = []
    wanted += [(names.item_vectors(s), texts, "item") for s, texts in enumerate(segments)]
    wanted += [(names.anchor_vectors(b), texts, "query") for b, texts in enumerate(blocks)]
    widths: set[int] = set()
    for name, _, _ in wanted:
        with suppress(Damaged):
            widths.add(store.files.read_array(f"{name}.npy").shape[1])
    return [_encode(encoder, name, texts, role, widths) for name, texts, role in wanted]


def _score_jobs(
    store: Store, scorer: Scorer, segments: list[list[str]], blocks: list[list[str]], anchors: list[str]
) -> list[Job]:
    jobs = []
    for s, items in enumerate(segments):
        wanted = [(names.scores(b, s), queries) for b, queries in enumerate(blocks)]
        wanted += [(names.item_scores(s), anchors)] if anchors else []
        jobs += [_score(scorer, name, queries, items, store.manifest) for name, queries in wanted]
    return jobs


def _encode(encoder: Encoder, name: str, texts: list[str], role: Role, widths: set[int]) -> Job:
    def encode(rows: slice, _: slice) -> np.ndarray:
        vectors = compact(encoder.encode(texts[rows], role=role))
        if not widths:
            widths.add(vectors.shape[1])
        if vectors.shape[1] not in widths:
            raise CrosscutError(
                f"encoder {encoder.name} gave vectors of length {vectors.shape[1]}, but others in this index "
                f"have length {min(widths)}: use the encoder that the index was begun with"
            )
        return vectors

    return Grid(name, len(texts), 1, (ENCODE_BATCH, 1), any_width=True), encode


def _score(scorer: Scorer, name: str, queries: list[str], items: list[str], manifest: Manifest) -> Job:
    def score(rows: slice, columns: slice) -> np.ndarray:
        return score_tile(scorer, queries[rows], items[columns])

    grid = Grid(name, len(queries), len(items), manifest.tile, int8=manifest.dtype == "int8")
    return grid, score


def _fill_all(store: Store, jobs: Sequence[Job], unit: str, progress: bool) -> None:
    # What the index had before is not counted, unless it must be made anew.
    old = set(store.manifest.contents.files())
    jobs = [job for job in jobs if job[0].file not in old or not job[0].is_complete(store.files)]
    total = sum(len(grid.tiles()) for grid, _ in jobs)
    done = 0
    size = sum(grid.size for grid, _ in jobs)
    # disable=None: tqdm shows nothing unless stderr is a terminal.
    with tqdm(total=size, unit=f" {unit}", disable=None if progress else True) as bar:
        try:
            for grid, compute_tile in jobs:
                for tile in fill(store.files, grid, compute_tile):
                    done += 1
                    bar.update(tile.size)
        except CrosscutError as error:
            if store.folder is None:
                raise
            raise CrosscutError(
                f"{error} ({done} of {total} tiles are done and kept: the same call continues from there)"
            ) from error
