"""A transformer layer that begins as almost the identity: a fresh compare model ranks as its encoder does."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from crosscut.errors import CrosscutError
from crosscut.scorers.torch_models import attend


class Layer(torch.nn.Module):
    """Rows attend over a context (themselves, or other rows), then a feed-forward part; each ends with a norm.

    As in the transformer of Vaswani et al. (2017), without positions. Both parts end in a linear map that begins
    with zeros, so that at first only the norms are left.

    >>> layer = Layer(width=4, heads=2)
    >>> rows = torch.tensor([[[1.0, 1.0, -1.0, -1.0]]])
    >>> layer(rows, rows).tolist()[0][0]  # doctest: +ELLIPSIS
    [0.9999..., 0.9999..., -0.9999..., -0.9999...]
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise CrosscutError(f"{width} dimensions cannot be divided among {heads} heads: choose another number")
        self.heads = heads
        self.query, self.context = torch.nn.Linear(width, width), torch.nn.Linear(width, 2 * width)
        self.attended = zeros(torch.nn.Linear(width, width))
        self.up, self.down = torch.nn.Linear(width, 4 * width), zeros(torch.nn.Linear(4 * width, width))
        self.first_norm, self.second_norm = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(
        self, rows: torch.Tensor, context: torch.Tensor, there: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`rows` (B, N, d) over `context` (B, S, d), of which only what is `there` (B, S) counts."""
        rows = self.first_norm(rows + self.dropout(self.attend(rows, context, there)))
        return self.second_norm(rows + self.dropout(self.down(F.gelu(self.up(rows)))))

    def attend(self, rows: torch.Tensor, context: torch.Tensor, there: torch.Tensor | None) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(rows), *self.context(context).chunk(2, dim=-1))
        )
        mask = None if there is None else there[:, None, None]  # never N × S: the kernels read it as it is
        made = attend(query, key, value, mask)
        return self.attended(made.transpose(1, 2).flatten(2))


def zeros(linear: torch.nn.Linear) -> torch.nn.Linear:
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    return linear
