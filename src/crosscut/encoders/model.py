"""Encoders that are models: any object with `.encode(texts)`, and sentence-transformers by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crosscut.encoders.base import Encoder, Role
from crosscut.scorers.model_files import loading, model_location, state_digest
from crosscut.system import needs_extra

GPU_TEXTS = 512  # in a batch: enough to fill it


class ModelEncoder(Encoder):
    """`model.encode(texts)`, or its `encode_query` and `encode_document` by role where it has both.

    >>> class Model:
    ...     def encode(self, texts):
    ...         return [[len(text), 0.0] for text in texts]
    >>> ModelEncoder(Model()).encode(["sky"]).tolist()
    [[1.0, 0.0]]
    """

    def __init__(self, model: Any, *, name: str | None = None) -> None:
        self._model = model
        self._digest: str | None = None
        self.name = name or type(model).__name__
        has_roles = hasattr(model, "encode_query") and hasattr(model, "encode_document")
        self._methods: dict[Role, Callable[..., Any]] = {
            "query": model.encode_query if has_roles else model.encode,
            "item": model.encode_document if has_roles else model.encode,
        }

    def digest(self) -> str:
        if self._digest is None:
            self._digest = state_digest(self._model)
        return self._digest

    def _encode(self, texts: Sequence[str], role: Role) -> Any:
        method, device = self._methods[role], getattr(self._model, "device", None)
        if not _is_gpu(device):
            return method(list(texts), **_options(method, device))
        from crosscut.scorers.torch_models import any_shape

        with any_shape():
            return method(list(texts), **_options(method, device))


def sentence_transformer(model: str | Path, device: str | None = None) -> ModelEncoder:
    """The sentence-transformers model in a folder or on the Hugging Face hub; on a GPU in half precision.

    >>> sentence_transformer("./no/such/folder")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no model folder ./no/such/folder
    """
    location = model_location(model)
    with needs_extra("torch", f"the encoder {str(model)!r}"):
        from sentence_transformers import SentenceTransformer
    with loading(location):
        # Safetensors only: the older format of weights can run code.
        loaded = SentenceTransformer(location, device=device, model_kwargs={"use_safetensors": True})
    encoder = ModelEncoder(loaded, name=str(model))
    if loaded.device.type == "cuda" and {str(weight.dtype) for weight in loaded.parameters()} == {"torch.float32"}:
        encoder.digest()  # of the weights as they were saved: it is the same on every device
        loaded.half()
    return encoder


def _is_gpu(device: Any) -> bool:
    return getattr(device, "type", None) == "cuda"


def _options(method: Callable[..., Any], device: Any) -> dict[str, Any]:
    """No bar, and on a GPU batches that fill it, where the method knows of such things."""
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):  # some compiled functions have no signature to look at
        return {}
    wanted: dict[str, Any] = {"show_progress_bar": False}
    if _is_gpu(device):
        wanted["batch_size"] = GPU_TEXTS
    return {name: value for name, value in wanted.items() if name in parameters}
