"""The encoder inside a compare model: the states of a text's tokens, and one vector of the whole text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.scorers.model_files import loading, model_location, state_digest

PROMPTS = {"query": ("query",), "item": ("document", "passage", "corpus")}


@dataclass(frozen=True)
class States:
    """Of texts: `last` (texts, tokens, d), `mask` (True at tokens; None: no padding), `layers` (see `states`)."""

    last: torch.Tensor
    mask: torch.Tensor | None
    layers: tuple[torch.Tensor, ...] = ()


class TextEncoder(torch.nn.Module):
    """A sentence-transformers model whose vectors keep their lengths: a last Normalize is left out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        if getattr(model[0], "auto_model", None) is None or not hasattr(model.tokenizer, "backend_tokenizer"):
            raise CrosscutError(
                f"a {type(model[0]).__name__} cannot be the encoder of a compare model: use one that has a fast "
                "tokenizer, such as BERT, RoBERTa, ModernBERT or MiniLM"
            )
        names = model.prompts or {}
        self.prompts = {
            role: next((names[name] for name in known if names.get(name)), "") for role, known in PROMPTS.items()
        }

    @classmethod
    def load(cls, location: str | Path) -> TextEncoder:
        """The model in a folder or on the hub, on the CPU, in float32."""
        place = model_location(location)
        with loading(place):
            # Safetensors only: the older format of weights can run code.
            options = {"use_safetensors": True, "dtype": torch.float32}
            encoder = cls(SentenceTransformer(place, device="cpu", model_kwargs=options))
        if len(encoder.vocabulary) <= len(set(encoder.model.tokenizer.all_special_ids)):
            # Without any file of it, transformers makes up a tokenizer that knows no word.
            raise CrosscutError(
                f"the encoder in {place} has no tokenizer: save it there too, with tokenizer.save_pretrained"
            )
        return encoder

    @property
    def vocabulary(self) -> dict[str, int]:
        """Numbers of the tokens that its tokenizer knows."""
        return dict(self.model.tokenizer.get_vocab())

    @property
    def inner(self) -> Any:
        """The model without pooling."""
        return self.model[0].auto_model

    @property
    def width(self) -> int:
        """Of the vector of a text; older versions of the library have another name for this."""
        new = getattr(self.model, "get_embedding_dimension", None)
        return int(new() if new else self.model.get_sentence_embedding_dimension())

    @property
    def token_width(self) -> int:
        """Of the state of a token."""
        return int(self.inner.config.hidden_size)

    @property
    def heads(self) -> int:
        return int(self.inner.config.num_attention_heads)

    @property
    def layer_count(self) -> int:
        return int(self.inner.config.num_hidden_layers)

    @property
    def dropout(self) -> float:
        return float(getattr(self.inner.config, "hidden_dropout_prob", 0.0))

    @property
    def pad(self) -> int:
        return int(self.model.tokenizer.pad_token_id or 0)

    def tokens(self, texts: Sequence[str], role: Role) -> list[list[int]]:
        """Whole texts with their special tokens, cut to what the encoder reads."""
        limit, prompt = self.model.max_seq_length, self.prompts[role]
        cut = {"truncation": True, "max_length": limit} if limit else {}
        more = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        made = self.model.tokenizer([(prompt + text).strip() for text in texts], **cut, **more)["input_ids"]
        return [ids or [self.pad] for ids in made]  # to some tokenizers an empty text has no token

    def states(self, given: dict[str, torch.Tensor], layers: bool = False) -> States:
        """Of texts as `input_ids`, with an `attention_mask` if padded. `layers`: also what each layer reads."""
        output = self.inner(**given, output_hidden_states=layers, return_dict=True)
        mask = given.get("attention_mask")
        read = tuple(output.hidden_states[:-1]) if layers else ()
        return States(output.last_hidden_state, None if mask is None else mask.bool(), read)

    def pooled(self, states: States) -> torch.Tensor:
        """One vector per text, of any length."""
        features: dict[str, Any] = {"token_embeddings": states.last}
        if states.mask is not None:
            features["attention_mask"] = states.mask.long()
        for module in list(self.model)[1:]:
            if not isinstance(module, Normalize):
                features = module(features)
        return features["sentence_embedding"]

    def digest(self) -> str:
        """Of the weights, and of what else its vectors depend on: the words, and how they are read and pooled."""
        modules: list[Any] = [
            (type(m).__name__, getattr(m, "get_config_dict", dict)()) for m in list(self.model)[1:]
        ]
        words = sorted(self.vocabulary.items())
        about = [state_digest(self.model), self.model.max_seq_length, self.prompts, modules, words]
        return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:16]
