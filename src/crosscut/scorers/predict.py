"""Any object with `.predict(pairs)` as a scorer; sentence-transformers' CrossEncoder works as it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from crosscut.errors import CrosscutError
from crosscut.scorers.base import Pair, Scorer
from crosscut.scorers.model_files import state_digest


class PredictScorer(Scorer):
    """`model.predict(pairs)` returns one score per (query, text) pair.

    A CrossEncoder is asked for raw logits, whatever activation it is set to apply. `batch_size` is handed on.

    >>> class Model:
    ...     def predict(self, pairs):
    ...         return [float(query in item) for query, item in pairs]
    >>> PredictScorer(Model()).score([("sky", "blue sky"), ("sky", "whale")]).tolist()
    [1.0, 0.0]
    """

    def __init__(self, model: Any, *, name: str | None = None, batch_size: int | None = None) -> None:
        self._model = model
        self._options: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
        self._digest: str | None = None
        self.name = name or type(model).__name__
        if _is_cross_encoder(model):
            self.name = name or getattr(model.config, "_name_or_path", "") or self.name
            self._options |= _raw_logits(model, self.name)

    def digest(self) -> str:
        if self._digest is None:
            self._digest = state_digest(self._model)
        return self._digest

    def _score(self, pairs: Sequence[Pair]) -> Any:
        return self._model.predict(list(pairs), **self._options)


def _is_cross_encoder(model: Any) -> bool:
    # Whoever holds a CrossEncoder has imported the library; everyone else is spared the import.
    library = sys.modules.get("sentence_transformers")
    return library is not None and isinstance(model, library.CrossEncoder)


def _raw_logits(model: Any, name: str) -> dict[str, Any]:
    import torch

    labels = getattr(model, "num_labels", 1)
    if labels != 1:
        raise CrosscutError(
            f"the CrossEncoder {name} has {labels} labels, but a scorer needs exactly one: "
            "use a model that was trained with num_labels=1"
        )
    # Before version 4 of sentence-transformers the argument was called activation_fct.
    activation = "activation_fn" if hasattr(model, "activation_fn") else "activation_fct"
    return {activation: torch.nn.Identity(), "show_progress_bar": False}
