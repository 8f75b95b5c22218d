"""What a layer does between its matrix products, as Triton kernels: each reads and writes memory once.

Sums, exponentials and means are taken in float32 whatever the inputs are.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def embed(
    tables: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """LayerNorm of the sum of one row of each table."""
    count, width = len(rows[0]), tables[0].shape[1]
    out = torch.empty(count, width, device=weight.device, dtype=weight.dtype)
    grid = (triton.cdiv(count, 2),)
    _embed[grid](
        *tables, *rows, weight, bias, out, count, eps, width, triton.next_power_of_2(width), 2, num_warps=2
    )
    return out


def add_layer_norm(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """LayerNorm(x + y) of rows."""
    out = torch.empty_like(x)
    rows, width = x.shape
    grid = (triton.cdiv(rows, 2),)
    _add_layer_norm[grid](x, y, weight, bias, out, rows, eps, width, triton.next_power_of_2(width), 2, num_warps=2)
    return out


def gelu_(x: torch.Tensor) -> torch.Tensor:
    """The exact (erf) GELU to 4e-6, in place."""
    _gelu[(triton.cdiv(x.numel(), 2048),)](x, x.numel(), 2048, num_warps=4)
    return x


def attention(
    qkv: torch.Tensor, first: torch.Tensor, longest: int, heads: int, rows: int | None = None
) -> torch.Tensor:
    """Self-attention inside each sequence of packed tokens.

    qkv: (tokens, 3 × width), query, key and value side by side. first: where each sequence begins, and the end
    of the last (int32). `rows` limits the work to the first rows of each sequence (the others stay undefined).
    """
    width = qkv.shape[1] // 3
    head = width // heads
    rows = min(longest, rows or longest)
    # A last block of queries that is mostly empty is wasted work: take blocks of half the size instead.
    block = 16 if rows <= 16 else 64 if (rows - 1) % 128 < 64 else 128
    out = torch.empty(qkv.shape[0], width, device=qkv.device, dtype=qkv.dtype)
    grid = (heads, first.shape[0] - 1, triton.cdiv(rows, block))
    scale = head**-0.5 * 1.4426950408889634  # exponentials are taken to the base of two
    _attention[grid](
        qkv, first, out, scale, heads, head, block, 32, num_warps=2 if block < 128 and rows <= 64 else 4
    )
    return out


@triton.jit
def _layer_norm(value, inside, weight, bias, column, eps, WIDTH: tl.constexpr):
    centred = tl.where(inside[None, :], value - (tl.sum(value, 1) / WIDTH)[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / WIDTH + eps)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    return centred * scale[:, None] * w[None, :] + b[None, :]


@triton.jit
def _embed(
    t1, t2, t3, r1, r2, r3, weight, bias, out, count, eps,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = column < WIDTH
    there = row < count
    mask = there[:, None] & inside[None, :]
    value = tl.load(
        t1 + tl.load(r1 + row, mask=there, other=0)[:, None] * WIDTH + column[None, :], mask=mask, other=0.0
    ).to(tl.float32)
    value += tl.load(
        t2 + tl.load(r2 + row, mask=there, other=0)[:, None] * WIDTH + column[None, :], mask=mask, other=0.0
    ).to(tl.float32)
    value += tl.load(
        t3 + tl.load(r3 + row, mask=there, other=0)[:, None] * WIDTH + column[None, :], mask=mask, other=0.0
    ).to(tl.float32)
    result = _layer_norm(value, inside, weight, bias, column, eps, WIDTH)
    tl.store(out + row[:, None] * WIDTH + column[None, :], result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _add_layer_norm(
    x, y, weight, bias, out, rows, eps, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = column < WIDTH
    mask = (row[:, None] < rows) & inside[None, :]
    at = row[:, None] * WIDTH + column[None, :]
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    value += tl.load(y + at, mask=mask, other=0.0).to(tl.float32)
    result = _layer_norm(value, inside, weight, bias, column, eps, WIDTH)
    tl.store(out + at, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _gelu(x, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < size).to(tl.float32)
    # The normal distribution function as 1 / (1 + 2^-t), with t fitted to it as an odd polynomial (error of the
    # product with x below 4e-6); beyond |x| = 6 it is 0 or 1 in float32.
    s = tl.minimum(value * value, 36.0)
    t = 2.302048443730273 + s * (
        0.10521776234844842
        + s * (-0.00035480248030108583 + s * (-8.931618062940448e-05 + s * 3.292126720053582e-06))
    )
    tl.store(x + at, (value / (1.0 + tl.exp2(-value * t))).to(x.dtype.element_ty), mask=at < size)


@triton.jit
def _attention(
    qkv, first, out, scale, HEADS: tl.constexpr, HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr
):
    head, sequence = tl.program_id(0), tl.program_id(1)
    start = tl.load(first + sequence).to(tl.int64)
    length = (tl.load(first + sequence + 1) - start).to(tl.int32)
    query = tl.program_id(2) * QUERIES + tl.arange(0, QUERIES)
    if tl.program_id(2) * QUERIES >= length:
        return
    stride: tl.constexpr = 3 * HEADS * HEAD
    column = head * HEAD + tl.arange(0, HEAD)
    mask = query[:, None] < length
    q = tl.load(qkv + (start + query)[:, None] * stride + column[None, :], mask=mask, other=0.0)
    total = tl.zeros([QUERIES, HEAD], tl.float32)
    norm = tl.zeros([QUERIES], tl.float32)
    highest = tl.full([QUERIES], -float("inf"), tl.float32)
    for begin in range(0, length, KEYS):
        key = begin + tl.arange(0, KEYS)
        there = key < length
        row = (start + key) * stride
        k = tl.load(qkv + row[None, :] + HEADS * HEAD + column[:, None], mask=there[None, :], other=0.0)
        v = tl.load(qkv + row[:, None] + 2 * HEADS * HEAD + column[None, :], mask=there[:, None], other=0.0)
        score = tl.where(there[None, :], tl.dot(q, k) * scale, -float("inf"))
        peak = tl.maximum(highest, tl.max(score, 1))
        shrink = tl.exp2(highest - peak)
        weight = tl.exp2(score - peak[:, None])
        norm = norm * shrink + tl.sum(weight, 1)
        total = total * shrink[:, None] + tl.dot(weight.to(v.dtype), v)
        highest = peak
    at = (start + query)[:, None] * (HEADS * HEAD) + column[None, :]
    tl.store(out + at, (total / norm[:, None]).to(out.dtype.element_ty), mask=mask)
