"""Plain, slow references that the search is held against, and small worlds to search in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crosscut.encoders.base import to_unit_length
from crosscut.first_stage import BM25
from crosscut.search import make_plan
from crosscut.search.loop import Outcome, run
from crosscut.search.problem import Corpus, Problem, Queries

TOPICS = ["flood water river", "fire smoke alarm", "theft lock door", "car road brake", "health nurse pill"]
FILLERS = ["policy", "cover", "claim", "clause", "payment", "letter", "agent", "office", "form", "date"]


def search(
    problem: Problem, method: str, budget: int, scores: np.ndarray, trace: list | None = None, **settings: Any
) -> Outcome:
    """Search a score matrix (Q, N); `trace` collects every pair that is paid for."""

    def look_up(queries: np.ndarray, items: np.ndarray) -> np.ndarray:
        if trace is not None:
            trace.extend(zip(queries.tolist(), items.tolist(), strict=True))
        return scores[queries, items]

    return run(problem, make_plan(method, problem, budget, **settings), look_up)


def scored_positions(outcome: Outcome) -> np.ndarray:
    return np.concatenate([scored.positions for scored in outcome.rounds], axis=1)


def slow_top(values: np.ndarray, k: int, closed: set[int]) -> list[int]:
    """TOPK with masking: higher value first, then lower position."""
    open_positions = [position for position in range(len(values)) if position not in closed]
    return sorted(open_positions, key=lambda position: (-values[position], position))[:k]


def cur_estimates(anchor_scores: np.ndarray, items: list[int], c_test: np.ndarray) -> np.ndarray:
    """Ŝ = C_test × U × R_anc with U the pseudo-inverse of the columns I_anc of R_anc."""
    return c_test @ np.linalg.pinv(anchor_scores[:, items], rcond=1e-10) @ anchor_scores


def adacur(
    anchor_scores: np.ndarray, f: np.ndarray, init: list[int], rounds: int
) -> tuple[list[list[int]], list[np.ndarray]]:
    """Algorithm 1 with TOPK for one query, whose scores are `f`: the batch and the estimates of each round."""
    k_s = len(init)
    batches, estimates, i_anc = [init], [], list(init)
    for _ in range(2, rounds + 1):
        s = cur_estimates(anchor_scores, i_anc, f[i_anc])
        batch = slow_top(s, k_s, set(i_anc))
        batches.append(batch)
        estimates.append(s)
        i_anc = i_anc + batch
    return batches, estimates


@dataclass(frozen=True)
class World:
    """A made-up corpus with all that an index can know of it, and test queries with their true scores."""

    corpus: Corpus
    anchors: Queries
    queries: Queries
    scores: np.ndarray

    def problem(self, rows: slice = slice(None), **keys: Any) -> Problem:
        return Problem(self.corpus, self.queries[rows], **keys)


def make_world(seed: int = 0, items: int = 300, anchors: int = 30, queries: int = 4) -> World:
    """Texts about topics, vectors that know the topics roughly, scores of low rank plus what texts explain."""
    rng = np.random.default_rng(seed)
    rows = anchors + queries
    topics = rng.integers(len(TOPICS), size=items + rows)
    texts = [" ".join([*rng.choice(TOPICS[topic].split(), 2), *rng.choice(FILLERS, 4)]) for topic in topics]
    latent = np.eye(len(TOPICS))[topics] + 0.5 * rng.normal(size=(items + rows, len(TOPICS)))
    vectors = to_unit_length(
        latent @ rng.normal(size=(len(TOPICS), 12)) + 0.3 * rng.normal(size=(items + rows, 12))
    )
    terms = BM25(texts[:items])
    lexical = np.array([terms.scores(text) for text in texts[items:]]).reshape(rows, items)
    scores = 3.0 * latent[items:] @ latent[:items].T + lexical + rng.normal(size=items)
    scores += 0.3 * rng.normal(size=scores.shape) - 8.0

    def part(start: int, stop: int) -> Queries:
        word_scores = [terms.term_scores(text) for text in texts[items + start : items + stop]]
        return Queries(range(start, stop), vectors[items + start : items + stop], lexical[start:stop], word_scores)

    item_anchors = rng.permutation(items)[:20]
    corpus = Corpus(
        items,
        vectors=vectors[:items],
        words=terms.unit_rows(),
        anchor_scores=scores[:anchors] if anchors else None,
        anchor_vectors=vectors[items : items + anchors] if anchors else None,
        item_anchors=item_anchors,
        item_scores=3.0 * latent[item_anchors] @ latent[:items].T,
    )
    return World(corpus, part(0, anchors), part(anchors, rows), scores[anchors:])
