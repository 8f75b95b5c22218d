"""The fast path: BERT and its kin on pairs laid end to end, without a single token of padding.

Covers BERT (MiniLM among them), RoBERTa, XLM-R and CamemBERT. The weights are those of the model that
transformers loaded; only the way through them is our own:

- queries, keys and values come from one matrix product;
- on a CPU oneDNN computes the products, and GELU with the product before it;
- attention runs inside each pair, in one kernel on a GPU, in groups of equal length elsewhere;
- the last layer computes only the rows that the score is read from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F

from crosscut.scorers.tokens import PairTokens, TokenPairs

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert")
CPU_ROWS = 4096  # of a usual product, to which weights are fitted
HEAD_SIZES = (16, 32, 64, 128)  # that the attention kernel takes
Map: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


def can_pack(config: Any) -> bool:
    """Whether this architecture has a fast path."""
    return (
        config.model_type in FAMILIES
        and getattr(config, "position_embedding_type", "absolute") in (None, "absolute")
        and not getattr(config, "is_decoder", False)
    )


@dataclass(frozen=True)
class Packed:
    """Some pairs end to end. `first`: where each begins, and the end of the last."""

    ids: torch.Tensor
    types: torch.Tensor
    positions: torch.Tensor
    first: torch.Tensor
    longest: int
    lengths: np.ndarray | None  # of the pairs, where the host knows them

    @property
    def starts(self) -> torch.Tensor:
        return self.first[:-1].long()


class Packer:
    """Puts pairs together on the device: what travels there is a text once, and five numbers a pair."""

    def __init__(self, tokens: PairTokens, device: str) -> None:
        self._tokens, self._device = tokens, device
        template = tokens.template
        parts = (template.before, template.between, template.after)
        self._special = np.concatenate([ids for ids, _ in parts]).astype(np.int32)
        self._before, self._between = len(template.before[0]), len(template.between[0])
        self._types = torch.as_tensor(np.concatenate([types for _, types in parts]), device=device)
        self._generation: object = None
        self._sent = 0
        self.flat = torch.as_tensor(self._special, device=device)

    def send(self, pairs: TokenPairs, order: np.ndarray) -> torch.Tensor:
        """Length of each pair, then start and length of its query and of its item, on the device, in `order`."""
        self._refresh()
        starts, shift = pairs.starts, len(self._special)
        query, item = starts[pairs.queries] + shift, starts[pairs.items] + shift
        numbers = np.stack([pairs.lengths, query, pairs.query_lengths, item, pairs.item_lengths])
        return self._to_device(numbers[:, order])

    def _refresh(self) -> None:
        """Send the tokens of texts that are new since the last time, behind those of the template."""
        store, shift = self._tokens.store, len(self._special)
        if self._generation is not store.generation:
            self._generation, self._sent = store.generation, 0
        size = len(store.flat)
        if self._sent == size:
            return
        if shift + size > len(self.flat):
            # Room to grow: whoever has recorded where `flat` lies need not do so anew each time.
            old = self.flat
            self.flat = torch.zeros(2 * (shift + size), dtype=torch.int32, device=self._device)
            self.flat[: shift + self._sent] = old[: shift + self._sent]
        self.flat[shift + self._sent : shift + size] = self._to_device(store.flat[self._sent :])
        self._sent = size

    def _to_device(self, array: np.ndarray) -> torch.Tensor:
        tensor = torch.as_tensor(array)
        if not self._device.startswith("cuda"):
            return tensor
        # From pinned memory the copy joins the queue; from other memory the host would wait for the queue.
        return tensor.pin_memory().to(self._device, non_blocking=True)

    def pack(self, sent: torch.Tensor, size: int, longest: int, lengths: np.ndarray | None = None) -> Packed:
        """The pairs `sent` (columns of what `send` gave), in `size` tokens, none longer than `longest`.

        Pairs of length 0 are none, and tokens beyond the last pair mean nothing.
        """
        length, query_start, query_length, item_start, item_length = sent
        first = F.pad(torch.cumsum(length, 0), (1, 0)).int()
        place = torch.arange(size, device=self._device)
        pair = torch.searchsorted(first[1:], place.int(), right=True).clamp_(max=len(length) - 1)
        position = torch.where(place < first[-1], place - first[pair], 0)
        query_end = self._before + query_length[pair]
        item_begin = query_end + self._between
        item_end = item_begin + item_length[pair]
        in_query = (position >= self._before) & (position < query_end)
        in_item = (position >= item_begin) & (position < item_end)
        # A special token's place in the template: its position, less the tokens of the texts before it.
        special = position - torch.where(position >= query_end, query_end - self._before, 0)
        special = special - torch.where(position >= item_end, item_end - item_begin, 0)
        special = special.clamp_(0, len(self._special) - 1)
        source = torch.where(in_query, query_start[pair] + position - self._before, special)
        source = torch.where(in_item, item_start[pair] + position - item_begin, source)
        types = torch.where(in_query, self._tokens.template.query_type, self._types[special])
        types = torch.where(in_item, self._tokens.template.item_type, types)
        return Packed(self.flat[source].long(), types, position, first, longest, lengths)


class PackedBert:
    """The encoder of `model` on packed tokens; gives the vectors of the rows that are asked for."""

    def __init__(self, model: Any) -> None:
        config, embeddings = model.config, model.embeddings
        self.heads = config.num_attention_heads
        self.words, self.types = embeddings.word_embeddings.weight, embeddings.token_type_embeddings.weight
        self.norm = _norm(embeddings.LayerNorm)
        self.positions = embeddings.position_embeddings.weight
        self.pad = embeddings.position_embeddings.padding_idx
        self.kernels = _kernels(self.words, self.heads, config)
        self.layers = [_Layer(layer, self.kernels.activation) for layer in model.encoder.layer]

    @property
    def needs_lengths(self) -> bool:
        """Whether a batch must bring the lengths of its pairs (attention in groups of equal length)."""
        return self.kernels.attention is _attention

    def __call__(self, batch: Packed, rows: torch.Tensor, first_only: bool = False) -> torch.Tensor:
        """Last hidden state at `rows`; `first_only` says that each is the first of its pair."""
        kernels, last = self.kernels, len(self.layers) - 1
        positions = batch.positions if self.pad is None else _counted(batch, self.pad)
        tables, places = (self.words, self.positions, self.types), (batch.ids, positions, batch.types)
        x = kernels.embed(tables, places, *self.norm)
        for number, layer in enumerate(self.layers):
            limit = 1 if first_only and number == last else None
            context = kernels.attention(layer.qkv(x), batch, self.heads, limit)
            if number == last:
                context, x = context[rows], x[rows]
            x = kernels.add_norm(x, layer.out(context), *layer.out_norm)
            x = kernels.add_norm(x, layer.down(layer.up(x)), *layer.down_norm)
        return x


def _counted(batch: Packed, pad: int) -> torch.Tensor:
    """Positions as RoBERTa and its kin count them: from `pad` on, without padding tokens that a text may hold."""
    real = (batch.ids != pad).long()
    before = torch.cumsum(real, 0) - real
    starts = torch.arange(len(real), device=real.device) - batch.positions
    return (before - before[starts] + 1) * real + pad


class _Layer:
    def __init__(self, layer: Any, activation: Map) -> None:
        attention = layer.attention.self
        parts = (attention.query, attention.key, attention.value)
        self.qkv = _linear(torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts]))
        dense = layer.attention.output.dense, layer.intermediate.dense, layer.output.dense
        self.out = _linear(dense[0].weight, dense[0].bias)
        self.up = _linear(dense[1].weight, dense[1].bias, activation)
        self.down = _linear(dense[2].weight, dense[2].bias)
        self.out_norm, self.down_norm = _norm(layer.attention.output.LayerNorm), _norm(layer.output.LayerNorm)


@dataclass(frozen=True)
class _Kernels:
    embed: Callable[..., torch.Tensor]
    attention: Callable[..., torch.Tensor]
    add_norm: Callable[..., torch.Tensor]
    activation: Map


def _kernels(words: torch.Tensor, heads: int, config: Any) -> _Kernels:
    from transformers.activations import ACT2FN

    activation = ACT2FN[config.hidden_act]
    if words.is_cuda and words.dtype != torch.float32 and words.shape[1] // heads in HEAD_SIZES:
        try:
            from crosscut.scorers import kernels
        except ImportError:  # torch without Triton
            return _Kernels(_embed, _attention, _add_norm, activation)
        return _Kernels(
            kernels.embed,
            lambda qkv, batch, heads, limit: kernels.attention(qkv, batch.first, batch.longest, heads, limit),
            kernels.add_layer_norm,
            kernels.gelu_ if config.hidden_act == "gelu" else activation,
        )
    return _Kernels(_embed, _attention, _add_norm, activation)


def _attention(qkv: torch.Tensor, batch: Packed, heads: int, limit: int | None) -> torch.Tensor:
    """Attention in groups of pairs of one length, which stand side by side when pairs are sorted by length."""
    width = qkv.shape[1] // 3
    out = torch.empty(qkv.shape[0], width, dtype=qkv.dtype, device=qkv.device)
    assert batch.lengths is not None
    starts = np.flatnonzero(np.diff(batch.lengths, prepend=0))
    begin = 0
    for start, end in zip(starts, [*starts[1:], len(batch.lengths)], strict=True):
        count, length = int(end - start), int(batch.lengths[start])
        stop = begin + count * length
        q, k, v = qkv[begin:stop].view(count, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        context = F.scaled_dot_product_attention(q[:, :, :limit], k, v).transpose(1, 2).reshape(count, -1, width)
        out[begin:stop].view(count, length, width)[:, :limit] = context
        begin = stop
    return out


def _embed(
    tables: tuple[torch.Tensor, ...], rows: tuple[torch.Tensor, ...], *norm: torch.Tensor | float
) -> torch.Tensor:
    first, *others = (table[row] for table, row in zip(tables, rows, strict=True))
    for other in others:
        first += other
    return F.layer_norm(first, first.shape[-1:], *norm)


def _add_norm(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    return F.layer_norm(y.add_(x), x.shape[-1:], weight, bias, eps)


def _linear(weight: torch.Tensor, bias: torch.Tensor, activation: Map | None = None) -> Map:
    """A matrix product, the bias, and the activation if there is one."""
    if weight.device.type == "cpu" and weight.dtype == torch.float32 and torch.backends.mkldnn.is_available():
        from transformers.activations import GELUActivation

        fused = isinstance(activation, GELUActivation)
        kind, exact = ("gelu", "none") if fused else ("none", "")
        # Nothing public reaches oneDNN with weights laid out for it; torch.compile calls it in this way too.
        laid_out = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), CPU_ROWS)
        product = torch.ops.mkldnn._linear_pointwise

        def linear(x: torch.Tensor) -> torch.Tensor:
            return product(x, laid_out, bias, kind, [], exact)

        if fused:
            return linear
    else:

        def linear(x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, weight, bias)

    return linear if activation is None else lambda x: activation(linear(x))


def _norm(module: Any) -> tuple[torch.Tensor, torch.Tensor, float]:
    return module.weight, module.bias, module.eps
