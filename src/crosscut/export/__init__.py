"""A cross-encoder as a folder for ONNX Runtime or OpenVINO, which run it on a CPU without torch."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.export.folder import check_free, new_folder
from crosscut.scorers.base import Pair, bad_text
from crosscut.scorers.exported import BACKENDS, Manifest, file_digest, is_exported
from crosscut.scorers.model_files import first_line, folder_digest, loading, model_location, needs_extra
from crosscut.scorers.tokens import PairTokens

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
    """Write `model` (a folder, or a name on the hub) to the folder `out`, which is then a scorer by its path.

    With `int8`, weights and activations of the matrix products are 8-bit numbers. ONNX Runtime measures the range
    of the activations in each pair. OpenVINO needs it beforehand, from `texts`, best of the kind that will be
    scored. For both, `texts` show which channels of the model are too large for the rest (default: docstrings of
    Python's standard library).

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
        import torch

        from crosscut.export import graph
        from crosscut.scorers import torch_models

        convert = importlib.import_module(f"crosscut.export.{backend}").convert
    with loading(location):
        loaded = torch_models.load(location, label, "cpu", torch.float32)
    if loaded.markers:
        raise CrosscutError(
            f"the model {location} is of the [EMB] form, which cannot be exported: run it with torch"
        )
    tokenizer = loaded.tokenizer.backend_tokenizer
    max_length = torch_models.longest(loaded, None, location)
    samples: list[dict[str, np.ndarray]] = []
    if int8:
        tokens = PairTokens(tokenizer, max_length, query_tokens=64, item_tokens=256, types=loaded.typed)
        samples = _samples(tokens, sample_pairs(_docstrings() if texts is None else texts))
    with new_folder(Path(out), overwrite) as folder:
        with _exporting(loaded.model.config.model_type, backend), TemporaryDirectory(dir=folder) as scratch:
            traced = Path(scratch) / "model.onnx"
            graph.write_graph(loaded, traced, samples)
            convert(traced, folder, samples)
        tokenizer.save(str(folder / "tokenizer.json"))
        Manifest(
            kind="scorer",
            backend=backend,
            precision="int8" if int8 else "fp32",
            max_length=max_length,
            types=loaded.typed,
            pad=loaded.tokenizer.pad_token_id or 0,
            source={"name": str(model), "digest": folder_digest(loaded.folder)},
            files={path.name: file_digest(path) for path in sorted(folder.iterdir())},
        ).write(folder)
    return Path(out)


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
def _exporting(kind: str, backend: str) -> Iterator[None]:
    """Turn whatever the converters raise into one sentence."""
    try:
        yield
    except (CrosscutError, OSError):
        raise
    except Exception as error:
        raise CrosscutError(
            f"this model, of type {kind}, cannot be exported to {backend} ({first_line(error)}): run it with torch"
        ) from error


def _samples(tokens: PairTokens, pairs: list[Pair]) -> list[dict[str, np.ndarray]]:
    try:
        encoded = tokens.pairs(pairs)
    except Exception as error:
        raise CrosscutError(f"these texts cannot be read: {bad_text(pairs) or first_line(error)}") from error
    rows = (encoded.rows(np.array([position])) for position in range(len(pairs)))
    return [{"ids": ids, "mask": mask, "types": types} for ids, types, mask in rows]


def _docstrings() -> list[str]:
    from crosscut.data.docstrings import read_docstrings

    return [item.content for item in read_docstrings()]
