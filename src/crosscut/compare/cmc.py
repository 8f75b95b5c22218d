"""CMC, comparing multiple candidates (Song et al. 2024): layers over the vectors of a query and all candidates."""

from __future__ import annotations

import torch

from crosscut.compare.layers import Layer
from crosscut.compare.model import CompareModel, Rows, products, to_length
from crosscut.compare.text_encoder import States, TextEncoder
from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.scorers.tokens import check_limits

SKIPS = ("add", "mean", "none")
LARGEST = 16_384


class CMC(CompareModel):
    """Self-attention over one vector of the query and one of each candidate; their order means nothing.

    layers: how many (2). heads: of attention (as the encoder has). skip: the extra skip connection around each
    layer F: "add" is x + F(x), as the paper's App. C writes it, "mean" is (x + F(x)) / 2, and "none" is F(x).
    marks: whether a learned vector says which row is the query's.

    Vectors of texts are brought to length √d before the first layer. The score is the dot product of the query's
    and the candidate's output (eq. 4), divided by √d, and with "add", where every layer adds one more vector of
    that length, also by (1 + layers)². So a fresh model scores about √d times the cosine of its encoder's vectors.
    """

    kind = "cmc"
    largest = LARGEST

    def __init__(
        self,
        encoder: TextEncoder,
        query_encoder: TextEncoder | None = None,
        *,
        layers: int = 2,
        heads: int | None = None,
        skip: str = "add",
        marks: bool = False,
    ) -> None:
        super().__init__(encoder, query_encoder)
        check_limits(layers=layers, heads=heads)
        if skip not in SKIPS:
            raise CrosscutError(f"there is no skip connection {skip!r}: use {', '.join(SKIPS)}")
        heads = heads or encoder.heads
        self.settings = {"layers": layers, "heads": heads, "skip": skip, "marks": marks}
        self.skip = skip
        self.layers = torch.nn.ModuleList(Layer(self.width, heads, encoder.dropout) for _ in range(layers))
        self.marks = torch.nn.Parameter(torch.zeros(2, self.width)) if marks else None
        self.scale = self.width**-0.5 * ((1 + layers) ** -2 if skip == "add" else 1)

    def rows(self, role: Role, states: States) -> Rows:
        return self.pooled_rows(role, states)

    def compare(
        self,
        queries: torch.Tensor,
        query_there: torch.Tensor | None,
        items: torch.Tensor,
        there: torch.Tensor | None,
    ) -> torch.Tensor:
        rows = to_length(torch.cat([queries[:, :1], items[:, :, 0]], dim=1))
        if self.marks is not None:
            rows = rows + torch.cat([self.marks[:1], self.marks[1:].expand(rows.shape[1] - 1, -1)])
        if there is not None:
            there = torch.cat([there.new_ones(len(there), 1), there[:, :, 0]], dim=1)
        for layer in self.layers:
            made = layer(rows, rows, there)
            rows = made if self.skip == "none" else rows + made
            rows = rows / 2 if self.skip == "mean" else rows
        return self.scale * products(rows[:, 1:], rows[:, :1])[..., 0]
