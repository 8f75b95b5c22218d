"""What each part of the default method is worth, on anchor queries held out as queries (never on test queries).

    python benchmarks/ablation.py MATRIX.npz --data FOLDER [--anchors 300] [--held-out 100] [--budgets 50,200]

The first `--anchors` rows of the matrix are anchor queries, the last `--held-out` of its anchor rows play the
queries. Prints top-k-recall (%) for k = 10 and 100, a row per variant.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from crosscut.evaluate.matrix import Matrix, MatrixBench
from crosscut.first_stage import top
from crosscut.search import learn as learning
from crosscut.search.prior import Prior, start_coefficients


def without(block: str) -> Callable[[Prior], Prior]:
    return lambda prior: replace(prior, variances={k: v for k, v in prior.variances.items() if k != block})


def times(factor: float, block: str) -> Callable[[Prior], Prior]:
    return lambda prior: replace(prior, variances=prior.variances | {block: prior.variances[block] * factor})


def unlearned_coefficients(prior: Prior) -> Prior:
    names = ["similarity", "lexical", "anchors"][: (len(prior.coefficients) - 1) // 3]
    mean, variance = start_coefficients(names)
    unit = (prior.noise / learning.START_NOISE) ** 0.5
    return replace(prior, coefficients=mean * unit, covariance=np.diag(variance) * unit**2)


VARIANTS: list[tuple[str, Callable[[Prior], Prior], dict[str, Any]]] = [
    ("as it is", lambda prior: prior, {}),
    ("without anchor residuals", without("anchors"), {}),
    ("without encoder vectors", without("vectors"), {}),
    ("without the items' words", without("words"), {}),
    ("without the query's single terms", without("terms"), {}),
    ("coefficients not learned", unlearned_coefficients, {}),
    ("noise x 4", lambda prior: replace(prior, noise=prior.noise * 4), {}),
    ("noise / 4", lambda prior: replace(prior, noise=prior.noise / 4), {}),
    ("vectors' variance x 4", times(4, "vectors"), {}),
    ("anchors' variance x 4", times(4, "anchors"), {}),
    ("first batch by rrf", lambda prior: prior, {"first": "rrf"}),
    ("softmax selection", lambda prior: prior, {"selection": "softmax"}),
    ("5 rounds", lambda prior: prior, {"rounds": 5}),
    ("10 rounds", lambda prior: prior, {"rounds": 10}),
    ("40 rounds", lambda prior: prior, {"rounds": 40}),
]


class Ablation(MatrixBench):
    """A bench whose learned prior can be tampered with."""

    change: Callable[[Prior], Prior] = staticmethod(lambda prior: prior)

    def learned(self, seed: int) -> Any:
        corpus = super().learned(seed)
        return replace(corpus, prior=self.change(corpus.prior))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrix")
    parser.add_argument("--data", required=True)
    parser.add_argument("--anchors", type=int, default=300)
    parser.add_argument("--held-out", type=int, default=100)
    parser.add_argument("--budgets", default="50,200")
    args = parser.parse_args()
    budgets = [int(budget) for budget in args.budgets.split(",")]
    matrix = hold_out(Matrix.load(args.matrix), args.anchors, args.held_out)
    bench = Ablation(matrix, args.anchors, args.data)
    truth = top(matrix.scores[args.anchors :].astype(np.float32), 100)
    print(f"{'variant':34s}" + "".join(f"   B={budget}: k=10 / 100" for budget in budgets))
    for name, change, settings in VARIANTS:
        bench.change = staticmethod(change)
        cells = []
        for budget in budgets:
            found = bench.run("crosscut", budget, 0, settings).positions
            hits = np.array([np.isin(row, one) for row, one in zip(truth, found, strict=True)])
            cells.append(f"{100 * hits[:, :10].mean():13.1f} / {100 * hits.mean():4.1f}")
        print(f"{name:34s}" + "  ".join(cells), flush=True)


def hold_out(matrix: Matrix, anchors: int, held_out: int) -> Matrix:
    if anchors + held_out > matrix.anchors:
        raise SystemExit(f"the matrix has only {matrix.anchors} anchor queries")
    rows = np.r_[0:anchors, matrix.anchors - held_out : matrix.anchors]
    per_query = ("scores", "query_embeddings", "lexical_scores", "query_ids")
    chosen = {name: getattr(matrix, name) for name in per_query}
    return replace(matrix, anchors=anchors, **{n: None if a is None else a[rows] for n, a in chosen.items()})


if __name__ == "__main__":
    main()
