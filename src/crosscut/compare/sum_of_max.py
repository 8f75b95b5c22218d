"""Sum-of-max, late interaction (Khattab and Zaharia 2020): each query token finds the item's best token."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from crosscut.compare.model import CompareModel, Rows, refuse_fixed
from crosscut.compare.text_encoder import States, TextEncoder
from crosscut.encoders.base import Role
from crosscut.scorers.tokens import check_limits


class SumOfMax(CompareModel):
    """A vector of unit length for every token; the score sums, over the query's, the largest cosine in the item.

    dim: project the vectors of tokens to so many dimensions (default: as they are). Special tokens and punctuation
    are kept, in queries and in items. A query is not filled up with mask tokens.
    """

    kind = "sum-of-max"
    per_item = None

    def __init__(
        self, encoder: TextEncoder, query_encoder: TextEncoder | None = None, *, dim: int | None = None
    ) -> None:
        super().__init__(encoder, query_encoder)
        check_limits(dim=dim)
        self.settings = {"dim": dim}
        self.down = None if dim is None else torch.nn.Linear(encoder.token_width, dim, bias=False)

    @property
    def width(self) -> int:
        return self.settings.get("dim") or self.encoder("item").token_width

    def fix_items(self) -> None:
        if self.down is not None:
            refuse_fixed(self.kind, "dim")
        super().fix_items()

    def rows(self, role: Role, states: States) -> Rows:
        rows = states.last if self.down is None else self.down(states.last)
        return F.normalize(rows.float(), dim=-1), states.mask

    def compare(
        self,
        queries: torch.Tensor,
        query_there: torch.Tensor | None,
        items: torch.Tensor,
        there: torch.Tensor | None,
    ) -> torch.Tensor:
        with torch.autocast(items.device.type, enabled=False):  # bfloat16 would round cosines to steps of 1/256
            cosines = torch.einsum("bqd,bkrd->bkqr", queries, items)
        if there is not None:
            cosines = cosines.masked_fill(~there[:, :, None], -2)  # less than any cosine
        best = cosines.amax(dim=-1).float()
        if query_there is not None:
            best = best * query_there[:, None]
        return best.sum(dim=-1)
