"""A cross-encoder from the Hugging Face hub or a folder, run by torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.scorers.base import Pair, Scorer
from crosscut.scorers.model_files import folder_digest, loading, model_location, needs_torch


class TransformerScorer(Scorer):
    """A sequence-classification model with one label; its logit is the score.

    `max_length` is what the model can read unless you ask for less; `truncated` counts the pairs that were
    cut to it. `device` is the GPU if there is one; `dtype` is float16 on a GPU and float32 elsewhere. Weights
    are read from safetensors files only, as the older format can run code.

    >>> TransformerScorer(Path("no/such/folder"))
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no model folder no/such/folder
    """

    def __init__(
        self,
        model: str | Path,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
        device: str | None = None,
        dtype: str | None = None,
    ) -> None:
        if batch_size < 1:
            raise CrosscutError(f"batch_size must be at least 1, but is {batch_size}")
        location = model_location(model)
        with needs_torch(f"the model {str(model)!r}"):
            import torch
            from transformers import AutoTokenizer
        self.name = str(model)
        self.truncated = 0
        self.batch_size = batch_size
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = dtype or ("float16" if self.device.startswith("cuda") else "float32")
        with loading(location):
            self._folder = _snapshot(location)
            self._tokenizer = AutoTokenizer.from_pretrained(location)
            self._model = _load(location).to(device=self.device, dtype=_torch_dtype(dtype)).eval()
        self.max_length = _max_length(self._tokenizer, self._model, max_length, self.name)
        self._digest: str | None = None

    def digest(self) -> str:
        if self._digest is None:
            self._digest = folder_digest(self._folder)
        return self._digest

    def _score(self, pairs: Sequence[Pair]) -> np.ndarray:
        import torch
        from transformers import DataCollatorWithPadding

        encoded = self._encode(pairs)
        pad = DataCollatorWithPadding(self._tokenizer)
        # Pairs of like length share a batch, so that little of it is padding; the longest go first, so that
        # memory runs out at once or never.
        order = sorted(range(len(pairs)), key=lambda i: -len(encoded["input_ids"][i]))
        scores = np.empty(len(pairs), dtype=np.float32)
        with torch.inference_mode():
            for start in range(0, len(order), self.batch_size):
                chosen = order[start : start + self.batch_size]
                batch = pad([{key: values[i] for key, values in encoded.items()} for i in chosen])
                logits = self._model(**batch.to(self.device)).logits
                scores[chosen] = logits.squeeze(-1).float().cpu().numpy()
        return scores

    def _encode(self, pairs: Sequence[Pair]) -> dict[str, list[list[int]]]:
        queries, items = [query for query, _ in pairs], [item for _, item in pairs]
        if self.max_length is None:
            return dict(self._tokenizer(queries, items))
        encoded = dict(self._tokenizer(queries, items, truncation=True, max_length=self.max_length))
        # Only pairs that fill the limit can have been cut: those are measured again, whole.
        full = [i for i, ids in enumerate(encoded["input_ids"]) if len(ids) == self.max_length]
        if full:
            whole = self._tokenizer([queries[i] for i in full], [items[i] for i in full], verbose=False)
            self.truncated += sum(len(ids) > self.max_length for ids in whole["input_ids"])
        return encoded


def _snapshot(location: str) -> Path:
    from transformers.utils import cached_file

    if Path(location).is_dir():
        if not (Path(location) / "config.json").is_file():
            raise CrosscutError(f"{location} is not a model folder: it has no config.json")
        if not list(Path(location).glob("*.safetensors")):
            raise CrosscutError(
                f"the model folder {location} has no weights in the safetensors format: "
                "save the model again with save_pretrained"
            )
    return Path(cached_file(location, "config.json")).parent


def _load(location: str) -> Any:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    labels = AutoConfig.from_pretrained(location).num_labels
    if labels != 1:
        raise CrosscutError(
            f"the model {location} has {labels} labels, but a scorer needs exactly one: "
            "use a cross-encoder that was trained with num_labels=1"
        )
    model, report = AutoModelForSequenceClassification.from_pretrained(
        location, use_safetensors=True, output_loading_info=True
    )
    if missing := sorted(report["missing_keys"]):
        # The library would fill these with random numbers, and the scores would mean nothing.
        raise CrosscutError(f"the model {location} is not a trained cross-encoder: it lacks {', '.join(missing)}")
    return model


def _torch_dtype(name: str) -> Any:
    import torch

    known = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
    if name not in known:
        raise CrosscutError(f"dtype must be one of {', '.join(known)}, but is {name!r}")
    return known[name]


def _max_length(tokenizer: Any, model: Any, asked: int | None, name: str) -> int | None:
    """The shortest of the limits there are; None when neither tokenizer nor model has one."""
    limits = [tokenizer.model_max_length, _positions(model)]
    # A tokenizer without a limit says so by an absurdly large number.
    limit = min((value for value in limits if value is not None and value < 10**9), default=None)
    if asked is None:
        return limit
    shortest = tokenizer.num_special_tokens_to_add(pair=True) + 2
    if asked < shortest or (limit is not None and asked > limit):
        raise CrosscutError(
            f"max_length {asked} does not suit {name}: it must be at least {shortest}"
            + (f" and at most {limit}" if limit is not None else "")
        )
    return asked


def _positions(model: Any) -> int | None:
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    # RoBERTa and its kin count positions from the padding index on, which costs as many places.
    return int(positions) - (0 if padding is None else padding + 1)
