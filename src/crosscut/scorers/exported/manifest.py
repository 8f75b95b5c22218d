"""The folder of an exported model: crosscut.json says what is in it.

A folder may also hold a scorer and an encoder that share files: scorer.json and encoder.json then. crosscut-tiny,
which comes with crosscut, is one.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from crosscut.errors import CrosscutError
from crosscut.scorers.model_files import model_location

Kind: TypeAlias = Literal["scorer", "encoder"]

FORMAT = 1
MANIFEST = "crosscut.json"
PAIR: dict[Kind, str] = {"scorer": "scorer.json", "encoder": "encoder.json"}
TINY = "crosscut-tiny"
TINY_FOLDER = Path(__file__).parents[2] / "tiny"
BACKENDS = ("onnx", "openvino")
_FIELDS: dict[str, Any] = {
    "kind": str,
    "backend": str,
    "precision": str,
    "max_length": int | None,
    "types": bool,
    "pad": int,
    "source": dict,
    "files": dict,
    "prompts": dict,
    "graph": str,
}
_AT_FIRST = {"kind": "scorer", "prompts": {}, "graph": "model"}  # what the first manifests left unsaid


@dataclass(frozen=True)
class Manifest:
    """What crosscut.json says. `types`: whether the model reads token types; `pad`: the padding token.

    `precision` is fp32, int8, or int8-rows: int8 in which each row of a product has a range of its own.
    """

    kind: Kind
    backend: str
    precision: str
    max_length: int | None
    types: bool
    pad: int
    source: dict[str, str]  # name and digest of the model that was exported
    files: dict[str, str]  # name to SHA-256
    prompts: dict[str, str] = field(default_factory=dict)  # of an encoder: what stands before a query, an item
    graph: str = "model"  # the name of its file, without suffix

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """The manifest in the file `path`; the files beside it are checked against it."""
        folder = path.parent
        again = "install crosscut again" if folder == TINY_FOLDER else "export the model again"
        manifest = cls.parse(path, again)
        for name, expected in manifest.files.items():
            if not (folder / name).is_file():
                raise CrosscutError(f"the exported model {folder} lacks its file {name}: {again}")
            if file_digest(folder / name) != expected:
                raise CrosscutError(f"the file {folder / name} is damaged or was changed: {again}")
        return manifest

    @classmethod
    def parse(cls, path: Path, again: str = "export the model again") -> Manifest:
        """The manifest in the file `path`; `again` is what to do if it is not fit."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise CrosscutError(f"cannot read {path} ({type(error).__name__}): {again}") from error
        number = content.pop("format", None) if isinstance(content, dict) else None
        if number != FORMAT:
            raise CrosscutError(
                f"{path} has format {number!r}, but this version of crosscut reads format {FORMAT}: "
                f"update crosscut, or {again}"
            )
        content = _AT_FIRST | content
        wrong = [key for key, kind in _FIELDS.items() if not isinstance(content.get(key, ...), kind)]
        if wrong or content.keys() != _FIELDS.keys():
            named = ", ".join(wrong or sorted(content.keys() - _FIELDS.keys()))
            raise CrosscutError(f"{path} is damaged (see {named}): {again}")
        for key, known in (("kind", get_args(Kind)), ("backend", BACKENDS)):
            if content[key] not in known:
                raise CrosscutError(
                    f"{path} names the {key} {content[key]!r}, but there are only {' and '.join(known)}"
                )
        return cls(**content)

    def write(self, path: Path) -> None:
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=2)
        path.write_text(text + "\n", encoding="utf-8")


def is_exported(model: Any) -> bool:
    """Whether this is the folder of an exported model, or the name of the one that comes with crosscut.

    >>> is_exported("cross-encoder/ms-marco-MiniLM-L6-v2"), is_exported("crosscut-tiny")
    (False, True)
    """
    if not isinstance(model, str | Path):
        return False
    folder = Path(os.path.expanduser(model))
    return model == TINY or any((folder / name).is_file() for name in (MANIFEST, *PAIR.values()))


def manifest_path(model: str | Path, kind: Kind) -> Path:
    """Where an exported model has its manifest.

    >>> manifest_path("crosscut-tiny", "encoder").name
    'encoder.json'
    """
    if model == TINY:
        return TINY_FOLDER / PAIR[kind]
    folder = Path(model_location(model))
    return folder / (PAIR[kind] if (folder / PAIR[kind]).is_file() else MANIFEST)


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex.

    >>> file_digest(Path(os.devnull))[:16]
    'e3b0c44298fc1c14'
    """
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            sha.update(chunk)
    return sha.hexdigest()
