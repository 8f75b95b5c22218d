"""How fast and how good crosscut-tiny is: the tables of its model card.

    python benchmarks/tiny.py [DATA[=SCORES] ...] [--teacher MODEL] [--scorer EXPORTED] [--encoder EXPORTED]

Speed: pairs of 64 tokens and texts of 20, made of docstrings, texts in and results out, the best of --repeat runs
that take turns. --scorer and --encoder name peers for that: folders that `crosscut export --int8` wrote.

Quality: each DATA is a BEIR folder. BM25's first 100 are reranked by crosscut-tiny and by the teacher, which is
MODEL, or the one whose scores are in SCORES: a matrix.npz (see `crosscut bench matrix --help`; then only its test
queries are asked, and its item vectors stand beside the encoder), or the results folder of recipes/own_domain.py,
which has those of the public model. Items are cut to --item-tokens.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from crosscut.data import read_beir
from crosscut.data.docstrings import read_docstrings
from crosscut.encoders import as_encoder
from crosscut.evaluate.matrix import Matrix
from crosscut.evaluate.runs import evaluate_run
from crosscut.first_stage import BM25, top
from crosscut.scorers import as_scorer
from crosscut.scorers.exported import TINY
from crosscut.system import cores

PAIR_TOKENS, TEXT_TOKENS = 64, 20
PAIRS, TEXTS = 1000, 3000
DEPTH = 100
Runs: TypeAlias = dict[str, dict[str, dict[str, float]]]  # by model, by query: items and their scores


def main() -> None:
    args = arguments()
    if not args.no_speed:
        print_speed(args)
    if args.data:
        print("\n| data | queries | | nDCG@10 | recall@100 |\n|---|---|---|---|---|")
    for data in args.data:
        folder, _, scores = data.partition("=")
        is_matrix = scores.endswith(".npz")
        lists = Path(scores) if scores and not is_matrix else None
        print_quality(folder, Matrix.load(scores) if is_matrix else None, lists, args)


def print_speed(args: argparse.Namespace) -> None:
    """Pairs and texts per second."""
    tokenizer = as_encoder()._model.tokenizer
    words = " ".join(item.text for item in read_docstrings()).split()
    rng = np.random.default_rng(0)

    def text(tokens: int) -> str:
        start = rng.integers(len(words) - 2 * tokens)
        ids = tokenizer.encode(" ".join(words[start : start + 2 * tokens]), add_special_tokens=False).ids
        return tokenizer.decode(ids[:tokens])

    queries = [text(8) for _ in range(PAIRS // 50)]
    pairs = [(queries[n // 50], text(PAIR_TOKENS - 8 - 3)) for n in range(PAIRS)]
    texts = [text(TEXT_TOKENS - 2) for _ in range(TEXTS)]
    scorers = {name: as_scorer(name) for name in (TINY, *args.scorer)}
    encoders = {name: as_encoder(name) for name in (TINY, *args.encoder)}
    scored = fastest({name: partial(scorer.score, pairs) for name, scorer in scorers.items()}, args.repeat)
    encoded = fastest({name: partial(encoder.encode, texts) for name, encoder in encoders.items()}, args.repeat)
    print(f"{len(cores())} cores\n")
    print(f"| | pairs/s ({PAIR_TOKENS} tokens) | texts/s ({TEXT_TOKENS} tokens) |\n|---|---|---|")
    for name in dict.fromkeys([*scored, *encoded]):
        fast = f"{PAIRS / scored[name]:,.0f}" if name in scored else ""
        vectors = f"{TEXTS / encoded[name]:,.0f}" if name in encoded else ""
        print(f"| {name} | {fast} | {vectors} |")


def fastest(jobs: Mapping[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """The least seconds that each job took."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(repeat):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def print_quality(folder: str, matrix: Matrix | None, lists: Path | None, args: argparse.Namespace) -> None:
    """Of BM25, of the encoders, and of both cross-encoders over BM25's first."""
    data = read_beir(folder)
    ids, contents = [item.id for item in data.items], [item.content for item in data.items]
    queries = [query for query in data.queries if matrix is None or query.id in matrix.query_ids[matrix.anchors :]]
    queries = queries[: args.queries]
    encoder, scorer = as_encoder(), as_scorer(item_tokens=args.item_tokens)
    teacher = as_scorer(args.teacher, item_tokens=args.item_tokens) if args.teacher else None
    listed = read_lists(lists) if lists else {}
    bm25, vectors = BM25(contents), encoder.encode(contents)
    asked = encoder.encode([query.text for query in queries], "query")
    runs: Runs = {}

    def note(model: str, query: str, places: np.ndarray, scores: np.ndarray) -> None:
        found = {ids[place]: float(score) for place, score in zip(places, scores, strict=True)}
        runs.setdefault(model, {})[query] = found

    for row, query in enumerate(queries):
        lexical, similar = bm25.scores(query.text), vectors @ asked[row]
        first, nearest = top(lexical, DEPTH), top(similar, DEPTH)
        note("BM25", query.id, first, lexical[first])
        note("crosscut-tiny, encoder", query.id, nearest, similar[nearest])
        if matrix is not None and matrix.item_embeddings is not None and matrix.query_embeddings is not None:
            known = matrix.item_embeddings @ matrix.query_embeddings[place_of(matrix, query.id)]
            best = top(known.astype(np.float32), DEPTH)
            note("encoder of the matrix", query.id, by_ids(ids, matrix.item_ids)[best], known[best])
        pairs = [(query.text, contents[place]) for place in first]
        note("BM25, crosscut-tiny", query.id, first, scorer.score(pairs))
        if matrix is not None:
            known = matrix.scores[place_of(matrix, query.id), by_ids(matrix.item_ids, ids)]
            note("BM25, teacher", query.id, first, known[first].astype(np.float32))
        elif lists:
            places, known = listed.get(query.id, (np.zeros(1), np.zeros(1)))  # in ascending order
            found = np.searchsorted(places, first)
            if not np.array_equal(places.take(found, mode="clip"), first):
                raise SystemExit(f"{lists} lacks scores of what BM25 finds for query {query.id}: other data?")
            note("BM25, teacher", query.id, first, known[found])
        elif teacher:
            note("BM25, teacher", query.id, first, teacher.score(pairs))
    qrels = {query.id: data.qrels[query.id] for query in queries}
    made = {model: evaluate_run(run, qrels, ["nDCG@10", "R@100"]) for model, run in runs.items()}
    for model, one in made.items():
        print(
            f"| {folder} | {len(queries)} | {model} | {one.mean['nDCG@10']:.4f} | {one.mean['R@100']:.3f} |",
            flush=True,
        )
    if "BM25, teacher" in made:
        words, own, best = (
            np.array([values["nDCG@10"] for values in made[f"BM25{model}"].per_query.values()])
            for model in ("", ", crosscut-tiny", ", teacher")
        )
        share = (own - words).mean() / (best - words).mean()
        print(f"| {folder} | {len(queries)} | of the teacher's gain over BM25 | {share:.0%} | |")
        print(f"| {folder} | {len(queries)} | crosscut-tiny − teacher | {interval(own - best)} | |", flush=True)


def read_lists(results: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By query: places of items, and their scores by the public model."""
    for name in ("lists.npz", "lists-public.npy"):
        if not (results / name).is_file():
            raise SystemExit(f"there is no {results / name}: give a matrix.npz, or what own_domain.py wrote")
    lists, scores = np.load(results / "lists.npz"), np.load(results / "lists-public.npy")
    ends = np.cumsum(lists["counts"])[:-1]
    parts = zip(lists["query_ids"], np.split(lists["positions"], ends), np.split(scores, ends), strict=True)
    return {str(query): (places, values) for query, places, values in parts}


def interval(values: np.ndarray, draws: int = 10_000) -> str:
    """The mean with its 95 % bootstrap interval."""
    drawn = values[np.random.default_rng(0).integers(len(values), size=(draws, len(values)))].mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{values.mean():+.4f} ({low:+.4f} to {high:+.4f})"


def place_of(matrix: Matrix, query: str) -> int:
    return int(np.flatnonzero(matrix.query_ids == query)[-1])


def by_ids(names: Any, wanted: Any) -> np.ndarray:
    """Where each of the wanted ids stands among the names."""
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[name] for name in wanted])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*")
    parser.add_argument("--teacher")
    parser.add_argument("--scorer", action="append", default=[])
    parser.add_argument("--encoder", action="append", default=[])
    parser.add_argument("--queries", type=int)
    parser.add_argument("--item-tokens", type=int, default=220)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-speed", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
