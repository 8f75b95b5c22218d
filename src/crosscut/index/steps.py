"""The steps of every change to an index.

Announce in index.json what is about to come (`pending`), write its texts, compute tile by tile every array
that is missing, commit by one atomic rewrite of index.json. Killed anywhere on that way, the same call
continues; until the commit, readers see the index as it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tqdm import tqdm

from crosscut.data.mentions import item_as_query
from crosscut.errors import CrosscutError
from crosscut.index import manifest as names
from crosscut.index.executors import Executor, Task
from crosscut.index.files import Damaged
from crosscut.index.manifest import Contents
from crosscut.index.ragged import RaggedGrid
from crosscut.index.store import Store
from crosscut.index.tiles import Grid, Tile, compact, finish, missing

if TYPE_CHECKING:
    from crosscut.compare.base import Comparer
    from crosscut.encoders.base import Encoder
    from crosscut.scorers.base import Scorer

ENCODE_BATCH = 256

Role = Literal["item", "query"]


class Piece(NamedTuple):
    grid: Grid
    tile: Tile


Made = Generator[tuple[Piece, Any], None, None]  # what the piece's grid can keep


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


def compute(
    store: Store,
    contents: Contents,
    scorer: Scorer,
    encoder: Encoder | None,
    comparers: Mapping[str, Comparer],
    executor: Executor,
    progress: bool,
) -> None:
    """Make every array of `contents` that is not there; `comparers` are compare models by name."""
    segments = _segments(store, contents)
    blocks = [[q.text for q in store.anchor_block(b, block)] for b, block in enumerate(contents.anchors)]
    if encoder:
        _encode_all(store, encoder, segments, blocks, progress)
    for name, comparer in comparers.items():
        _compare_all(store, name, comparer, segments, progress)
    places = store.item_anchors(contents.item_anchors)
    anchors = [item_as_query(segments[0][position]) for position in places]
    _score_all(store, scorer, segments, blocks, anchors, executor, progress)


def compute_compared(store: Store, name: str, comparer: Comparer, progress: bool) -> None:
    """Make the vectors of one compare model that are not there."""
    _compare_all(store, name, comparer, _segments(store, store.manifest.contents), progress)


def _segments(store: Store, contents: Contents) -> list[list[str]]:
    return [[i.content for i in store.segment(s, block)] for s, block in enumerate(contents.segments)]


def _encode_all(
    store: Store, encoder: Encoder, segments: list[list[str]], blocks: list[list[str]], progress: bool
) -> None:
    wanted: list[tuple[str, list[str], Role]] = []
    wanted += [(names.item_vectors(s), texts, "item") for s, texts in enumerate(segments)]
    wanted += [(names.anchor_vectors(b), texts, "query") for b, texts in enumerate(blocks)]
    widths: set[int] = set()
    for name, _, _ in wanted:
        with suppress(Damaged):
            widths.add(store.files.read_array(f"{name}.npy").shape[1])
    grids = {
        Grid(name, len(texts), 1, (ENCODE_BATCH, 1), any_width=True): (texts, role) for name, texts, role in wanted
    }

    def encode(pieces: Iterator[Piece]) -> Made:
        for piece in pieces:
            texts, role = grids[piece.grid]
            vectors = compact(encoder.encode(texts[piece.tile.rows], role=role))
            if not widths:
                widths.add(vectors.shape[1])
            if vectors.shape[1] not in widths:
                raise CrosscutError(
                    f"encoder {encoder.name} gave vectors of length {vectors.shape[1]}, but others in this index "
                    f"have length {min(widths)}: use the encoder that the index was begun with"
                )
            yield piece, vectors

    _fill_all(store, list(grids), encode, "texts", progress)


def _compare_all(store: Store, name: str, comparer: Comparer, segments: list[list[str]], progress: bool) -> None:
    grids: dict[Grid, list[str]] = {
        RaggedGrid(names.compare_rows(name, s), len(texts), 1, (ENCODE_BATCH, 1), width=comparer.width): texts
        for s, texts in enumerate(segments)
    }

    def encode(pieces: Iterator[Piece]) -> Made:
        for piece in pieces:
            yield piece, comparer.encode_items(grids[piece.grid][piece.tile.rows])

    _fill_all(store, list(grids), encode, "texts", progress)


def _score_all(
    store: Store,
    scorer: Scorer,
    segments: list[list[str]],
    blocks: list[list[str]],
    anchors: list[str],
    executor: Executor,
    progress: bool,
) -> None:
    manifest = store.manifest
    grids: dict[Grid, tuple[list[str], list[str]]] = {}
    for s, items in enumerate(segments):
        wanted = [(names.scores(b, s), queries) for b, queries in enumerate(blocks)]
        wanted += [(names.item_scores(s), anchors)] if anchors else []
        for name, queries in wanted:
            grid = Grid(name, len(queries), len(items), manifest.tile, int8=manifest.dtype == "int8")
            grids[grid] = queries, items

    def task(piece: Piece) -> Task:
        queries, items = grids[piece.grid]
        return Task(*piece, queries[piece.tile.rows], items[piece.tile.columns])

    def score(pieces: Iterator[Piece]) -> Made:
        with closing(executor.run(scorer, map(task, pieces))) as done:
            for task_done, scores in done:
                yield Piece(task_done.grid, task_done.tile), scores

    _fill_all(store, list(grids), score, "pairs", progress)


def _fill_all(
    store: Store, grids: list[Grid], make: Callable[[Iterator[Piece]], Made], unit: str, progress: bool
) -> None:
    """Bring arrays to disk, making only tiles that are not there; each is safe before the next one is taken."""
    # What the index had before is not counted, unless it must be made anew.
    old = set(store.manifest.files())
    grids = [grid for grid in grids if grid.file not in old or not grid.is_complete(store.files)]
    todo = {grid: missing(store.files, grid) for grid in grids}
    left = {grid: len(tiles) for grid, tiles in todo.items()}
    pieces = (Piece(grid, tile) for grid, tiles in todo.items() for tile in tiles)
    size = sum(grid.size for grid in grids)
    try:
        for grid in grids:
            if not left[grid]:
                finish(store.files, grid)
        if not any(left.values()):
            return
        with closing(make(pieces)) as made, _bar(size, todo, unit, progress) as bar:
            for (grid, tile), values in made:
                grid.keep(store.files, tile, values)
                left[grid] -= 1
                bar.update(tile.size)
                if not left[grid]:
                    finish(store.files, grid)
    except CrosscutError as error:
        total = sum(len(grid.tiles()) for grid in grids)
        done = total - sum(left.values())
        if store.folder is None or not done:  # nothing to continue from
            raise
        raise CrosscutError(
            f"{error} ({done} of {total} tiles are done and kept: the same call continues from there)"
        ) from error


def _bar(size: int, todo: dict[Grid, list[Tile]], unit: str, progress: bool) -> tqdm:
    return tqdm(
        total=size,
        # What an earlier run has done is in the bar, but neither in its speed nor in its time left.
        initial=size - sum(tile.size for tiles in todo.values() for tile in tiles),
        unit=f" {unit}",
        unit_scale=True,
        smoothing=0.05,  # tiles come in bursts when several workers make them
        disable=None if progress else True,  # None: shown only where stderr is a terminal
    )
