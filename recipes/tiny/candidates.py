"""The first passages of every query by words, as a TREC run: quick with a GPU, where BM25 on a CPU takes hours.

    python recipes/tiny/candidates.py texts/ --tokenizer student/tokenizer.json --depth 12 --out words.run

BM25 over the tokenizer's pieces of words instead of words, as one product of sparse and dense matrices for many
queries at once, and --random passages by chance behind them. The run is for `crosscut train distil --candidates
run:words.run`.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from crosscut.data import read_items, read_queries

K1, B = 1.2, 0.75
BLOCK = 1024  # queries


def main() -> None:
    args = arguments()
    write(args.texts, args.tokenizer, args.depth, args.random, args.out)


def write(texts: Path, tokenizer: Path, depth: int, others: int, out: Path) -> None:
    warnings.filterwarnings("ignore", message="Sparse")  # torch says that these matrices are new
    items, queries = read_items(texts), read_queries(texts)
    pieces = Tokenizer.from_file(str(tokenizer))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    weights = bm25(*tokens(pieces, [item.content for item in items]), pieces.get_vocab_size(), device)
    owners, ids = tokens(pieces, [query.text for query in queries])
    rng = np.random.default_rng(0)
    with out.open("w", encoding="utf-8") as file:
        for start, found in first(weights, owners, ids, len(queries), depth):
            drawn = rng.integers(len(items), size=(len(found), others))
            for query, near, far in zip(queries[start:], found, drawn.tolist(), strict=False):
                row = list(dict.fromkeys([*near, *far]))
                file.writelines(
                    f"{query.id} Q0 {items[place].id} {rank} {-rank} words\n" for rank, place in enumerate(row, 1)
                )


def tokens(pieces: Tokenizer, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of all texts, and which text each is of."""
    found = [one.ids for one in pieces.encode_batch_fast(texts, add_special_tokens=False)]
    owners = np.repeat(np.arange(len(found)), [len(ids) for ids in found])
    return owners, np.concatenate([np.array(ids, np.int64) for ids in found])


def bm25(owners: np.ndarray, ids: np.ndarray, size: int, device: str) -> torch.Tensor:
    """The part of each token (column) in the score of each text (row), sparse."""
    count = int(owners.max()) + 1
    keys, uses = torch.as_tensor(owners * size + ids, device=device).unique(return_counts=True)
    rows, columns = keys // size, keys % size
    lengths = torch.bincount(torch.as_tensor(owners, device=device), minlength=count).float()
    spread = torch.bincount(columns, minlength=size).float()
    rarity = torch.log1p((count - spread + 0.5) / (spread + 0.5))
    damped = uses / (uses + K1 * (1 - B + B * lengths[rows] / lengths.mean()))
    places = torch.stack([rows, columns])
    return torch.sparse_coo_tensor(places, damped * rarity[columns], (count, size)).to_sparse_csr()


def first(
    weights: torch.Tensor, owners: np.ndarray, ids: np.ndarray, count: int, depth: int
) -> Iterator[tuple[int, list[list[int]]]]:
    """The best texts of each query, block after block."""
    starts = np.searchsorted(owners, np.arange(0, count + BLOCK, BLOCK))
    for number, start in enumerate(range(0, count, BLOCK)):
        part = slice(starts[number], starts[number + 1])
        asked = torch.zeros(weights.shape[1], min(BLOCK, count - start), device=weights.device)
        asked[ids[part], owners[part] - start] = 1
        yield start, (weights @ asked).T.contiguous().topk(depth, dim=1).indices.tolist()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--depth", type=int, default=14)
    parser.add_argument("--random", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
