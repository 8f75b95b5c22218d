"""f(query, item): everything that can score a pair of texts, behind one small interface."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from crosscut.errors import CrosscutError
from crosscut.scorers.base import Scorer
from crosscut.scorers.exported import TINY, ExportedScorer, is_exported
from crosscut.scorers.function import FunctionScorer
from crosscut.scorers.matrix import MatrixScorer
from crosscut.scorers.predict import PredictScorer
from crosscut.scorers.remote import CohereScorer, RemoteScorer, TeiScorer
from crosscut.scorers.transformer import TransformerScorer

__all__ = [
    "CohereScorer",
    "ExportedScorer",
    "FunctionScorer",
    "MatrixScorer",
    "PredictScorer",
    "RemoteScorer",
    "Scorer",
    "TeiScorer",
    "TransformerScorer",
    "as_scorer",
    "option_types",
    "scorer_again",
]

# Asked from top to bottom: a torch module with `.predict` is callable too, and must be taken by `.predict`.
_BACKENDS: list[tuple[Callable[[Any], bool], type[Scorer]]] = [
    (lambda obj: isinstance(obj, str) and obj.startswith("cohere:"), CohereScorer),
    (lambda obj: isinstance(obj, str) and obj.startswith("tei:"), TeiScorer),
    (is_exported, ExportedScorer),
    (lambda obj: isinstance(obj, str | Path), TransformerScorer),
    (lambda obj: callable(getattr(obj, "predict", None)), PredictScorer),
    (callable, FunctionScorer),
]


def as_scorer(obj: Any = None, **options: Any) -> Scorer:
    """Make a scorer of what the caller has; `options` are those of the backend that takes it.

    None is crosscut-tiny, the model that comes with crosscut.

    >>> as_scorer(lambda query, texts: [len(text) for text in texts], name="length").name
    'length'
    >>> as_scorer(item_tokens=64).name
    'crosscut-tiny'
    """
    obj = TINY if obj is None else obj
    if isinstance(obj, Scorer):
        if options:
            raise CrosscutError(f"a ready scorer takes no options, but got {', '.join(options)}")
        return obj
    backend = _backend(obj)
    _check_options(backend, obj, options)
    return backend(obj, **options)


def scorer_again(obj: Any, built_with: Mapping[str, Any], **options: Any) -> Scorer:
    """As `as_scorer`, with the options that an index was `built_with` unless others are given.

    What `obj` does not take is left out: it is another kind of scorer then, which the caller will see.

    >>> scorer_again(lambda query, texts: [0.0 for _ in texts], {"item_tokens": 160}, name="zero").name
    'zero'
    """
    known = option_types(obj)
    return as_scorer(obj, **({key: value for key, value in built_with.items() if key in known} | options))


def option_types(obj: Any) -> dict[str, Any]:
    """The options that `as_scorer` takes along with `obj`, and their types.

    >>> "item_tokens" in option_types("cross-encoder/ms-marco-MiniLM-L6-v2")
    True
    """
    if isinstance(obj, Scorer):
        return {}
    backend = _backend(TINY if obj is None else obj)
    types = get_type_hints(backend.__init__)
    return {name: types.get(name, str) for name in _parameters(backend)}


def _backend(obj: Any) -> type[Scorer]:
    if not isinstance(obj, type):  # a class may have `predict` and be callable, but scores nothing
        for accepts, backend in _BACKENDS:
            if accepts(obj):
                return backend
    raise CrosscutError(
        f"cannot score with {reprlib.repr(obj)}: give a model name or folder, "
        "an object with .predict(pairs), a function f(query, texts) -> scores, or a Scorer"
    )


def _check_options(backend: type[Scorer], obj: Any, options: dict[str, Any]) -> None:
    try:
        inspect.signature(backend.__init__).bind(None, obj, **options)
    except TypeError as error:
        known = ", ".join(_parameters(backend))
        raise CrosscutError(f"wrong options for a scorer ({error}): these are known: {known}") from error


def _parameters(backend: type[Scorer]) -> list[str]:
    # In older Pythons the signature of a class is that of `__new__`, wherever it is inherited from.
    return list(inspect.signature(backend.__init__).parameters)[2:]
