"""An exported model in use, whatever it computes: batches of like length, each on a core of its own."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.scorers.exported.manifest import MANIFEST, Kind, Manifest, file_digest
from crosscut.scorers.model_files import loading, model_location
from crosscut.scorers.tokens import length_batches
from crosscut.system import cores, needs_extra

BATCH_TOKENS = 512  # that are run at once on one core: few enough to stay in its caches
WASTE = 0.05  # the share of a batch that may be padding

# ids, token types and mask (texts × tokens) of the texts at some positions.
Rows: TypeAlias = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
# The same as inputs of the graph, by their names, to its output; may be called by several threads.
Run: TypeAlias = Callable[[dict[str, np.ndarray]], np.ndarray]


class ExportedModel:
    """A folder that `crosscut export` wrote, checked and opened; `kind` is what the caller takes it for.

    Batches are spread over `threads` (default: the cores that this process may use), each batch on one core:
    small matrices gain more from that than from being split.

    >>> ExportedModel(Path("no/such/folder"), "scorer", threads=None)
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no model folder no/such/folder
    """

    def __init__(self, model: str | Path, kind: Kind, threads: int | None) -> None:
        self.folder = Path(model_location(model))
        self.manifest = manifest = Manifest.read(self.folder)
        if manifest.kind != kind:
            raise CrosscutError(
                f"{model} is an exported {manifest.kind} and cannot serve as {kind}: "
                f"name it as the {manifest.kind}"
            )
        self.threads = threads or len(cores())
        with loading(str(self.folder)), needs_extra(manifest.backend, f"the exported model {model}"):
            from tokenizers import Tokenizer

            self.tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
            runtime = importlib.import_module(f"crosscut.scorers.exported.{manifest.backend}")
            self._run: Run = runtime.open_model(self.folder, self.threads)
        # ONNX Runtime takes int8 ranges from what is run together: only alone has a text one result, every time.
        # That costs speed where texts are short (a third is left for 6 words, nine tenths for 80).
        self._alone = (manifest.backend, manifest.precision) == ("onnx", "int8")

    def digest(self, options: Mapping[str, Any]) -> str:
        """Of the exported files, which the manifest names by theirs, and of the options that change results."""
        identity = f"{file_digest(self.folder / MANIFEST)} {dict(options)}"
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def run(self, lengths: np.ndarray, rows: Rows) -> np.ndarray:
        """What the model makes of texts of these `lengths` (in tokens, at least one), in their order."""

        def run(batch: np.ndarray) -> np.ndarray:
            ids, types, mask = rows(batch)
            return self._run({"ids": ids, "mask": mask, "types": types})

        batches = list(length_batches(lengths, 1 if self._alone else BATCH_TOKENS, WASTE))
        with ThreadPoolExecutor(self.threads) as pool:
            made = np.concatenate(list(pool.map(run, batches)))
        results = np.empty_like(made)
        results[np.concatenate(batches)] = made
        return results
