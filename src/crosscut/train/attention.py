"""Attention over rows that are filled up at their end, without a mask.

transformers asks a GPU for every batch whether anything is masked, and waits for the answer; and a mask keeps it
from its fastest kernels. Here the end of a row is a sequence of its own, which no token outside reads.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface

from crosscut.scorers.packed import can_pack
from crosscut.scorers.torch_models import attend

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # torch before 2.10
    varlen_attn = None

NAME = "crosscut_rows"


def attend_by_rows(model: Any) -> None:
    """Let a model of a known family attend in this way; others stay as they are."""
    if can_pack(model.config):
        model.set_attn_implementation(NAME)


def _bounds(*_: Any, attention_mask: torch.Tensor | None = None, **__: Any) -> torch.Tensor | None:
    """Where rows begin, and their ends, and at last the end of all, among the tokens of all rows.

    >>> _bounds(attention_mask=torch.tensor([[1, 1, 0], [1, 1, 1]])).tolist()
    [0, 2, 3, 6, 6]
    """
    if attention_mask is None:
        return None
    rows, length = attention_mask.shape
    begin = torch.arange(0, rows * length, length, device=attention_mask.device)
    return F.pad(
        torch.stack([begin, begin + attention_mask.sum(dim=1)], dim=1).flatten(), (0, 1), value=rows * length
    ).int()


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """`attention_mask` is what `_bounds` gave, or a mask as others make it; the result has heads after tokens."""
    rows, heads, length, size = query.shape
    mask = attention_mask
    if mask is not None and mask.ndim == 1:
        if dropout == 0 and _has_kernel(query) and scaling in (None, size**-0.5):
            flat = [part.transpose(1, 2).reshape(rows * length, heads, size) for part in (query, key, value)]
            return varlen_attn(*flat, mask, mask, length, length).view(rows, length, heads, size), None
        mask = (torch.arange(length, device=query.device) < mask.diff()[::2, None])[:, None, None]
    made = attend(query, key, value, mask, dropout, scaling)
    return made.transpose(1, 2).contiguous(), None


def _has_kernel(query: torch.Tensor) -> bool:
    """Whether torch has one for these numbers on this device."""
    if varlen_attn is None or not query.is_cuda or query.dtype not in (torch.float16, torch.bfloat16):
        return False
    size = query.shape[-1]
    return size % 8 == 0 and size <= 256 and torch.cuda.get_device_capability(query.device) >= (8, 0)


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, _bounds)
