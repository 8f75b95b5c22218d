"""Arrays that are computed tile by tile, so that a killed run loses at most one tile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.index.files import Damaged, Files
from crosscut.index.int8 import quantise, record_type, shape_of

if TYPE_CHECKING:
    from crosscut.scorers.base import Scorer


def score_tile(scorer: Scorer, queries: Sequence[str], items: Sequence[str]) -> np.ndarray:
    """Scores of all queries × items. Needs nothing but its arguments, so it may run anywhere, in any order.

    >>> from crosscut.scorers import as_scorer
    >>> scorer = as_scorer(lambda query, texts: [float(len(query) * len(text)) for text in texts])
    >>> score_tile(scorer, ["a", "ab"], ["x", "xyz"]).tolist()
    [[1.0, 3.0], [2.0, 6.0]]
    """
    pairs = [(query, item) for query in queries for item in items]
    return compact(scorer.score(pairs).reshape(len(queries), len(items)))


def compact(array: np.ndarray) -> np.ndarray:
    """The array as float16, or as float32 where a value is too large for that (beyond ±65504).

    >>> compact(np.array([[1.5]])).dtype, compact(np.array([[1e6]])).dtype
    (dtype('float16'), dtype('float32'))
    """
    with np.errstate(over="ignore"):
        small = array.astype("<f2")
    return small if np.isfinite(small).all() else array.astype("<f4")


@dataclass(frozen=True)
class Tile:
    name: str
    rows: slice
    columns: slice

    @property
    def size(self) -> int:
        return (self.rows.stop - self.rows.start) * (self.columns.stop - self.columns.start)


@dataclass(frozen=True)
class Grid:
    """An array and how it is cut into tiles. `any_width`: vectors, as long as the encoder makes them.

    `int8`: the tiles are floats all the same, and become int8 when they become one file.

    >>> grid = Grid("scores/q000000-i000000", rows=3, columns=5, tile=(2, 4))
    >>> [tile.name[-15:] for tile in grid.tiles()]
    ['r000000-c000000', 'r000000-c000001', 'r000001-c000000', 'r000001-c000001']
    """

    name: str
    rows: int
    columns: int
    tile: tuple[int, int]
    any_width: bool = False
    int8: bool = False

    @property
    def file(self) -> str:
        return f"{self.name}.npy"

    @property
    def tile_folder(self) -> str:
        return f"{self.name}.tiles"

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def bands(self) -> Iterator[list[Tile]]:
        """Tiles side by side, from the top band of rows to the bottom."""
        for r, rows in enumerate(_slices(self.rows, self.tile[0])):
            yield [
                Tile(f"{self.tile_folder}/r{r:06d}-c{c:06d}", rows, columns)
                for c, columns in enumerate(_slices(self.columns, self.tile[1]))
            ]

    def tiles(self) -> list[Tile]:
        return [tile for band in self.bands() for tile in band]

    def holds(self, files: Files, name: str, rows: int, columns: int) -> bool:
        """Whether the file is there, whole, and of the right shape."""
        try:
            shape = shape_of(files.read_array(f"{name}.npy"))
        except Damaged:
            return False
        return shape[0] == rows and (self.any_width or shape[1] == columns)

    def is_complete(self, files: Files) -> bool:
        return self.holds(files, self.name, self.rows, self.columns)

    def keep(self, files: Files, tile: Tile, values: Any) -> None:
        """Bring a tile to disk; once this returns, it is safe."""
        files.write_array(f"{tile.name}.npy", values.shape, values.dtype, [values])

    def merge(self, files: Files) -> None:
        """Make one file of all tiles."""
        _merge(files, self)

    def remove_tiles(self, files: Files) -> None:
        files.remove(self.tile_folder)


def missing(files: Files, grid: Grid) -> list[Tile]:
    """The tiles that are not there, or damaged; none when the whole array is there.

    >>> from crosscut.index.files import MemoryFiles
    >>> files, grid = MemoryFiles(), Grid("scores/x", rows=2, columns=3, tile=(1, 3))
    >>> grid.keep(files, grid.tiles()[0], np.zeros((1, 3), "<f2"))
    >>> [tile.rows for tile in missing(files, grid)]
    [slice(1, 2, None)]
    """
    if grid.is_complete(files):
        return []
    return [
        tile
        for tile in grid.tiles()
        if not grid.holds(
            files, tile.name, tile.rows.stop - tile.rows.start, tile.columns.stop - tile.columns.start
        )
    ]


def finish(files: Files, grid: Grid) -> None:
    """All tiles are there: they become one file, and go."""
    if not grid.is_complete(files):
        grid.merge(files)
    grid.remove_tiles(files)


def _merge(files: Files, grid: Grid) -> None:
    arrays = (files.read_array(f"{tile.name}.npy") for tile in grid.tiles())
    kinds = {(array.dtype, array.shape[1]) for array in arrays}
    widths = {width for _, width in kinds}
    if grid.any_width and len(widths) > 1:
        raise CrosscutError(
            f"the encoder gave vectors of different lengths ({sorted(widths)}) for {grid.file}: "
            "it must give the same length for all texts; remove the folder and build again"
        )
    width = widths.pop() if grid.any_width else grid.columns
    dtype = np.result_type(*(dtype for dtype, _ in kinds)).newbyteorder("<")
    bands = (_band(files, band, width, dtype) for band in grid.bands())
    if grid.int8:
        files.write_array(grid.file, (grid.rows,), record_type(width), map(quantise, bands))
        return
    files.write_array(grid.file, (grid.rows, width), dtype, bands)


def _band(files: Files, tiles: list[Tile], width: int, dtype: np.dtype) -> np.ndarray:
    """Tiles side by side as one array; one by one, since each of them keeps a file open."""
    rows = tiles[0].rows
    band = np.empty((rows.stop - rows.start, width), dtype)
    for tile in tiles:
        columns = tile.columns if len(tiles) > 1 else slice(None)  # the width of vectors is their encoder's
        band[:, columns] = files.read_array(f"{tile.name}.npy")
    return band


def _slices(length: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]
