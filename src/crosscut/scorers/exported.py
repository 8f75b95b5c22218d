"""Models that `crosscut export` wrote: the format of their folder, and what their scorers share.

No torch and no transformers: a runtime, the `tokenizers` package and the folder are all that is needed.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.scorers.base import Pair, Scorer
from crosscut.scorers.model_files import loading, model_location
from crosscut.scorers.tokens import PairTokens, check_limits, length_batches

FORMAT = 1
MANIFEST = "crosscut.json"
BACKENDS = ("onnx", "openvino")
_FIELDS: dict[str, Any] = {
    "backend": str,
    "precision": str,
    "max_length": int | None,
    "types": bool,
    "pad": int,
    "source": dict,
    "files": dict,
}

# ids, mask and token types (pairs × tokens) to the scores of the pairs; may be called by several threads.
Run: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Manifest:
    """What crosscut.json says. `types`: whether the model reads token types; `pad`: the padding token."""

    backend: str
    precision: str
    max_length: int | None
    types: bool
    pad: int
    source: dict[str, str]  # name and digest of the model that was exported
    files: dict[str, str]  # name to SHA-256

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of `folder`, whose files are checked against it."""
        manifest = cls.parse(folder / MANIFEST)
        for name, expected in manifest.files.items():
            if not (folder / name).is_file():
                raise CrosscutError(f"the exported model {folder} lacks its file {name}: export it again")
            if file_digest(folder / name) != expected:
                raise CrosscutError(f"the file {folder / name} is damaged or was changed: export the model again")
        return manifest

    @classmethod
    def parse(cls, path: Path) -> Manifest:
        """The manifest in the file `path`."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise CrosscutError(f"cannot read {path} ({type(error).__name__}): export the model again") from error
        number = content.pop("format", None) if isinstance(content, dict) else None
        if number != FORMAT:
            raise CrosscutError(
                f"{path} has format {number!r}, but this version of crosscut reads format {FORMAT}: "
                "update crosscut, or export the model again"
            )
        wrong = [key for key, kind in _FIELDS.items() if not isinstance(content.get(key, ...), kind)]
        if wrong or content.keys() != _FIELDS.keys():
            named = ", ".join(wrong or sorted(content.keys() - _FIELDS.keys()))
            raise CrosscutError(f"{path} is damaged (see {named}): export the model again")
        return cls(**content)

    def write(self, folder: Path) -> None:
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=2)
        (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def exported_backend(model: Any) -> str | None:
    """The backend of an exported model's folder; None for anything else.

    >>> exported_backend("cross-encoder/ms-marco-MiniLM-L6-v2") is None
    True
    """
    if not isinstance(model, str | Path):
        return None
    path = Path(os.path.expanduser(model)) / MANIFEST
    if not path.is_file():
        return None
    backend = Manifest.parse(path).backend
    if backend not in BACKENDS:
        raise CrosscutError(f"{path} names the backend {backend!r}, but there are only {' and '.join(BACKENDS)}")
    return backend


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


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Turn a failing import inside the block into advice.

    >>> with needs_extra("onnx", "this model"):
    ...     raise ImportError("no onnxruntime")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: this model needs more packages (no onnxruntime): pip install "crosscut[onnx]"
    """
    try:
        yield
    except ImportError as error:
        raise CrosscutError(f'{what} needs more packages ({error}): pip install "crosscut[{extra}]"') from error


class ExportedScorer(Scorer):
    """A model in a folder that `crosscut export` wrote, run on the CPU; a backend says how, in `_open`.

    Batches of pairs of like length are spread over `threads` (default: the cores that this process may use), each
    batch on one core: small matrices gain more from that than from being split. For the limits on tokens see
    `TransformerScorer`; `truncated` counts the pairs that lost a token.
    """

    backend: ClassVar[str]
    device = "cpu"
    waste: ClassVar[float] = 0.05  # the share of a batch that may be padding

    def __init__(
        self,
        model: str | Path,
        *,
        query_tokens: int | None = None,
        item_tokens: int | None = None,
        max_length: int | None = None,
        threads: int | None = None,
    ) -> None:
        limits = {"query_tokens": query_tokens, "item_tokens": item_tokens, "max_length": max_length}
        check_limits(**limits, threads=threads)
        folder = Path(model_location(model))
        self.name = str(model)
        self.truncated = 0
        self.manifest = manifest = Manifest.read(folder)
        if manifest.backend != self.backend:
            raise CrosscutError(f"the model {model} was exported for {manifest.backend}, not for {self.backend}")
        longest = manifest.max_length
        if max_length is not None and longest is not None and max_length > longest:
            raise CrosscutError(f"max_length {max_length} does not suit {model}: it must be at most {longest}")
        self.max_length = longest if max_length is None else max_length
        self.threads = threads or _cores()
        with loading(str(folder)), needs_extra(self.backend, f"the exported model {model}"):
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._run = self._open(folder)
        self.tokens = PairTokens(tokenizer, self.max_length, query_tokens, item_tokens, types=manifest.types)
        self._options = {key: value for key, value in limits.items() if value is not None}
        identity = f"{file_digest(folder / MANIFEST)} {self._options}"
        self._digest = hashlib.sha256(identity.encode()).hexdigest()[:16]

    @abstractmethod
    def _open(self, folder: Path) -> Run:
        """The model, ready to run on `self.threads` threads."""

    @property
    @abstractmethod
    def batch_tokens(self) -> int:
        """Tokens that are scored at once on one core; a batch has at least one pair."""

    def digest(self) -> str:
        """Of the exported files, which the manifest names by theirs, and of every option that changes scores."""
        return self._digest

    def options(self) -> dict[str, Any]:
        """The limits, where they were given."""
        return dict(self._options)

    def _score(self, pairs: Sequence[Pair]) -> np.ndarray:
        encoded = self.tokens.pairs(pairs)
        scores = np.empty(len(pairs), np.float32)

        def run(batch: np.ndarray) -> None:
            ids, types, mask = encoded.rows(batch, pad=self.manifest.pad)
            scores[batch] = self._run(ids, mask, types)

        batches = length_batches(encoded.lengths, self.batch_tokens, self.waste)
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(run, batches))  # the list brings errors out
        self.truncated += encoded.truncated
        return scores


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
