"""Queries encoded by several models at once: a shared encoder once, encoders of one architecture in one batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch.func import functional_call, stack_module_state

from crosscut.compare.base import Comparer, QueryVectors
from crosscut.compare.bi import BiEncoder
from crosscut.compare.comparer import ModelComparer, as_inputs, flat
from crosscut.compare.model import CompareModel
from crosscut.compare.text_encoder import States, TextEncoder
from crosscut.encoders import Encoder, ModelEncoder
from crosscut.scorers.packed import can_pack
from crosscut.scorers.tokens import length_batches
from crosscut.scorers.torch_models import any_shape

TOKENS = 16_384  # of queries in a batch
Model = Comparer | Encoder
Made = QueryVectors | np.ndarray


@lru_cache(maxsize=2)  # what is prepared for some models serves all of their queries
def together(models: tuple[Model, ...]) -> Together:
    return Together(models)


class Together:
    """Some models that encode the same queries. `stack`: see `Group`; by default on a GPU."""

    def __init__(self, models: Sequence[Model], stack: bool | None = None) -> None:
        self.models = list(models)
        known = [as_module(model) for model in self.models]
        by_key: dict[Any, list[int]] = {}
        for place, module in enumerate(known):
            if module is not None:
                by_key.setdefault(_key(module.encoder("query")), []).append(place)
        self.groups: dict[tuple[int, ...], Group] = {}
        for places in by_key.values():
            group = Group([module for place in places if (module := known[place]) is not None], stack)
            if len(places) > len(group.encoders) or group.stacked:  # or nothing is saved
                self.groups[tuple(places)] = group

    def encode(self, texts: Sequence[str]) -> list[Made]:
        """What each of the models makes of the texts."""
        made: dict[int, Made] = {}
        for places, group in self.groups.items():
            for place, vectors in zip(places, group.encode(texts), strict=True):
                made[place] = vectors if isinstance(self.models[place], Comparer) else vectors.rows
        for place, model in enumerate(self.models):
            if place not in made:
                one = model.encode_queries(texts) if isinstance(model, Comparer) else model.encode(texts, "query")
                made[place] = one
        return [made[place] for place in range(len(self.models))]


class Group:
    """Compare models whose encoders read the same tokens and have one architecture.

    Those with the same weights run once. Different ones run one after the other, or, if `stacked`, as one model
    with one more dimension in all of its weights: a GPU has as many kernels to start as for one of them.
    """

    def __init__(self, modules: list[CompareModel], stack: bool | None) -> None:
        self.modules = modules
        digests = [module.encoder("query").digest() for module in modules]
        by_digest = dict(zip(digests, (module.encoder("query") for module in modules), strict=True))
        self.encoders = list(by_digest.values())
        self.which = [list(by_digest).index(digest) for digest in digests]
        inners = [encoder.inner for encoder in self.encoders]
        self.device = next(inners[0].parameters()).device
        on_gpu = self.device.type == "cuda"
        can_stack = len(inners) > 1 and can_pack(inners[0].config)
        self.stacked = _stack(inners) if can_stack and (on_gpu if stack is None else stack) else None
        if self.stacked is not None and stack is None:
            self._try()

    def encode(self, texts: Sequence[str]) -> list[QueryVectors]:
        encoder = self.encoders[0]
        tokens = encoder.tokens(texts, "query")
        parts: list[list[QueryVectors]] = [[] for _ in self.modules]
        order = []
        with torch.inference_mode(), any_shape():
            for batch in length_batches(np.array([len(ids) for ids in tokens]), TOKENS, waste=0.1):
                given = as_inputs([tokens[place] for place in batch], encoder.pad)
                states = self._states({name: value.to(self.device) for name, value in given.items()})
                for module, which, made in zip(self.modules, self.which, parts, strict=True):
                    made.append(flat(module.whole(states[which])))
                order.append(batch)
        back = np.argsort(np.concatenate(order))
        return [QueryVectors.concatenate(made).take(back) for made in parts]

    def _try(self) -> None:
        """Not every version of torch can run every model in this way: then they run one after the other."""
        try:
            with torch.inference_mode(), any_shape():
                self._states({"input_ids": torch.full((1, 2), self.encoders[0].pad, device=self.device)})
        except (RuntimeError, ValueError):
            self.stacked = None

    def _states(self, given: dict[str, torch.Tensor]) -> list[States]:
        if self.stacked is None:
            return [encoder.states(given, layers=True) for encoder in self.encoders]
        mask = given.get("attention_mask")
        last, *layers = self.stacked(given)
        there = None if mask is None else mask.bool()
        return [States(one, there, tuple(read)) for one, *read in zip(last, *layers, strict=True)]


def _stack(inners: list[Any]) -> Callable[[dict[str, torch.Tensor]], tuple[torch.Tensor, ...]]:
    """All of them as one: the last states and what each layer reads, each with one more dimension in front."""
    weights, buffers = stack_module_state(inners)
    bare = copy.deepcopy(inners[0]).to("meta")

    def run(weights: Any, buffers: Any, given: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        more = {"output_hidden_states": True, "return_dict": True}
        output = functional_call(bare, (weights, buffers), (), {**given, **more})
        return output.last_hidden_state, *output.hidden_states[:-1]

    batched = torch.vmap(run, in_dims=(0, 0, None))
    return lambda given: batched(weights, buffers, given)


def as_module(model: Model) -> CompareModel | None:
    """The module of a compare model, or of a plain sentence-transformers encoder; None of anything else."""
    if isinstance(model, ModelComparer):
        return model.model
    inner: Any = getattr(model, "_model", None)
    # A class of its own may encode in a way of its own.
    if not isinstance(model, ModelEncoder) or type(inner) is not SentenceTransformer or inner.truncate_dim:
        return None
    if getattr(inner[0], "auto_model", None) is None or not hasattr(inner.tokenizer, "backend_tokenizer"):
        return None
    return BiEncoder(TextEncoder(inner)).eval()


def _key(encoder: TextEncoder) -> Any:
    """The same for encoders that can run in one batch."""
    config, weight = encoder.inner.config, next(encoder.parameters())
    shape = tuple(getattr(config, name, None) for name in ("model_type", "hidden_size", "num_hidden_layers"))
    sizes = tuple(tuple(value.shape) for value in encoder.inner.parameters())
    tokenizer = encoder.model.tokenizer.backend_tokenizer
    plain = type(tokenizer).from_str(tokenizer.to_str())
    plain.no_truncation()
    plain.no_padding()
    reads = (plain.to_str(), encoder.model.max_seq_length, encoder.prompts["query"], encoder.pad)
    return (type(encoder.inner), shape, sizes, reads, weight.device, weight.dtype, config._attn_implementation)
