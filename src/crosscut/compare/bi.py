"""The plain bi-encoder: the cosine of two vectors, for the others to be measured against."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from crosscut.compare.model import CompareModel, Rows, products
from crosscut.compare.text_encoder import States, TextEncoder
from crosscut.encoders.base import Role


class BiEncoder(CompareModel):
    """`scale` times the cosine of two vectors.

    The scale is for training, so that a softmax of scores can be learned from; it changes no ranking.
    """

    kind = "bi"

    def __init__(
        self, encoder: TextEncoder, query_encoder: TextEncoder | None = None, *, scale: float = 1.0
    ) -> None:
        super().__init__(encoder, query_encoder)
        self.settings = {"scale": scale}
        self.scale = scale

    def rows(self, role: Role, states: States) -> Rows:
        rows, there = self.pooled_rows(role, states)
        return F.normalize(rows.float(), dim=-1), there

    def compare(
        self,
        queries: torch.Tensor,
        query_there: torch.Tensor | None,
        items: torch.Tensor,
        there: torch.Tensor | None,
    ) -> torch.Tensor:
        return self.scale * products(items[:, :, 0], queries[:, :1])[..., 0]
