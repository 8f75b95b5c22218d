"""What does comparing give a trained CMC? Its ranking of the first stage's 64 with less and less of the model.

    python recipes/compare_alone.py run/ --tested 250

RUN is the folder of `compare.py train linking` with the units first and cmc, and `--tested` as it was there. Ranked
are the same candidates: by the first stage; by the query encoder that CMC has trained, its cosine without any layer;
by CMC with each candidate alone before it; and by CMC with all of them together. No training takes part, so this
does not say what another model would have learned from the same steps.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from compare_data import RERANKED, gold_ranks, read_parts
from compare_results import mean, recall
from reporting import difference, percent, table

from crosscut.compare import as_comparer

KS = (1, 4, 8, 16, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--tested", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model = str(args.run / "models" / "cmc")
    together, alone = as_comparer(model), as_comparer(model, chunk=1)
    ranks: dict[str, list[np.ndarray]] = {}
    for part in read_parts("linking", args.run / "data"):
        tested = part.drawn(args.tested, args.seed) if args.tested else part
        with np.load(args.run / "candidates.npz") as file:
            found = file[part.name][:, :RERANKED]
        used, back = np.unique(found, return_inverse=True)
        back = back.reshape(found.shape)
        items = together.encode_items([tested.examples.items[item] for item in used])
        queries = together.encode_queries(tested.examples.queries)
        lists = [items.take(row) for row in back]
        scores = {
            "bi-encoder": np.broadcast_to(-np.arange(found.shape[1]), found.shape),
            "CMC's query encoder": np.einsum("qkd,qd->qk", unit(items.rows)[back], unit(queries.rows)),
            "CMC, each candidate alone": np.stack(alone.score(queries, lists)),
            "CMC": np.stack(together.score(queries, lists)),
        }
        for name, values in scores.items():
            ranks.setdefault(name, []).append(gold_ranks(values, tested.right(found)))
    rows = [[name, *(percent(mean(recall(some, k))) for k in KS)] for name, some in ranks.items()]
    for name, some in list(ranks.items())[:-1]:
        pairs = [list(zip(recall(ranks["CMC"], k), recall(some, k), strict=True)) for k in KS]
        rows.append([f"CMC − {name}", *(difference([one - other for one, other in pair]) for pair in pairs)])
    print(table(["", *(f"R@{k}" for k in KS)], rows))


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1.

    >>> unit(np.array([[3.0, 4.0]])).round(2).tolist()
    [[0.6, 0.8]]
    """
    wide = rows.astype(np.float32)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
