"""index.json: what an index folder holds. What it does not mention is not part of the index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from re import fullmatch
from typing import TYPE_CHECKING, Any

from crosscut.errors import CrosscutError

if TYPE_CHECKING:
    from crosscut.compare.base import Comparer
    from crosscut.encoders.base import Encoder
    from crosscut.scorers.base import Scorer

FORMAT = 3  # the newest that is read
FORMATS = {"float16": 1, "int8": 2}  # how scores are stored: the oldest format that has it, which is written
WITH_COMPARE = 3  # likewise, of an index with vectors of compare models
COMPARE_NAME = "[a-z][a-z0-9-]*"
MANIFEST = "index.json"
ITEM_ANCHORS = "item_anchors.json"


@dataclass(frozen=True)
class Block:
    """One file of lines: how many, and the SHA-256 of its bytes."""

    count: int
    sha256: str


@dataclass(frozen=True)
class Contents:
    """What an index holds, or what one build or add brings to it.

    >>> old, new = Contents(segments=(Block(2, "aa"),)), Contents(segments=(Block(1, "bb"),))
    >>> (old + new).item_count
    3
    """

    segments: tuple[Block, ...] = ()
    anchors: tuple[Block, ...] = ()
    item_anchors: Block | None = None

    def __add__(self, new: Contents) -> Contents:
        return Contents(
            self.segments + new.segments, self.anchors + new.anchors, self.item_anchors or new.item_anchors
        )

    @property
    def item_count(self) -> int:
        return sum(block.count for block in self.segments)

    @property
    def anchor_count(self) -> int:
        return sum(block.count for block in self.anchors)

    def files(self) -> Iterator[str]:
        """Every file that may belong to these contents (vectors only where there is an encoder)."""
        yield ITEM_ANCHORS
        for segment in range(len(self.segments)):
            yield from (items_file(segment), item_vectors(segment) + ".npy", item_scores(segment) + ".npy")
            yield from (scores(block, segment) + ".npy" for block in range(len(self.anchors)))
        for block in range(len(self.anchors)):
            yield from (anchors_file(block), anchor_vectors(block) + ".npy")


def items_file(segment: int) -> str:
    return f"items/{segment:06d}.jsonl"


def anchors_file(block: int) -> str:
    return f"anchors/{block:06d}.jsonl"


# Arrays are named without ".npy": their tiles lie beside them in a folder NAME.tiles.
def item_vectors(segment: int) -> str:
    return f"vectors/items-{segment:06d}"


def anchor_vectors(block: int) -> str:
    return f"vectors/anchors-{block:06d}"


def scores(block: int, segment: int) -> str:
    return f"scores/q{block:06d}-i{segment:06d}"


def item_scores(segment: int) -> str:
    return f"scores/items-i{segment:06d}"


def compare_folder(name: str) -> str:
    return f"compare/{name}"


def compare_rows(name: str, segment: int) -> str:
    return f"{compare_folder(name)}/rows-{segment:06d}"


def starts_of(rows: str) -> str:
    """The array that says which rows of the array `rows` belong to which item; of tiles likewise.

    >>> starts_of("compare/cmc/rows-000000")
    'compare/cmc/starts-000000'
    """
    return rows.replace("/rows-", "/starts-", 1)


@dataclass(frozen=True)
class Model:
    """Which scorer, encoder or compare model the stored numbers come from."""

    name: str
    digest: str

    @classmethod
    def of(cls, model: Scorer | Encoder | Comparer) -> Model:
        return cls(model.name, model.digest())

    def is_same(self, other: Model) -> bool:
        """The same weights are the same model, wherever they lie; without digests only the name is left to go by.

        A digest has parts; an index of an early version knows the first alone.

        >>> Model("a", "12").is_same(Model("b", "12-34")), Model("a", "12-34").is_same(Model("a", "12-35"))
        (True, False)
        """
        if not (self.digest and other.digest):
            return self.name == other.name
        if "-" in self.digest and "-" in other.digest:
            return self.digest == other.digest
        return self.digest.partition("-")[0] == other.digest.partition("-")[0]

    def __str__(self) -> str:
        return f"{self.name!r} (digest {self.digest[:12] or 'unknown'})"


@dataclass(frozen=True)
class Compared:
    """A compare model whose vectors of the items are in the index; unless `complete`, they are still being made.

    signal: to how many of a query's nearest items the default search applies it, as one more signal; 0: to none.
    by_name: whether `model.name` may find it again.
    """

    model: Model
    kind: str
    width: int
    signal: int = 0
    by_name: bool = True
    complete: bool = False

    def fits(self, comparer: Comparer) -> bool:
        """Whether the vectors come from this model."""
        same = self.model.is_same(Model.of(comparer))
        return same and (self.kind, self.width) == (comparer.kind, comparer.width)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "model": vars(self.model)}

    @classmethod
    def from_json(cls, keys: dict[str, Any]) -> Compared:
        types = {"kind": str, "width": int, "signal": int, "by_name": bool, "complete": bool}
        model = Model(str(keys["model"]["name"]), str(keys["model"]["digest"]))
        return cls(model, **{key: type(keys[key]) for key, type in types.items()})


@dataclass(frozen=True)
class Manifest:
    """The content of index.json. `pending` is what an unfinished build or add is about to bring.

    >>> manifest = Manifest(Model("f", ""), None, (16, 1024), Contents((Block(2, "aa"),)), deleted=(1,))
    >>> Manifest.from_json(manifest.to_json(), "index.json") == manifest
    True
    """

    scorer: Model | None
    encoder: Model | None
    tile: tuple[int, int]
    contents: Contents = field(default_factory=Contents)
    pending: Contents | None = None
    deleted: tuple[int, ...] = ()
    dtype: str = "float16"  # of stored scores; single files may be float32 (see store.py)
    compare: dict[str, Compared] = field(default_factory=dict)  # by their names in this index
    # Keys that this version does not know are kept when it rewrites the file.
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def scorer_options(self) -> dict[str, Any]:
        """What the scorer was made with beside its name, as far as its scores depend on it."""
        options = self.extra.get("scorer_options", {})
        if not isinstance(options, dict):
            raise CrosscutError(
                f"{MANIFEST} is damaged: its scorer_options are {options!r}, but must be an object"
            )
        return options

    @property
    def state(self) -> str:
        return "complete" if self.contents.segments else "building"

    def files(self) -> Iterator[str]:
        """Every file that may belong to the index as it is."""
        yield from self.contents.files()
        yield from (f"{array}.npy" for array in self._compare_arrays(complete=True))

    def unfinished_files(self) -> Iterator[str]:
        """Files and folders of tiles of compare models whose vectors are still being made."""
        for array in self._compare_arrays(complete=False):
            yield from (f"{array}.npy", f"{array}.tiles")

    def _compare_arrays(self, complete: bool) -> Iterator[str]:
        for name, compared in self.compare.items():
            for segment in range(len(self.contents.segments) if compared.complete == complete else 0):
                yield from (compare_rows(name, segment), starts_of(compare_rows(name, segment)))

    def to_json(self) -> bytes:
        return (json.dumps(self._keys() | self.extra, indent=1) + "\n").encode()

    def _keys(self) -> dict[str, Any]:
        counts = {
            "items": self.contents.item_count,
            "deleted": len(self.deleted),
            "anchor_queries": self.contents.anchor_count,
            "anchor_items": self.contents.item_anchors.count if self.contents.item_anchors else 0,
        }
        compare = {name: compared.to_json() for name, compared in self.compare.items()}
        return {
            "format": max(FORMATS[self.dtype], WITH_COMPARE if compare else 0),
            "state": self.state,
            "scorer": vars(self.scorer) if self.scorer else None,
            "encoder": vars(self.encoder) if self.encoder else None,
            "dtype": self.dtype,
            "tile": list(self.tile),
            "counts": counts,
            **_contents_to_json(self.contents),
            "pending": _contents_to_json(self.pending) if self.pending else None,
            "deleted": self.deleted,
            **({"compare": compare} if compare else {}),
        }

    @classmethod
    def from_json(cls, content: bytes, path: str) -> Manifest:
        try:
            keys = json.loads(content)
            if not isinstance(keys["format"], int):
                raise TypeError("format is not a number")
            if keys["format"] > FORMAT:
                raise CrosscutError(
                    f"{path} was written by a newer crosscut (format {keys['format']}; this one reads up to "
                    f"format {FORMAT}): upgrade crosscut"
                )
            rows, columns = keys["tile"]
            manifest = cls(
                scorer=_model_from_json(keys["scorer"]),
                encoder=_model_from_json(keys["encoder"]),
                tile=(int(rows), int(columns)),
                contents=_contents_from_json(keys),
                pending=_contents_from_json(keys["pending"]) if keys["pending"] else None,
                deleted=tuple(int(position) for position in keys["deleted"]),
                dtype=keys.get("dtype", "float16"),
                compare={name: Compared.from_json(one) for name, one in keys.get("compare", {}).items()},
            )
            if not all(fullmatch(COMPARE_NAME, name) for name in manifest.compare):  # it becomes a path
                raise ValueError("a compare model has an odd name")
            if manifest.dtype not in FORMATS:
                raise ValueError(f"dtype {manifest.dtype!r} is unknown")
            extra = {key: value for key, value in keys.items() if key not in manifest._keys()}
            if any(not 0 <= position < manifest.contents.item_count for position in manifest.deleted):
                raise ValueError("a deleted position is not in the index")
            if keys["state"] != manifest.state:
                raise ValueError(f"state {keys['state']!r} does not fit its segments")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise CrosscutError(
                f"{path} is damaged ({what}): restore it from a copy, or build again with overwrite=True"
            ) from error
        return replace(manifest, extra=extra)


def looks_like_manifest(content: bytes) -> bool:
    """Whether this is an index.json of ours, of any version, and not somebody else's.

    >>> looks_like_manifest(b'{"pages": []}')
    False
    """
    try:
        keys = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(keys, dict) and {"format", "state", "scorer", "segments"} <= keys.keys()


def _contents_to_json(contents: Contents) -> dict[str, Any]:
    return {
        "segments": [vars(block) for block in contents.segments],
        "anchors": [vars(block) for block in contents.anchors],
        "item_anchors": vars(contents.item_anchors) if contents.item_anchors else None,
    }


def _contents_from_json(keys: dict[str, Any]) -> Contents:
    return Contents(
        tuple(_block_from_json(block) for block in keys["segments"]),
        tuple(_block_from_json(block) for block in keys["anchors"]),
        _block_from_json(keys["item_anchors"]) if keys["item_anchors"] else None,
    )


def _block_from_json(keys: dict[str, Any]) -> Block:
    return Block(int(keys["count"]), str(keys["sha256"]))


def _model_from_json(keys: dict[str, Any] | None) -> Model | None:
    return Model(str(keys["name"]), str(keys["digest"])) if keys else None
