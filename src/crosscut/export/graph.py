"""A model as one ONNX graph: token ids, mask and token types in; scores, or vectors, out."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnxscript  # noqa: F401  (torch's exporter needs it, and would say so late and in other words)
import torch

Samples: TypeAlias = Sequence[dict[str, np.ndarray]]
INPUTS = ["ids", "mask", "types"]
OPSET = 20  # the first with GELU as one operation
USUAL = 0.99  # the share of channels that are left as they are, see `Bert.smooth`


def write_graph(graph: General | Bert, path: Path, samples: Samples = ()) -> None:
    """Trace `graph` and write it to `path`, for any number of texts and tokens.

    With `samples` it is made fit for int8, see `Bert.smooth`. Weights that are too large for one ONNX file (2 GB)
    stand in a second one beside it, `path` with .data behind.
    """
    graph = graph.eval()
    if samples and isinstance(graph, Bert):
        graph.smooth(samples)
    ids = torch.arange(5, 5 + 3 * 16).reshape(3, 16) % graph.config.vocab_size
    mask = torch.ones_like(ids)
    mask[1, 12:] = 0
    dynamic = {0: "texts", 1: "tokens"}
    with quiet(), torch.inference_mode():
        program = torch.onnx.export(
            graph,
            (ids, mask, torch.zeros_like(ids)),
            dynamo=True,
            input_names=INPUTS,
            output_names=["output"],
            dynamic_shapes=[dynamic] * 3,
            opset_version=OPSET,
            verbose=False,
        )
        program.save(str(path))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the converters' progress bars and remarks from the terminal; errors still come as exceptions."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


class General(torch.nn.Module):  # type: ignore[misc]
    """The model as transformers runs it; `head` makes scores or vectors of what it says, and of the mask."""

    def __init__(self, model: Any, typed: bool, head: torch.nn.Module) -> None:
        super().__init__()
        self.model, self.typed, self.head = model, typed, head
        self.config = model.config
        self.model.set_attn_implementation("eager")  # plain products, which every runtime knows

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        given = {"token_type_ids": types} if self.typed else {}
        return self.head(self.model(input_ids=ids, attention_mask=mask, **given)[0], mask)


class Bert(torch.nn.Module):  # type: ignore[misc]
    """BERT and its kin; where `head` reads the first token alone, the last layer computes nothing else."""

    def __init__(self, base: Any, head: torch.nn.Module, first_only: bool) -> None:
        super().__init__()
        self.embeddings, self.layers = base.embeddings, base.encoder.layer
        self.head, self.first_only = head, first_only
        self.config, self.heads = base.config, base.config.num_attention_heads
        self.pad = base.embeddings.position_embeddings.padding_idx
        self.shrink: dict[tuple[int, str], torch.Tensor] = {}

    def smooth(self, samples: Samples) -> None:
        """Even out the channels of what goes into the products of each layer.

        A few channels may be many times as large as the others, and would leave them but a few of the 256 steps
        of int8. They are made smaller, and their weights in the product larger to match.
        """
        products = dict(self._products())
        largest = {place: torch.zeros(read[0].in_features) for place, read in products.items()}

        def watch(place: tuple[int, str]) -> Any:
            def look(_: Any, given: tuple[torch.Tensor]) -> None:
                torch.maximum(largest[place], given[0].abs().flatten(0, -2).amax(0), out=largest[place])

            return look

        hooks = [read[0].register_forward_pre_hook(watch(place)) for place, read in products.items()]
        with torch.no_grad():
            for sample in samples:
                self(*(torch.as_tensor(sample[name]) for name in INPUTS))
            for hook in hooks:
                hook.remove()
            for place, read in products.items():
                usual = largest[place].quantile(USUAL)
                if usual == 0:  # hardly a channel is ever used
                    continue
                scale = (largest[place] / usual).clamp(min=1.0)
                for linear in read:
                    linear.weight *= scale
                self.shrink[place] = 1 / scale

    def _products(self) -> Iterator[tuple[tuple[int, str], list[Any]]]:
        """Places where something goes into products, each with the linear layers that read it."""
        for number, layer in enumerate(self.layers):
            attention = layer.attention
            # The key first: it sees every token, where the query of the last layer may see but one.
            yield (number, "tokens"), [attention.self.key, attention.self.query, attention.self.value]
            yield (number, "context"), [attention.output.dense]
            yield (number, "attended"), [layer.intermediate.dense]
            yield (number, "wide"), [layer.output.dense]

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        parts = self.embeddings
        positions = parts.position_embeddings.weight[: ids.shape[1]]
        if self.pad is not None:  # RoBERTa and its kin count positions from there on, without padding
            real = (ids != self.pad).long()
            positions = parts.position_embeddings(real.cumsum(1) * real + self.pad)
        x = parts.LayerNorm(parts.word_embeddings(ids) + positions + parts.token_type_embeddings(types))
        hidden = (1.0 - mask[:, None, None].to(x.dtype)) * -10_000.0
        for number in range(len(self.layers) - 1):
            x = self._layer(number, x, x, hidden)
        read = slice(1 if self.first_only else None)
        x = self._layer(len(self.layers) - 1, x[:, read], x, hidden)
        return self.head(x, mask[:, read])

    def _layer(self, number: int, x: torch.Tensor, every: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """One layer for the tokens `x`, which look at `every` token but the `hidden`."""
        layer = self.layers[number]
        attention, out = layer.attention.self, layer.attention.output
        asking, every = self._even(number, "tokens", x), self._even(number, "tokens", every)
        query = self._by_head(attention.query(asking)) * attention.attention_head_size**-0.5
        key, value = self._by_head(attention.key(every)), self._by_head(attention.value(every))
        weights = (query @ key.transpose(-1, -2) + hidden).softmax(-1)
        context = (weights @ value).transpose(1, 2).flatten(2)
        x = out.LayerNorm(out.dense(self._even(number, "context", context)) + x)
        wide = layer.intermediate(self._even(number, "attended", x))
        return layer.output.LayerNorm(layer.output.dense(self._even(number, "wide", wide)) + x)

    def _even(self, number: int, place: str, x: torch.Tensor) -> torch.Tensor:
        shrink = self.shrink.get((number, place))
        return x if shrink is None else x * shrink

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
