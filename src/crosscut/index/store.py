"""An index as stored: a folder (or its likeness in memory) and what can be read from it.

Format 1, or 2 where scores are int8, or 3 where there are vectors of compare models; arrays are little-endian
.npy, texts are UTF-8 lines of JSON:

    index.json                  what the index holds; a piece is in the index once this file says so
    items/000000.jsonl          one segment per build or add
    vectors/items-000000.npy    its encoder vectors
    anchors/000000.jsonl        one block of anchor queries per build or add
    vectors/anchors-000000.npy  its encoder vectors
    scores/q000000-i000000.npy  raw scores, anchor queries of a block × items of a segment
    item_anchors.json           positions of the anchor items
    scores/items-i000000.npy    raw scores, anchor items (as the query) × items of a segment
    compare/NAME/rows-000000.npy    a compare model's vectors of a segment: as many rows per item as it makes
    compare/NAME/starts-000000.npy  item n has the rows from starts[n] to starts[n + 1]
    *.tiles/                    tiles of an array that is being made
    crosscut.lock               held by the process that writes

Numbers are float16 (eleven significant bits: ample for logits); a file with a score beyond ±65504 is float32.
Scores, but not vectors and tiles, may be int8 instead (int8.py): half as many bytes on disk; read, they are
float32, in which a search has its anchor scores anyway.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.index import manifest as names
from crosscut.index.files import Damaged, DiskFiles, Files
from crosscut.index.int8 import is_int8, restore, shape_of
from crosscut.index.lines import parse_items, parse_queries
from crosscut.index.manifest import MANIFEST, Block, Contents, Manifest
from crosscut.index.ragged import StoredVectors, in_memory, read
from crosscut.types import Item, Query

SMALL = 1 << 24  # bytes of a compare model's rows: fewer are read, as every file that is mapped stays open


@dataclass(frozen=True)
class Parts:
    """All that searching needs, by item position. Deleted items keep their positions.

    Arrays are read-only, and memory-mapped where they lie in one file of floats.
    """

    items: list[Item]
    vectors: np.ndarray | None  # (items, d)
    anchor_queries: list[Query]
    anchor_vectors: np.ndarray | None  # (anchor queries, d)
    anchor_scores: np.ndarray  # R_anc: (anchor queries, items)
    item_anchors: np.ndarray  # positions of the anchor items
    item_scores: np.ndarray  # (anchor items, items)
    compared: dict[str, StoredVectors]  # by name of the compare model
    deleted: np.ndarray  # (items,) True where deleted

    def positions(self) -> dict[str, int]:
        """Position by id, of items that are not deleted."""
        return _live_positions(self.items, self.deleted)


class Store:
    """One index: `manifest` says what it holds, `files` where; `build` and `change` write to it.

    >>> import tempfile
    >>> from crosscut.index.build import build
    >>> from crosscut.scorers import as_scorer
    >>> folder = Path(tempfile.mkdtemp()) / "demo.index"
    >>> scorer = as_scorer(lambda query, texts: [0.0] * len(texts))
    >>> _ = build([Item("a", "x"), Item("b", "y")], scorer=scorer, folder=folder)
    >>> Store.open(folder).parts().items[1].id
    'b'
    """

    def __init__(self, files: Files, manifest: Manifest) -> None:
        self.files = files
        self.manifest = manifest

    @classmethod
    def open(cls, folder: str | Path) -> Store:
        """The finished index in `folder`."""
        folder = Path(folder)
        if not folder.is_dir():
            raise CrosscutError(f"there is no folder {folder}: build an index there first")
        files = DiskFiles(folder)
        manifest = read_manifest(files)
        if manifest is None:
            raise CrosscutError(f"{folder} is not an index (no {MANIFEST} in it): check the path")
        if manifest.state == "building":
            raise CrosscutError(f"the index in {folder} is not finished: run the same build again to continue it")
        return cls(files, manifest)

    @property
    def folder(self) -> Path | None:
        return self.files.folder

    @contextmanager
    def changing(self) -> Iterator[Manifest]:
        """Alone with the index as it is now, which another process may have changed since it was opened."""
        with self.files.lock():
            manifest = read_manifest(self.files)
            if manifest is None or manifest.state == "building":
                raise CrosscutError(
                    f"the index in {self.folder} has been removed or is being built anew: build it again"
                )
            self.manifest = manifest
            yield manifest

    def update(self, **changes: Any) -> None:
        """Change fields of the manifest, on disk first."""
        manifest = replace(self.manifest, **changes)
        self.files.write_bytes(MANIFEST, manifest.to_json())
        self.manifest = manifest

    def sweep(self) -> None:
        """Remove what the manifest does not mention: leftovers of a killed run."""
        keep = {*self.manifest.files(), *self.manifest.unfinished_files()}
        for name in self.files.names():
            if name not in keep:
                self.files.remove(name)

    def segment(self, number: int, block: Block) -> list[Item]:
        return parse_items(self._text(names.items_file(number), block))

    def anchor_block(self, number: int, block: Block) -> list[Query]:
        return parse_queries(self._text(names.anchors_file(number), block))

    def item_anchors(self, block: Block | None) -> list[int]:
        return json.loads(self._text(names.ITEM_ANCHORS, block))["positions"] if block else []

    def items(self) -> list[Item]:
        """All items by position, deleted ones too."""
        return [i for s, block in enumerate(self.manifest.contents.segments) for i in self.segment(s, block)]

    def anchor_queries(self) -> list[Query]:
        return [q for b, block in enumerate(self.manifest.contents.anchors) for q in self.anchor_block(b, block)]

    def deleted(self) -> np.ndarray:
        mask = np.zeros(self.manifest.contents.item_count, bool)
        mask[list(self.manifest.deleted)] = True
        return mask

    def positions(self) -> dict[str, int]:
        """Position by id, of items that are not deleted."""
        return _live_positions(self.items(), self.deleted())

    def parts(self) -> Parts:
        """Read everything; a damaged file is an error that names it."""
        contents, encoder = self.manifest.contents, self.manifest.encoder
        item_anchors = self.item_anchors(contents.item_anchors)
        vectors = anchor_vectors = None
        if encoder:
            vectors = _assemble(
                [[self._array(names.item_vectors(s), b.count)] for s, b in enumerate(contents.segments)]
            )
            rows = [
                [self._array(names.anchor_vectors(b), block.count)] for b, block in enumerate(contents.anchors)
            ]
            anchor_vectors = _assemble(rows, columns=vectors.shape[1])
        return Parts(
            items=self.items(),
            vectors=vectors,
            anchor_queries=self.anchor_queries(),
            anchor_vectors=anchor_vectors,
            anchor_scores=self._anchor_scores(contents),
            item_anchors=np.array(item_anchors, np.int64),
            item_scores=self._item_scores(contents, len(item_anchors)),
            compared={name: self._compared(name) for name, one in self.manifest.compare.items() if one.complete},
            deleted=self.deleted(),
        )

    def _anchor_scores(self, contents: Contents) -> np.ndarray:
        blocks = [
            [
                self._array(names.scores(b, s), block.count, segment.count)
                for s, segment in enumerate(contents.segments)
            ]
            for b, block in enumerate(contents.anchors)
        ]
        return _assemble(blocks, columns=contents.item_count)

    def _item_scores(self, contents: Contents, count: int) -> np.ndarray:
        row = [self._array(names.item_scores(s), count, b.count) for s, b in enumerate(contents.segments) if count]
        return _assemble([row] if row else [], columns=contents.item_count)

    def _compared(self, name: str) -> StoredVectors:
        segments, width = self.manifest.contents.segments, self.manifest.compare[name].width
        model = self.manifest.compare[name].model.name
        advice = (
            f"`crosscut index --out {self.folder or 'INDEX'} --add --compare {name}={model}` makes this file anew"
        )
        try:
            read_all = (read(self.files, names.compare_rows(name, s), b.count) for s, b in enumerate(segments))
            vectors = [in_memory(part) if part.rows.nbytes < SMALL else part for part in read_all]
        except Damaged as error:
            raise CrosscutError(f"{error}: {advice}") from error
        if any(part.rows.shape[1] != width for part in vectors):
            raise CrosscutError(
                f"{self._path(names.compare_folder(name))} is damaged (not of {width} columns): {advice}"
            )
        return StoredVectors(vectors)

    def _text(self, name: str, block: Block) -> bytes:
        advice = "run the same build again, with overwrite=True if the index has changed since"
        try:
            content = self.files.read_bytes(name)
        except Damaged as error:
            raise CrosscutError(f"{error}: {advice}") from error
        if hashlib.sha256(content).hexdigest() != block.sha256:
            raise CrosscutError(f"{self._path(name)} is damaged (its content has changed): {advice}")
        return content

    def _array(self, name: str, rows: int, columns: int | None = None) -> np.ndarray:
        advice = "run the same build again, or repair(store, scorer=..., encoder=...), to make this file anew"
        try:
            array = self.files.read_array(f"{name}.npy")
        except Damaged as error:
            raise CrosscutError(f"{error}: {advice}") from error
        shape = shape_of(array)
        if shape != (rows, columns or shape[1]):
            raise CrosscutError(f"{self._path(f'{name}.npy')} is damaged (shape {shape}): {advice}")
        return array

    def _path(self, name: str) -> str:
        return str(self.folder / name) if self.folder else name


def read_manifest(files: Files) -> Manifest | None:
    """The index.json, finished or not; None when there is none."""
    try:
        content = files.read_bytes(MANIFEST)
    except Damaged:
        return None
    return Manifest.from_json(content, str(files.folder / MANIFEST) if files.folder else MANIFEST)


def _live_positions(items: Sequence[Item], deleted: np.ndarray) -> dict[str, int]:
    return {item.id: p for p, item in enumerate(items) if not deleted[p]}


def _assemble(blocks: Sequence[Sequence[np.ndarray]], columns: int = 0) -> np.ndarray:
    """The array that the blocks make up; a single one of floats stays memory-mapped."""
    if not blocks:
        return np.zeros((0, columns), np.float16)
    pieces = [piece for row in blocks for piece in row]
    if len(pieces) == 1 and not is_int8(pieces[0]):
        return pieces[0]
    height = sum(len(row[0]) for row in blocks)
    width = sum(shape_of(piece)[1] for piece in blocks[0])
    dtype = np.result_type(*(np.float32 if is_int8(piece) else piece.dtype for piece in pieces))
    array = np.empty((height, width), dtype)
    top = 0
    for row in blocks:
        left, bottom = 0, top + len(row[0])
        for piece in row:
            right = left + shape_of(piece)[1]
            restore(piece, out=array[top:bottom, left:right])
            left = right
        top = bottom
    array.flags.writeable = False
    return array
