"""A cross-encoder or bi-encoder as a folder for ONNX Runtime or OpenVINO, which run it on a CPU without torch."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from crosscut.errors import CrosscutError, first_line
from crosscut.export.folder import check_free, new_folder
from crosscut.scorers.base import Pair, bad_text
from crosscut.scorers.exported import BACKENDS, MANIFEST, Manifest, file_digest, is_exported
from crosscut.scorers.model_files import loading, model_location
from crosscut.system import needs_extra

if TYPE_CHECKING:
    from crosscut.export.graph import Samples
    from crosscut.export.sources import Source

SAMPLES = 128  # pairs that int8 ranges are measured on


def export_model(
    model: str | Path,
    out: str | Path,
    *,
    backend: str = "onnx",
    int8: bool = False,
    texts: Sequence[str] | None = None,
    label: int | None = None,
    overwrite: bool = False,
) -> Path:
    """Write `model` (a folder, or a name on the hub) to the folder `out`: by its path a scorer, or an encoder.

    It becomes an encoder if sentence-transformers saved it as one: modules.json says so.

    With `int8`, weights and activations of the matrix products are 8-bit numbers. ONNX Runtime measures the range
    of the activations in each token. OpenVINO needs it beforehand, from `texts`, best of the kind that will come.
    For both, `texts` show which channels of the model are too large for the rest (default: docstrings of Python's
    standard library).

    `label` says which logit of several is the score. `out` appears complete or not at all; `overwrite` replaces
    a folder that an earlier export wrote.

    >>> export_model("cross-encoder/ms-marco-MiniLM-L6-v2", "fast", backend="abacus")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no backend 'abacus' to export to: use onnx or openvino
    """
    if backend not in BACKENDS:
        raise CrosscutError(f"there is no backend {backend!r} to export to: use {' or '.join(BACKENDS)}")
    if texts is not None and not int8:
        raise CrosscutError("texts are of use for int8 only: set int8=True, or leave them out")
    check_free(Path(out), overwrite)
    if is_exported(model):
        raise CrosscutError(f"{model} is an exported model already: export the one that it was made of")
    location = model_location(model)
    with needs_extra("export", "exporting a model"):
        from crosscut.export import graph
        from crosscut.export.sources import load_source

        convert = importlib.import_module(f"crosscut.export.{backend}").convert
    with loading(location):
        source = load_source(location, label)
    samples = _samples(source, sample_pairs(_docstrings() if texts is None else texts)) if int8 else []
    with new_folder(Path(out), overwrite) as folder:
        with _exporting(source.graph.config.model_type, backend), TemporaryDirectory(dir=folder) as scratch:
            traced = Path(scratch) / "model.onnx"
            graph.write_graph(source.graph, traced, samples)
            convert(traced, folder, samples)
        source.tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        files = sorted(folder.iterdir())
        about(source, str(model), backend, int8, files).write(folder / MANIFEST)
    return Path(out)


def about(
    source: Source, name: str, backend: str, int8: bool, files: Sequence[Path], graph: str = "model"
) -> Manifest:
    """The manifest of `source`, exported to these `files`."""
    by_row = "int8-rows" if backend == "onnx" else "int8"
    return Manifest(
        kind=source.kind,
        backend=backend,
        precision=by_row if int8 else "fp32",
        max_length=source.max_length,
        types=source.typed,
        pad=source.pad,
        source={"name": name, "digest": source.digest},
        files={path.name: file_digest(path) for path in files},
        prompts={role: prompt for role, prompt in source.prompts.items() if prompt},
        graph=graph,
    )


def sample_pairs(texts: Sequence[str]) -> list[Pair]:
    """Pairs as in a search: the head of a text as the query, with that text or with another in turn.

    >>> sample_pairs(["Read a file line by line, from its first to its last.", "Sleep."])
    [('Read a file line by line, from its', 'Read a file line by line, from its first to its last.'), \
('Sleep.', 'Read a file line by line, from its first to its last.')]
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise CrosscutError("texts must be a list of strings")
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise CrosscutError(
            "there are no texts to measure int8 ranges on: give some of the kind that will be scored"
        )
    places = np.linspace(0, len(texts) - 1, min(SAMPLES, len(texts))).round().astype(int)
    chosen = [texts[place] for place in places]
    return [(" ".join(text.split()[:8]), chosen[n - n % 2]) for n, text in enumerate(chosen)]


@contextmanager
def _exporting(family: str, backend: str) -> Iterator[None]:
    """Turn whatever the converters raise into one sentence."""
    try:
        yield
    except (CrosscutError, OSError):
        raise
    except Exception as error:
        raise CrosscutError(
            f"this model, of type {family}, cannot be exported to {backend} ({first_line(error)}): "
            "run it with torch"
        ) from error


def _samples(source: Source, pairs: list[Pair]) -> Samples:
    try:
        return source.samples(pairs)
    except Exception as error:
        raise CrosscutError(f"these texts cannot be read: {bad_text(pairs) or first_line(error)}") from error


def _docstrings() -> list[str]:
    from crosscut.data.docstrings import read_docstrings

    return [item.content for item in read_docstrings()]
