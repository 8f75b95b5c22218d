"""The Triton kernels, run by Triton's interpreter on the CPU, against torch."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.models

# The interpreter must be asked for before Triton is imported, so the checks have a process of their own.
CHECKS = """
import torch, torch.nn.functional as F
from crosscut.scorers import kernels

torch.manual_seed(0)
for rows, width in [(1, 16), (7, 48), (5, 64)]:
    x, y, weight, bias = torch.randn(rows, width), torch.randn(rows, width), torch.randn(width), torch.randn(width)
    expected = F.layer_norm(x + y, (width,), weight, bias, 1e-5)
    torch.testing.assert_close(kernels.add_layer_norm(x, y, weight, bias, 1e-5), expected, atol=1e-5, rtol=1e-5)

for count, width in [(1, 16), (9, 48)]:
    tables = [torch.randn(size, width) for size in (11, 7, 2)]
    rows = [torch.randint(len(table), (count,)) for table in tables]
    weight, bias = torch.randn(width), torch.randn(width)
    expected = F.layer_norm(sum(t[r] for t, r in zip(tables, rows)), (width,), weight, bias, 1e-5)
    torch.testing.assert_close(kernels.embed(tables, rows, weight, bias, 1e-5), expected, atol=1e-5, rtol=1e-5)

x = torch.cat([torch.linspace(-9, 9, 3001), torch.tensor([-1e4, 1e4, 0.0])])
torch.testing.assert_close(kernels.gelu_(x.clone()), F.gelu(x.double()).float(), atol=4e-6, rtol=0)

for heads, size, lengths in [(2, 16, [1, 5, 33]), (1, 32, [70, 64, 2]), (3, 16, [130, 16])]:
    qkv = torch.randn(sum(lengths), 3 * heads * size)
    first = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)
    expected = []
    for part in qkv.split(lengths):
        q, k, v = part.view(len(part), 3, heads, size).permute(1, 2, 0, 3)
        expected.append(F.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(len(part), -1))
    got = kernels.attention(qkv, first, max(lengths), heads)
    torch.testing.assert_close(got, torch.cat(expected), atol=1e-5, rtol=1e-5)
    # Limited to the first row of each sequence.
    got, rows = kernels.attention(qkv, first, max(lengths), heads, rows=1), first[:-1].long()
    torch.testing.assert_close(got[rows], torch.cat(expected)[rows], atol=1e-5, rtol=1e-5)
"""


def test_kernels_compute_what_torch_computes():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", CHECKS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
