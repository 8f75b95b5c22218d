"""MixEncoder (Yang et al. 2023): the query is encoded once, and the vectors of candidates look into its layers."""

from __future__ import annotations

import torch

from crosscut.compare.layers import Layer
from crosscut.compare.model import CompareModel, Rows, check_token_width, products, refuse_fixed, to_length
from crosscut.compare.poly import Codes
from crosscut.compare.text_encoder import States, TextEncoder
from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.scorers.tokens import check_limits


class MixEncoder(CompareModel):
    """At each of the `upper` layers of the encoder (2) candidates attend over what that layer reads of the query.

    contexts: vectors of an item: the usual one, and beyond the first (1) so many that learned codes find among its
    tokens. The query's states stay those of its own encoding, so that one pass serves all candidates.

    Simpler than the paper's: candidates attend with layers of their own, which begin as almost the identity, and
    not with the encoder's; no candidate changes the query's vector, where the paper's query also gets one for each
    candidate. The score is the dot product of the candidate's last vector (the mean of its contexts) and the
    query's usual one, of length √d, over √d: a fresh model scores about √d times the cosine of its encoder.

    A query's rows are its vector, then for each token what the upper layers read, from the lowest to the highest.
    """

    kind = "mix"
    reads_layers = True

    def __init__(
        self,
        encoder: TextEncoder,
        query_encoder: TextEncoder | None = None,
        *,
        upper: int = 2,
        contexts: int = 1,
    ) -> None:
        super().__init__(encoder, query_encoder)
        check_limits(upper=upper, contexts=contexts)
        check_token_width(encoder, self.kind)
        if upper > encoder.layer_count:
            raise CrosscutError(
                f"upper must be at most {encoder.layer_count}, the layers of the encoder, but is {upper}"
            )
        self.settings = {"upper": upper, "contexts": contexts}
        self.upper = upper
        self.per_item = contexts
        self.codes = Codes(contexts - 1, self.width) if contexts > 1 else None
        self.layers = torch.nn.ModuleList(Layer(self.width, encoder.heads, encoder.dropout) for _ in range(upper))

    def fix_items(self) -> None:
        if self.codes is not None:
            refuse_fixed(self.kind, "contexts above 1")
        super().fix_items()

    def rows(self, role: Role, states: States) -> Rows:
        rows, _ = self.pooled_rows(role, states)
        if role == "item":
            return (rows if self.codes is None else torch.cat([rows, self.codes(states)], dim=1)), None
        read = torch.stack(states.layers[-self.upper :], dim=2).flatten(1, 2)
        there = states.mask
        if there is not None:
            there = torch.cat([there.new_ones(len(there), 1), there.repeat_interleave(self.upper, dim=1)], dim=1)
        return torch.cat([rows, read], dim=1), there

    def compare(
        self,
        queries: torch.Tensor,
        query_there: torch.Tensor | None,
        items: torch.Tensor,
        there: torch.Tensor | None,
    ) -> torch.Tensor:
        count, contexts = items.shape[1:3]
        rows = to_length(items).flatten(1, 2)
        read = queries[:, 1:].unflatten(1, (-1, self.upper))
        mask = None if query_there is None else query_there[:, 1 :: self.upper]
        for number, layer in enumerate(self.layers):
            rows = layer(rows, read[:, :, number], mask)
        last = rows.unflatten(1, (count, contexts)).float().mean(dim=2)
        return products(last, to_length(queries[:, :1]))[..., 0] / self.width**0.5
