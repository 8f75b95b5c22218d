"""Time beside scoring, and memory, of the adaptive methods: `python benchmarks/overhead.py [--json]`.

10,000 items, 500 anchor queries, a budget of 500 calls, 32 queries at once; scores are of low rank plus noise,
and the scorer only looks them up. The textbook loop (ADACUR's Algorithm 1 as it is printed: a pseudo-inverse and
a full product per round, query by query) runs on fewer queries, and its time is scaled to 32. Memory is measured
in processes of their own, with one million items. Exits with status 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from time import perf_counter

import numpy as np

from crosscut.encoders.base import to_unit_length
from crosscut.search import make_plan
from crosscut.search.learn import learn
from crosscut.search.loop import run
from crosscut.search.problem import Corpus, Problem, Queries

ITEMS, ANCHORS, BUDGET, QUERIES, WIDTH, RANK = 10_000, 500, 500, 32, 384, 60
TEXTBOOK_QUERIES = 4
REPEATS = 3
MILLION, MILLION_WIDTH, MILLION_BUDGET = 1_000_000, 128, 200


@dataclass(frozen=True)
class Goal:
    """A figure, and the bound that it must keep."""

    name: str
    value: float
    bound: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass(frozen=True)
class World:
    corpus: Corpus
    anchors: Queries
    queries: Queries
    scores: np.ndarray


def make_world(seed: int = 0) -> World:
    """Scores of low rank with a floor, item effects and noise; vectors that know the ranks' factors roughly."""
    rng = np.random.default_rng(seed)
    rows = ANCHORS + QUERIES
    strength = 1.0 / np.sqrt(1.0 + np.arange(RANK))
    queries, items = rng.normal(size=(rows, RANK)) * strength, rng.normal(size=(ITEMS, RANK))
    scores = 2.0 * queries @ items.T + rng.normal(size=ITEMS) + 0.5 * rng.normal(size=(rows, ITEMS)) - 8.0
    scores = np.maximum(scores, -11.0).astype(np.float32)
    mixing = rng.normal(size=(RANK, WIDTH))
    vectors = to_unit_length(np.concatenate([queries, items * strength]) @ mixing)
    corpus = Corpus(
        ITEMS, vectors=vectors[rows:], anchor_scores=scores[:ANCHORS], anchor_vectors=vectors[:ANCHORS]
    )
    anchors = Queries(range(ANCHORS), vectors[:ANCHORS])
    corpus = replace(corpus, prior=learn(corpus, anchors))
    return World(corpus, anchors, Queries(range(QUERIES), vectors[ANCHORS:rows]), scores[ANCHORS:])


def time_method(world: World, method: str, rounds: int) -> float:
    """Seconds beside scoring for all queries: the best of some runs, as others may use the machine."""
    times = []
    for _ in range(REPEATS):
        problem = Problem(world.corpus, world.queries)
        start = perf_counter()
        plan = make_plan(method, problem, BUDGET, rounds=rounds)
        outcome = run(problem, plan, lambda queries, items: world.scores[queries, items])
        times.append(perf_counter() - start - outcome.seconds.scoring)
    return min(times)


def time_textbook(world: World, rounds: int) -> float:
    """Algorithm 1 as printed, on some of the queries, scaled to all; the best of some runs too."""
    assert world.corpus.anchor_scores is not None and world.queries.vectors is not None
    size = BUDGET // rounds
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        for query in range(TEXTBOOK_QUERIES):
            similarity = world.corpus.vectors @ world.queries.vectors[query]
            known = np.argsort(-similarity)[:size]
            for _ in range(1, rounds):
                inverse = np.linalg.pinv(world.corpus.anchor_scores[:, known])
                estimates = world.scores[query, known] @ inverse @ world.corpus.anchor_scores
                estimates[known] = -np.inf
                known = np.append(known, np.argsort(-estimates)[:size])
        times.append(perf_counter() - start)
    return min(times) * QUERIES / TEXTBOOK_QUERIES


def search_a_million(method: str) -> None:
    """One query over a million items, made in blocks so that making them does not set the peak."""
    rng = np.random.default_rng(0)
    shape = (MILLION_WIDTH, MILLION) if method == "adacur" else (MILLION, MILLION_WIDTH)
    features = np.empty(shape, np.float16 if method == "adacur" else np.float32)
    for start in range(0, shape[0], max(1, shape[0] // 128)):
        block = features[start : start + max(1, shape[0] // 128)]
        block[...] = rng.standard_normal(block.shape, np.float32) / np.float32(MILLION_WIDTH**0.5)
    query = rng.standard_normal((1, MILLION_WIDTH), np.float32)
    if method == "adacur":
        problem = Problem(Corpus(MILLION, anchor_scores=features), Queries([0]))
        scores = query @ features.astype(np.float32)
    else:
        problem = Problem(Corpus(MILLION, vectors=features), Queries([0], query))
        scores = query @ features.T
    plan = make_plan(method, problem, MILLION_BUDGET)
    run(problem, plan, lambda queries, items: scores[queries, items])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)  # Linux counts in KiB


def peak_memory(method: str) -> float:
    """GiB, of a process that does nothing else."""
    command = [sys.executable, __file__, "--million", method]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure() -> tuple[list[dict[str, object]], list[Goal]]:
    world = make_world()
    time_method(world, "adacur", 5)  # the first use of BLAS is slow
    times = {
        (method, rounds): time_method(world, method, rounds)
        for method in ("adacur", "crosscut")
        for rounds in (5, 20, 100)
    }
    times["textbook", 20] = time_textbook(world, 20)
    table: list[dict[str, object]] = [
        {"method": method, "rounds": rounds, "ms_per_query": 1000 * seconds / QUERIES}
        for (method, rounds), seconds in times.items()
    ]
    goals = [Goal("textbook / adacur, 20 rounds", times["textbook", 20] / times["adacur", 20], 10, True)]
    for method in ("adacur", "crosscut"):
        growth = times[method, 100] / times[method, 5]
        goals.append(Goal(f"{method}, 100 rounds / 5 rounds", growth, 8, False))
    for method in ("adacur", "crosscut"):
        goals.append(Goal(f"{method}, a million items, peak GiB", peak_memory(method), 4, False))
    return table, goals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--million", choices=["adacur", "crosscut"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.million:
        search_a_million(arguments.million)
        return 0
    table, goals = measure()
    if arguments.json:
        print(
            json.dumps({"times": table, "goals": [asdict(goal) | {"met": goal.met} for goal in goals]}, indent=1)
        )
    else:
        print(
            f"time beside scoring: {ITEMS:,} items, {ANCHORS} anchor queries, budget {BUDGET}, {QUERIES} queries"
        )
        print(f"(textbook: timed on {TEXTBOOK_QUERIES} queries)\n")
        for row in table:
            print(f"{row['method']:<10} {row['rounds']:>4} rounds {row['ms_per_query']:>9.2f} ms per query")
        print()
        for goal in goals:
            bound = f"{'at least' if goal.at_least else 'at most'} {goal.bound:g}"
            print(f"{goal.name:<42} {goal.value:>7.2f}  {bound:<12} {'met' if goal.met else 'MISSED'}")
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
