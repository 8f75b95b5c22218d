"""Models as the command line names them: what crosscut itself knows, and python:module:attribute."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from crosscut.errors import CrosscutError

if TYPE_CHECKING:
    from crosscut.compare import Comparer
    from crosscut.encoders import Encoder
    from crosscut.index.index import Index
    from crosscut.index.manifest import Manifest, Model
    from crosscut.scorers import Scorer

PYTHON = "python:"
LARGEST = 2_000_000_000  # of numbers in options: libraries count in 32 bits


def load_scorer(
    name: str | None, options: Sequence[str] = (), built_with: Mapping[str, Any] | None = None
) -> Scorer:
    """The scorer that `--scorer` names; it keeps a name by which `open_index` finds it again.

    `options` are those of --scorer-option; what an index was `built_with` holds where they say nothing.

    >>> load_scorer(None).name
    'crosscut-tiny'
    """
    from crosscut.scorers import Scorer, option_types, scorer_again
    from crosscut.scorers.exported import TINY

    name = TINY if name is None else name
    model = _import(name) if name.startswith(PYTHON) else _findable(name)
    # A ready scorer has a name of its own.
    named = {"name": name} if name.startswith(PYTHON) and not isinstance(model, Scorer) else {}
    return scorer_again(model, built_with or {}, **(typed_options(options, option_types(model)) | named))


def typed_options(options: Sequence[str], types: Mapping[str, Any]) -> dict[str, Any]:
    """KEY=VALUE words as values of the types that the keys have.

    >>> typed_options(["item_tokens=160", "device=cpu"], {"item_tokens": int | None, "device": str | None})
    {'item_tokens': 160, 'device': 'cpu'}
    """
    made: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not key or not equals:
            raise CrosscutError(f"--scorer-option takes KEY=VALUE, such as item_tokens=160, but got {option!r}")
        wanted = get_args(types.get(key)) or (types.get(key),)
        number = next((kind for kind in (int, float) if kind in wanted), None)
        shown = value if len(value) <= 40 else value[:39] + "…"
        try:
            made[key] = number(value) if number else value
        except ValueError:
            kind = "whole number" if number is int else "number"
            raise CrosscutError(f"the scorer option {key} must be a {kind}, but is {shown!r}") from None
        if number and not abs(made[key]) < LARGEST:
            raise CrosscutError(f"the scorer option {key} must be less than {LARGEST}, but is {shown!r}")
    return made


def load_encoder(name: str | None) -> Encoder:
    """The encoder that `--encoder` names.

    >>> load_encoder("python:json:dumps")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: python:json:dumps has no .encode(texts), so it is not an encoder
    """
    from crosscut.encoders import Encoder, ModelEncoder, as_encoder

    if name is None or not name.startswith(PYTHON):
        return as_encoder(name and _findable(name))
    model = _import(name)
    if isinstance(model, Encoder):
        return model
    if not callable(getattr(model, "encode", None)):
        raise CrosscutError(f"{name} has no .encode(texts), so it is not an encoder")
    return ModelEncoder(model, name=name)


def load_comparer(text: str) -> tuple[str | None, Comparer | str]:
    """The name, if there is one, and the compare model that `--compare` gives; folders are loaded by the index.

    >>> load_comparer("small=bi:sentence-transformers/all-MiniLM-L6-v2")
    ('small', 'bi:sentence-transformers/all-MiniLM-L6-v2')
    """
    from crosscut.compare import Comparer

    name, equals, model = text.partition("=")
    if not equals or Path(text).exists():
        name, model = "", text
    if not model or text.startswith("="):
        raise CrosscutError(f"--compare takes MODEL or NAME=MODEL, such as small=my-cmc, but got {text!r}")
    if model.startswith(PYTHON):
        found = _import(model)
        if not isinstance(found, Comparer):
            raise CrosscutError(f"{model} is not a compare model: it must be a crosscut.compare.Comparer")
        return name or None, found
    start = "bi:" if model.startswith("bi:") else ""
    return name or None, start + _findable(model.removeprefix(start))


def stored_name(kind: str, manifest: Manifest) -> str | None:
    """The name by which the scorer or encoder of an index is loaded again; None if it has none."""
    model: Model | None = getattr(manifest, kind)
    if model is None:
        return None
    if model.name.startswith(PYTHON):
        raise _untrusted(kind, model.name)
    if kind not in manifest.extra.get("by_name", [kind]):
        raise CrosscutError(
            f"the index was built with {kind} {model.name!r}, an object of the program that built it: "
            f"name one that is the same with --{kind}"
        )
    return model.name


def index_scorer(
    manifest: Manifest, name: str | None, options: Sequence[str], other_models: bool = False
) -> Scorer:
    """The scorer for an index: the one that is named, or else its own; see `load_scorer`."""
    from crosscut.scorers import RemoteScorer

    built_with = {} if other_models else manifest.scorer_options
    scorer = load_scorer(name or stored_name("scorer", manifest), options, built_with)
    if name is None and isinstance(scorer, RemoteScorer):
        scorer.withhold_key()
    return scorer


def open_index(
    folder: str,
    scorer: str | None,
    encoder: str | None,
    other_models: bool,
    options: Sequence[str] = (),
    compare: Sequence[str] = (),
    needs_scorer: bool = True,
) -> Index:
    """The index in `folder`, with the models that it names unless others are given."""
    from crosscut.index.index import Index
    from crosscut.index.store import Store

    manifest = Store.open(folder).manifest
    # Other names are resolved by the index itself, when it comes to need the model.
    is_code = manifest.scorer is not None and manifest.scorer.name.startswith(PYTHON)
    by_us = scorer or options or (is_code and needs_scorer)
    if encoder is None and manifest.encoder and manifest.encoder.name.startswith(PYTHON):
        raise _untrusted("encoder", manifest.encoder.name)
    return Index.load(
        folder,
        scorer=index_scorer(manifest, scorer, options, other_models) if by_us else None,
        encoder=None if encoder is None else load_encoder(encoder),
        compare=[load_comparer(text) for text in compare],
        other_models=other_models,
    )


def _untrusted(kind: str, name: str) -> CrosscutError:
    return CrosscutError(
        f"the index was built with the {kind} {name}: give --{kind} {name} if you trust that code, "
        "for an index does not run code by itself"
    )


def _findable(name: str) -> str:
    """A folder by its full path, so that an index finds its model from wherever it is searched."""
    from crosscut.scorers.exported import TINY

    return str(Path(name).resolve()) if name != TINY and Path(name).is_dir() else name


def _import(name: str) -> Any:
    module_name, _, attribute = name.removeprefix(PYTHON).partition(":")
    if not module_name or not attribute:
        raise CrosscutError(f"{name!r} is not of the form python:module:attribute")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise CrosscutError(
            f"cannot import the module {module_name!r} of {name} ({problem}): it must be installed, or lie in "
            f"the current folder, {Path.cwd()}"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise CrosscutError(f"{name}: the module {module_name!r} has no {attribute!r}")
        found = getattr(found, part)
    return found
