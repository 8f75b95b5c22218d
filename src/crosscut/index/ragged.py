"""Vectors of compare models as an index keeps them: of every item as many rows as it has, made tile by tile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crosscut.compare.base import ItemVectors
from crosscut.index.files import Damaged, Files
from crosscut.index.manifest import starts_of
from crosscut.index.tiles import Grid, Tile


@dataclass(frozen=True)
class RaggedGrid(Grid):
    """Two arrays, of rows (of `width` columns) and of where each item's rows start; a row of the grid is an item.

    The starts are written before the rows, so where the rows are, both are.

    >>> from crosscut.index.files import MemoryFiles
    >>> from crosscut.index.tiles import finish, missing
    >>> files, grid = MemoryFiles(), RaggedGrid("compare/demo/rows-000000", 3, 1, (2, 1), width=4)
    >>> made = [ItemVectors(np.ones((5, 4)), np.array([0, 2, 5])), ItemVectors(np.zeros((1, 4)), np.array([0, 1]))]
    >>> for tile, vectors in zip(missing(files, grid), made):
    ...     grid.keep(files, tile, vectors)
    >>> finish(files, grid)
    >>> read(files, grid.name, items=3).starts.tolist(), files.names()
    ([0, 2, 5, 6], ['compare/demo/rows-000000.npy', 'compare/demo/starts-000000.npy'])
    """

    width: int = 0

    def holds(self, files: Files, name: str, rows: int, columns: int) -> bool:
        try:
            return read(files, name, rows).rows.shape[1] == self.width
        except Damaged:
            return False

    def keep(self, files: Files, tile: Tile, values: ItemVectors) -> None:
        _write_starts(files, tile.name, values.starts)
        files.write_array(f"{tile.name}.npy", values.rows.shape, np.dtype("<f2"), [values.rows])

    def merge(self, files: Files) -> None:
        tiles = self.tiles()
        parts = [read(files, tile.name, tile.rows.stop - tile.rows.start).counts for tile in tiles]
        starts = np.concatenate([[0], *parts]).cumsum()

        def bands() -> Iterator[np.ndarray]:
            for tile in tiles:  # one by one, since each of them keeps a file open
                yield files.read_array(f"{tile.name}.npy")

        _write_starts(files, self.name, starts)
        files.write_array(self.file, (int(starts[-1]), self.width), np.dtype("<f2"), bands())

    def remove_tiles(self, files: Files) -> None:
        files.remove(starts_of(self.tile_folder))
        files.remove(self.tile_folder)


def read(files: Files, name: str, items: int) -> ItemVectors:
    """The vectors of `items` items, memory-mapped from disk; Damaged when missing or not as written."""
    starts, rows = files.read_array(f"{starts_of(name)}.npy"), files.read_array(f"{name}.npy")
    if starts.ndim != 1 or rows.ndim != 2 or len(starts) != items + 1:
        raise Damaged(f"{name}.npy is damaged (it does not hold {items} items)")
    if starts[0] != 0 or starts[-1] != len(rows) or (np.diff(starts) < 0).any():
        raise Damaged(f"{starts_of(name)}.npy is damaged (it does not fit the rows)")
    return ItemVectors(rows, np.array(starts))  # a copy, as a mapped array keeps its file open


def in_memory(vectors: ItemVectors) -> ItemVectors:
    """The same, without a file."""
    return ItemVectors(np.array(vectors.rows), vectors.starts)


class StoredVectors:
    """The vectors of all items of an index, which stay on disk until `take` asks for some.

    >>> one, two = ItemVectors(np.eye(2), np.array([0, 1, 2])), ItemVectors(np.ones((3, 2)), np.array([0, 3]))
    >>> stored = StoredVectors([one, two])
    >>> len(stored), stored.take([2, 0]).starts.tolist()
    (3, [0, 3, 4])
    """

    def __init__(self, segments: Sequence[ItemVectors]) -> None:
        self.segments = segments
        self._firsts = np.cumsum([0, *map(len, segments)])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @property
    def width(self) -> int:
        return self.segments[0].rows.shape[1]

    @property
    def rows_per_item(self) -> float:
        """On the mean."""
        return sum(len(segment.rows) for segment in self.segments) / len(self)

    def take(self, positions: Sequence[int] | np.ndarray) -> ItemVectors:
        """Those of some items, in this order; only their rows are read."""
        positions = np.asarray(positions, np.int64)
        if len(self.segments) == 1:
            return self.segments[0].take(positions)
        home = np.searchsorted(self._firsts, positions, side="right") - 1
        theirs = [home == number for number in range(len(self.segments))]
        parts = [
            segment.take(positions[mine] - first)
            for segment, mine, first in zip(self.segments, theirs, self._firsts, strict=False)
        ]
        counts = np.empty(len(positions), np.int64)
        for mine, part in zip(theirs, parts, strict=True):
            counts[mine] = part.counts
        rows = np.empty((counts.sum(), self.width), self.segments[0].rows.dtype)
        for mine, part in zip(theirs, parts, strict=True):
            rows[np.flatnonzero(np.repeat(mine, counts))] = part.rows
        return ItemVectors(rows, np.concatenate([[0], counts.cumsum()]))


def _write_starts(files: Files, name: str, starts: np.ndarray) -> None:
    files.write_array(f"{starts_of(name)}.npy", starts.shape, np.dtype("<i8"), [starts])
