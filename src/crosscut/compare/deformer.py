"""DeFormer (Cao et al. 2020): a cross-encoder whose lower layers read query and item apart."""

from __future__ import annotations

from typing import Any

import torch

from crosscut.compare.model import CompareModel, Rows, products
from crosscut.compare.text_encoder import States, TextEncoder
from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.scorers.packed import FAMILIES, can_pack
from crosscut.scorers.tokens import check_limits


class DeFormer(CompareModel):
    """The states of an item's tokens after the `lower` layers are kept; the others read them behind the query's.

    lower: how many layers of the encoder read a text alone (three quarters of them). The score is a linear map of
    the last state of the query's first token. As both texts are encoded apart, the positions of both begin at 0,
    and both have the token type of a first text. The upper layers are those of the item's encoder.
    """

    kind = "deformer"
    per_item = None

    def __init__(
        self, encoder: TextEncoder, query_encoder: TextEncoder | None = None, *, lower: int | None = None
    ) -> None:
        super().__init__(encoder, query_encoder)
        config, count = encoder.inner.config, encoder.layer_count
        if not can_pack(config):
            raise CrosscutError(
                f"DeFormer cannot divide the layers of a {config.model_type}: begin with {', '.join(FAMILIES)}"
            )
        check_limits(lower=lower)
        lower = max(1, 3 * count // 4) if lower is None else lower
        if lower >= count:
            raise CrosscutError(f"lower must be below {count}, the layers of the encoder, but is {lower}")
        self.settings = {"lower": lower}
        self.lower = lower
        if query_encoder is not None:  # no query passes through them
            query_encoder.inner.encoder.layer[lower:].requires_grad_(False)
        self.head = torch.nn.Linear(encoder.token_width, 1)

    @property
    def width(self) -> int:
        return self.encoder("item").token_width

    def fix_items(self) -> None:
        inner = self.encoder("item").inner
        for part in (inner.embeddings, inner.encoder.layer[: self.lower]):  # the others read both texts
            part.requires_grad_(False)

    def states(self, role: Role, given: dict[str, torch.Tensor]) -> States:
        inner, mask = self.encoder(role).inner, given.get("attention_mask")
        there = None if mask is None else mask.bool()
        rows = inner.embeddings(input_ids=given["input_ids"])
        return States(run(inner, inner.encoder.layer[: self.lower], rows, there), there)

    def whole(self, states: States) -> Rows:
        return states.layers[self.lower], states.mask

    def rows(self, role: Role, states: States) -> Rows:
        return states.last, states.mask

    def compare(
        self,
        queries: torch.Tensor,
        query_there: torch.Tensor | None,
        items: torch.Tensor,
        there: torch.Tensor | None,
    ) -> torch.Tensor:
        inner, (batch, count, size, _) = self.encoder("item").inner, items.shape
        length = queries.shape[1]
        rows = torch.cat([queries[:, None].expand(-1, count, -1, -1), items], dim=2).flatten(0, 1)
        mask = None
        if there is not None or query_there is not None:
            query_there = queries.new_ones(batch, length, dtype=torch.bool) if query_there is None else query_there
            there = items.new_ones(batch, count, size, dtype=torch.bool) if there is None else there
            mask = torch.cat([query_there[:, None].expand(-1, count, -1), there], dim=2).flatten(0, 1)
        first = run(inner, inner.encoder.layer[self.lower :], rows, mask)[:, 0]
        return (products(first, self.head.weight) + self.head.bias.float()).reshape(batch, count)


def run(inner: Any, layers: Any, rows: torch.Tensor, there: torch.Tensor | None) -> torch.Tensor:
    """Rows through some layers of a BERT."""
    mask = None if there is None else there[:, None, None]
    if mask is not None and inner.config._attn_implementation == "eager":  # it adds the mask to the logits
        mask = torch.zeros_like(mask, dtype=rows.dtype).masked_fill(~mask, torch.finfo(rows.dtype).min)
    for layer in layers:
        made = layer(rows, mask)
        rows = made[0] if isinstance(made, tuple) else made  # older versions of the library give more
    return rows
