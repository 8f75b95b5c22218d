"""What int8 costs in nDCG@10: an exported model against the scores of the model that it was exported from.

    python benchmarks/int8_quality.py EXPORT DATA MATRIX.npz [--depth 100] [--queries N] [--item-tokens 220]

EXPORT is a folder that `crosscut export` wrote, DATA a BEIR folder with judgements of the matrix's test queries,
and MATRIX the original model's scores (see `crosscut bench matrix --help`), which must have been made with the
same limit on item tokens. Both rerank the `--depth` best of BM25.
A line after every 25 queries; the last is the result.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from crosscut.data import read_beir
from crosscut.evaluate.matrix import Matrix
from crosscut.evaluate.runs import evaluate_run
from crosscut.first_stage import BM25, top
from crosscut.scorers import as_scorer

MEASURE = "nDCG@10"


def main() -> None:
    args = arguments()
    data, matrix = read_beir(args.data), Matrix.load(args.matrix)
    items = {item.id: item.content for item in data.items}
    queries = {query.id: query.text for query in data.queries}
    scorer = as_scorer(args.export, item_tokens=args.item_tokens)
    bm25 = BM25([items[id] for id in matrix.item_ids])
    rows = [row for row in range(matrix.anchors, len(matrix.query_ids)) if matrix.query_ids[row] in data.qrels]
    whole: dict[str, dict[str, float]] = {}
    exported: dict[str, dict[str, float]] = {}
    differences: list[np.ndarray] = []
    seconds = 0.0
    for number, row in enumerate(rows[: args.queries], start=1):
        id = matrix.query_ids[row]
        places = top(bm25.scores(queries[id]), args.depth)
        ids = [matrix.item_ids[place] for place in places]
        start = time.perf_counter()
        scores = scorer.score([(queries[id], items[item]) for item in ids])
        seconds += time.perf_counter() - start
        reference = matrix.scores[row, places].astype(np.float32)
        differences.append(scores - reference)
        whole[id] = dict(zip(ids, reference.tolist(), strict=True))
        exported[id] = dict(zip(ids, scores.tolist(), strict=True))
        if number % 25 == 0 or number == len(rows[: args.queries]):
            qrels = {id: data.qrels[id] for id in whole}
            before, after = (evaluate_run(run, qrels, [MEASURE]).mean[MEASURE] for run in (whole, exported))
            rms = np.sqrt(np.mean(np.square(differences)))
            print(
                f"{number} queries: {MEASURE} {before:.4f} of the original, {after:.4f} exported "
                f"({after / before:.2%}); scores differ by {rms:.3f} (rms); {scorer.calls / seconds:.1f} pairs/s",
                flush=True,
            )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export")
    parser.add_argument("data")
    parser.add_argument("matrix")
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--queries", type=int)
    parser.add_argument("--item-tokens", type=int, default=220)
    return parser.parse_args()


if __name__ == "__main__":
    main()
