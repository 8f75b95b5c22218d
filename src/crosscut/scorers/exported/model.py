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
from crosscut.scorers.exported.manifest import Kind, Manifest, file_digest, manifest_path
from crosscut.scorers.model_files import loading
from crosscut.scorers.tokens import length_batches
from crosscut.system import cores

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
        path = manifest_path(model, kind)
        self.manifest = manifest = Manifest.read(path)
        self._identity = file_digest(path)
        if manifest.kind != kind:
            raise CrosscutError(
                f"{model} is an exported {manifest.kind} and cannot serve as {kind}: "
                f"name it as the {manifest.kind}"
            )
        self.threads = threads or len(cores())
        with loading(str(path.parent)):
            from tokenizers import Tokenizer

            self.tokenizer = Tokenizer.from_file(str(path.with_name("tokenizer.json")))
            runtime = importlib.import_module(f"crosscut.scorers.exported.{manifest.backend}")
            self._run: Run = runtime.open_model(path.with_name(manifest.graph), self.threads)
        # A text has one result, whatever it is run with. Padding changes the last bit of a sum, which int8 may
        # round to another step. The first int8 exports for ONNX Runtime had one range for all that ran together.
        self._waste = 0.0 if manifest.precision == "int8-rows" else WASTE
        self._tokens = 1 if (manifest.backend, manifest.precision) == ("onnx", "int8") else BATCH_TOKENS

    def digest(self, options: Mapping[str, Any]) -> str:
        """Of the exported files, which the manifest names by theirs, and of the options that change results."""
        identity = f"{self._identity} {dict(options)}"
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def run(self, lengths: np.ndarray, rows: Rows) -> np.ndarray:
        """What the model makes of texts of these `lengths` (in tokens, at least one), in their order."""

        def run(batch: np.ndarray) -> np.ndarray:
            ids, types, mask = rows(batch)
            return self._run({"ids": ids, "mask": mask, "types": types})

        batches = list(length_batches(lengths, self._tokens, self._waste))
        with ThreadPoolExecutor(self.threads) as pool:
            made = np.concatenate(list(pool.map(run, batches)))
        results = np.empty_like(made)
        results[np.concatenate(batches)] = made
        return results
