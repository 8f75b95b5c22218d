"""Poly-encoder (Humeau et al. 2020): several vectors of the query, mixed anew for each candidate."""

from __future__ import annotations

import torch

from crosscut.compare.model import CompareModel, Rows, check_token_width, products, to_length
from crosscut.compare.text_encoder import States, TextEncoder
from crosscut.encoders.base import Role
from crosscut.scorers.tokens import check_limits


class Codes(torch.nn.Module):
    """Learned codes that attend over the tokens of a text: as many vectors of it.

    They begin small, so that each vector begins as about the mean of the tokens.
    """

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.codes = torch.nn.Parameter(0.02 * torch.randn(count, width))

    def forward(self, states: States) -> torch.Tensor:
        logits = torch.einsum("md,btd->bmt", self.codes, states.last)
        if states.mask is not None:
            logits = logits.masked_fill(~states.mask[:, None], -torch.inf)
        return logits.softmax(dim=-1) @ states.last


class PolyEncoder(CompareModel):
    """`codes` (the paper's m, 16) vectors of the query; the candidate's one vector attends over them.

    The score is the dot product of the candidate's vector and the mixture that it finds. All vectors are brought
    to length √d, and dot products divided by √d: a fresh model on an encoder that takes the mean of the tokens
    scores about √d times its cosine.
    """

    kind = "poly"

    def __init__(self, encoder: TextEncoder, query_encoder: TextEncoder | None = None, *, codes: int = 16) -> None:
        super().__init__(encoder, query_encoder)
        check_limits(codes=codes)
        check_token_width(encoder, self.kind)
        self.settings = {"codes": codes}
        self.codes = Codes(codes, self.width)

    def rows(self, role: Role, states: States) -> Rows:
        return self.pooled_rows(role, states) if role == "item" else (self.codes(states), None)

    def compare(
        self,
        queries: torch.Tensor,
        query_there: torch.Tensor | None,
        items: torch.Tensor,
        there: torch.Tensor | None,
    ) -> torch.Tensor:
        # The mixture itself is not needed: its dot product is the same mixture of dot products.
        found = products(to_length(items[:, :, 0]), to_length(queries)) / self.width**0.5
        return (found.softmax(dim=-1) * found).sum(dim=-1)
