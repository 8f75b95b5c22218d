"""Models as they come, cross-encoders and bi-encoders, made ready to be traced."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.utils import cached_file

from crosscut.encoders.base import Role, to_unit_length
from crosscut.encoders.exported import text_rows
from crosscut.encoders.model import ModelEncoder
from crosscut.errors import CrosscutError
from crosscut.export.graph import Bert, General, Samples
from crosscut.scorers import torch_models
from crosscut.scorers.base import Pair
from crosscut.scorers.exported import Kind, Rows
from crosscut.scorers.model_files import folder_digest, state_digest
from crosscut.scorers.packed import can_pack
from crosscut.scorers.tokens import PairTokens

# The names that sentence-transformers has for the prompts of a role.
PROMPTS: dict[Role, tuple[str, ...]] = {"query": ("query",), "item": ("document", "passage", "corpus")}
PROBES = ["a", "The cat sat on the mat.", "  É 東  x, y\n"]
SAMPLE_TOKENS = 256  # of a text that int8 is fitted to


@dataclass(frozen=True)
class Source:
    """A model to export. `tokenizer` (of the `tokenizers` package) is written as it is."""

    kind: Kind
    graph: General | Bert
    tokenizer: Any
    max_length: int | None
    typed: bool
    pad: int
    digest: str
    samples: Callable[[Sequence[Pair]], Samples]  # inputs of the graph, of pairs like those of a search
    prompts: dict[Role, str] = field(default_factory=dict)


def load_source(location: str, label: int | None) -> Source:
    """The model at `location`, a folder or a name on the hub; `label` says which logit of several is the score.

    A model that sentence-transformers saved says which of its kinds it is; all else is taken for a cross-encoder.
    """
    modules, kind = _modules(location)
    if kind == "SentenceTransformer":
        return _encoder(location, modules, label)
    if kind == "CrossEncoder" and modules in ([], ["Transformer"]):
        return _scorer(location, label)
    raise CrosscutError(
        f"the model {location} is a {kind} ({', '.join(modules)}), which cannot be exported: give a cross-encoder "
        "or a bi-encoder"
    )


def _modules(location: str) -> tuple[list[str], str]:
    """The names of the modules of a sentence-transformers model, and which of its kinds it is."""
    modules = _json(location, "modules.json")
    if modules is None:
        return [], "CrossEncoder"
    about = _json(location, "config_sentence_transformers.json") or {}
    kind = about.get("model_type", "SentenceTransformer")  # which was the only one, once
    return [module["type"].rpartition(".")[2] for module in modules], kind


def _json(location: str, name: str) -> Any:
    path = cached_file(location, name, _raise_exceptions_for_missing_entries=False)
    return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))


def _scorer(location: str, label: int | None) -> Source:
    loaded = torch_models.load(location, label, "cpu", torch.float32)
    if loaded.markers:
        raise CrosscutError(
            f"the model {location} is of the [EMB] form, which cannot be exported: run it with torch"
        )
    model, tokenizer = loaded.model, loaded.tokenizer.backend_tokenizer
    max_length = torch_models.longest(loaded, None, location)
    graph: Bert | General
    if can_pack(model.config):
        layers = [getattr(model.base_model, "pooler", None), model.classifier]
        graph = Bert(model.base_model, Score(layers, loaded.label), first_only=True)
    else:
        graph = General(model, loaded.typed, Score([], loaded.label))

    def samples(pairs: Sequence[Pair]) -> Samples:
        tokens = PairTokens(tokenizer, max_length, 64, SAMPLE_TOKENS, types=loaded.typed)
        return _one_by_one(len(pairs), tokens.pairs(pairs).rows)

    pad = loaded.tokenizer.pad_token_id or 0
    digest = folder_digest(loaded.folder)
    return Source("scorer", graph, tokenizer, max_length, loaded.typed, pad, digest, samples)


def _encoder(location: str, modules: list[str], label: int | None) -> Source:
    if modules[:2] != ["Transformer", "Pooling"] or set(modules[2:]) - {"Dense", "Normalize"}:
        raise CrosscutError(
            f"the encoder {location} is made of {', '.join(modules)}, but only Transformer and Pooling, with "
            "Dense or Normalize behind them, can be exported: run it with torch"
        )
    if label is not None:
        raise CrosscutError(f"the model {location} is an encoder and has no labels: leave label={label} out")
    from sentence_transformers import SentenceTransformer

    # Safetensors only: the older format of weights can run code.
    encoder = SentenceTransformer(location, device="cpu", model_kwargs={"use_safetensors": True}).eval()
    digest = state_digest(encoder)
    loaded = torch_models.Loaded(encoder.float()[0].auto_model, encoder.tokenizer, Path(location), 0, None)
    if not hasattr(loaded.tokenizer, "backend_tokenizer"):
        raise CrosscutError(f"the model {location} has no fast tokenizer (a tokenizer.json): run it with torch")
    max_length = torch_models.longest(loaded, None, location)
    tokenizer, pad = _cutting(loaded.tokenizer, max_length), loaded.tokenizer.pad_token_id or 0
    prompts = _prompts(encoder)
    expected = _probe(ModelEncoder(encoder).encode)

    head = Vector(list(encoder)[1:], encoder.truncate_dim)
    graph: Bert | General
    if can_pack(loaded.model.config):
        graph = Bert(loaded.model, head, first_only=head.reads_first(loaded.model.config.hidden_size))
    else:
        graph = General(loaded.model, loaded.typed, head)

    def encode(texts: list[str], role: Role) -> np.ndarray:
        _, rows = text_rows(tokenizer, [prompts[role] + text for text in texts], pad, loaded.typed)
        ids, types, mask = (torch.as_tensor(part) for part in rows(np.arange(len(texts))))
        with torch.inference_mode():
            return to_unit_length(graph.eval()(ids, mask, types).numpy())

    # Whatever else a model of this library may do with texts, it shows in the vectors.
    if not np.allclose(_probe(encode), expected, atol=1e-4):
        raise CrosscutError(
            f"the encoder {location} does more with texts than its modules say ({', '.join(modules)}), so it "
            "cannot be exported: run it with torch"
        )

    def samples(pairs: Sequence[Pair]) -> Samples:
        short = _cutting(loaded.tokenizer, min(max_length or SAMPLE_TOKENS, SAMPLE_TOKENS))
        queries, items = ([pair[side] for pair in pairs] for side in (0, 1))
        texts = [prompts["query"] + text for text in queries] + [prompts["item"] + text for text in items]
        texts = list(dict.fromkeys(texts))
        return _one_by_one(len(texts), text_rows(short, texts, pad, loaded.typed)[1])

    return Source("encoder", graph, tokenizer, max_length, loaded.typed, pad, digest, samples, prompts)


def _prompts(encoder: Any) -> dict[Role, str]:
    """What stands before a query or an item: the first of the known names, or else the default of the model."""
    given = encoder.prompts or {}
    names = {role: next((name for name in known if name in given), None) for role, known in PROMPTS.items()}
    return {role: given.get(name or encoder.default_prompt_name) or "" for role, name in names.items()}


def _probe(encode: Callable[[list[str], Role], np.ndarray]) -> np.ndarray:
    """The vectors of a few texts in both roles."""
    return np.stack([encode(PROBES, role) for role in PROMPTS])


def _cutting(tokenizer: Any, max_length: int | None) -> Any:
    """A copy of the `tokenizers` part of a tokenizer that cuts texts to `max_length`, where there is one."""
    plain = tokenizer.backend_tokenizer
    copy = type(plain).from_str(plain.to_str())
    copy.no_padding()
    copy.no_truncation()
    if max_length is not None:
        copy.enable_truncation(max_length, direction=tokenizer.truncation_side)
    return copy


def _one_by_one(number: int, rows: Rows) -> Samples:
    arrays = (rows(np.array([position])) for position in range(number))
    return [{"ids": ids, "mask": mask, "types": types} for ids, types, mask in arrays]


class Score(torch.nn.Module):  # type: ignore[misc]
    """The logit of one label, behind these layers."""

    def __init__(self, layers: Iterable[torch.nn.Module | None], label: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layer for layer in layers if layer is not None)
        self.label = label

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x[:, self.label]


class Vector(torch.nn.Module):  # type: ignore[misc]
    """The vector of a text: what the last modules of sentence-transformers make of the vectors of its tokens."""

    def __init__(self, modules: Iterable[torch.nn.Module], width: int | None) -> None:
        super().__init__()
        self.parts, self.width = torch.nn.ModuleList(modules), width

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        features = {"token_embeddings": x, "attention_mask": mask}
        for part in self.parts:
            features = part(features)
        return features["sentence_embedding"][:, : self.width]

    def reads_first(self, size: int) -> bool:
        """Whether the first token is all that it looks at."""
        x, mask = torch.rand(1, 4, size), torch.ones(1, 4, dtype=torch.long)
        with torch.inference_mode():
            return torch.allclose(self(x, mask), self(x[:, :1], mask[:, :1]))
