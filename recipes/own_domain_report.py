"""The report on a ranker of one's own domain: what reranking gives, what search gives, and the differences."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from experiment import from_half
from reporting import difference, figure, percent, remembered, save_figure, table, write_tables

from crosscut.data import Beir, read_beir
from crosscut.evaluate.matrix import Matrix, MatrixBench
from crosscut.evaluate.runs import evaluate_run
from crosscut.first_stage import top

MEASURE = "nDCG@10"
BUDGETS = (50, 100, 200)
MODELS = {"public": "public cross-encoder", "tuned": "trained cross-encoder"}
ENCODERS = {"public": "public bi-encoder", "tuned": "trained bi-encoder"}
STAGES = {  # in the order in which `train` has written them
    "bm25": "BM25",
    "public": ENCODERS["public"],
    "tuned": ENCODERS["tuned"],
    "bm25+public": f"BM25 + {ENCODERS['public']}",
    "bm25+tuned": f"BM25 + {ENCODERS['tuned']}",
}
Values = dict[str, dict[str, Any]]  # by way of searching, then by calls: one value per question


@dataclass(frozen=True)
class Run:
    """The results of one run of `train`, and the public matrix that it was made like."""

    results: Path
    data: Path
    test: Beir
    like: Path

    @cached_property
    def item_ids(self) -> list[str]:
        return [item.id for item in self.test.items]

    def matrix(self, model: str, encoder: str) -> Matrix:
        """The questions that both models have scored with all answers, with the vectors of one bi-encoder."""
        tuned = {}
        for part in ("anchors", "test"):
            path = self.results / f"rows-{part}.npz"
            tuned[part] = from_half(np.load(path)) if path.exists() else np.zeros((0, len(self.item_ids)))
        with np.load(self.like) as file:
            like = dict(file)
        anchors, first = len(tuned["anchors"]), int(like["anchors"])
        rows = np.r_[:anchors, first : first + len(tuned["test"])]
        scores = np.concatenate(list(tuned.values())) if model == "tuned" else like["scores"][rows]
        vectors: Any = like
        if encoder == "tuned":
            vectors = dict(np.load(self.results / "vectors.npz"))
            places = {id: place for place, id in enumerate(vectors["query_ids"].tolist())}
            vectors["query_embeddings"] = vectors["query_embeddings"][
                [places[id] for id in like["query_ids"][rows].tolist()]
            ]
        else:
            vectors["query_embeddings"] = vectors["query_embeddings"][rows]
        return Matrix(
            scores.astype(np.float32),
            anchors,
            vectors["item_embeddings"],
            vectors["query_embeddings"],
            item_ids=like["item_ids"],
            query_ids=like["query_ids"][rows],
        )

    def quality(self, query_ids: list[str], best: np.ndarray) -> list[float]:
        """nDCG@10 of each question with these answers (positions, best first)."""
        run = {
            id: {self.item_ids[at]: -float(rank) for rank, at in enumerate(row)}
            for id, row in zip(query_ids, best[:, :10].tolist(), strict=True)
        }
        judged = {id: self.test.qrels[id] for id in query_ids}
        measured = evaluate_run(run, judged, [MEASURE]).per_query
        return [measured[id][MEASURE] for id in query_ids]


def write(args: argparse.Namespace) -> None:
    run = Run(args.results, args.data, read_beir(args.data, "test"), args.like)
    everything: Values = remembered(args.results / "reranked.json", lambda: rerank_all(run))
    searched: dict[str, Values] = remembered(args.results / "searched.json", lambda: search(run))
    recalls: dict[str, Values] = searched.pop("recall")
    tables = {
        "own-domain-reranking": reranking_table(everything),
        "own-domain-search": search_table(searched),
        "own-domain-differences": differences_table(everything, searched),
        "own-domain-recall": recall_table(recalls),
    }
    write_tables(args.out, tables, args.page)
    plot(searched, args.out / "own-domain.svg")


def rerank_all(run: Run) -> Values:
    """All test questions: each first stage alone ("0" calls), and reranked by each cross-encoder."""
    lists = np.load(run.results / "lists.npz")
    query_ids, starts = lists["query_ids"].tolist(), np.cumsum(lists["counts"]) - lists["counts"]
    unions = [slice(start, start + count) for start, count in zip(starts, lists["counts"], strict=True)]
    scores = {model: np.load(run.results / f"lists-{model}.npy") for model in MODELS}
    made: Values = {}
    for stage, found in zip(STAGES, lists["stages"], strict=True):
        made[stage] = {"0": run.quality(query_ids, found)}
        for model, flat in scores.items():
            # `positions` is sorted within each question, so that a binary search finds the score of an item.
            known = [
                flat[at][np.searchsorted(lists["positions"][at], row)]
                for at, row in zip(unions, found, strict=True)
            ]
            for budget in BUDGETS:
                best = best_of(found[:, :budget], np.stack(known)[:, :budget])
                made[stage][f"{model} {budget}"] = run.quality(query_ids, best)
    return made


def best_of(positions: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The ten positions with the highest scores, ties by position.

    >>> best_of(np.array([[4, 2, 7]]), np.array([[0.5, 0.5, 0.9]])).tolist()
    [[7, 2, 4]]
    """
    return np.take_along_axis(positions, np.lexsort((positions, -scores), axis=1)[:, :10], axis=1)


def search(run: Run) -> dict[str, Values]:
    """The questions of the matrix: reranking, search and all answers, by each cross-encoder."""
    made: dict[str, Values] = {"recall": {}}
    for model in MODELS:
        made[model], made["recall"][model] = {}, {}
        for encoder in ENCODERS:
            matrix = run.matrix(model, encoder)
            truth = top(matrix.scores[matrix.anchors :], 100)
            for label, bench, method, settings in ways(matrix, encoder, run.data):
                for budget in BUDGETS:
                    found = bench.run(method, budget, 0, settings).positions
                    scores = np.take_along_axis(matrix.scores[matrix.anchors :], found, axis=1)
                    ids = [str(id) for id in matrix.query_ids[matrix.anchors :]]
                    quality = run.quality(ids, best_of(found, scores))
                    hits = np.array([np.isin(row, one) for row, one in zip(truth, found, strict=True)])
                    shares = {str(k): float(hits[:, :k].mean()) for k in (10, 100)}
                    made[model].setdefault(label, {})[str(budget)] = quality
                    made["recall"][model].setdefault(label, {})[str(budget)] = shares
        made[model]["all answers"] = {str(matrix.scores.shape[1]): run.quality(ids, truth)}
    return made


def ways(matrix: Matrix, encoder: str, data: Path) -> Iterator[tuple[str, MatrixBench, str, dict[str, Any]]]:
    """What is compared: a name, a bench, a method and its settings."""
    plain = MatrixBench(matrix, 0, data)
    if encoder == "public":
        yield STAGES["bm25"], plain, "rerank", {"first": "lexical"}
    yield STAGES[encoder], plain, "rerank", {"first": "encoder"}
    yield STAGES[f"bm25+{encoder}"], plain, "rerank", {"first": "rrf"}
    yield searcher(encoder), plain, "crosscut", {}
    if matrix.anchors:
        yield searcher(encoder, matrix.anchors), MatrixBench(matrix, matrix.anchors, data), "crosscut", {}


def searcher(encoder: str, anchors: int = 0) -> str:
    return f"crosscut, {ENCODERS[encoder]}, {anchors or 'no'} anchor queries"


def reranking_table(values: Values) -> str:
    rows = []
    for stage, name in STAGES.items():
        cells = [" / ".join(percent(np.mean(values[stage][f"{m} {b}"])) for b in BUDGETS) for m in MODELS]
        rows.append([name, percent(np.mean(values[stage]["0"])), *cells])
    budgets = " / ".join(map(str, BUDGETS))
    return table(["first stage", "alone", *(f"{name}: {budgets}" for name in MODELS.values())], rows)


def search_table(searched: dict[str, Values]) -> str:
    rows = []
    for label in searched["public"]:
        cells = [" / ".join(percent(np.mean(v)) for v in searched[model][label].values()) for model in MODELS]
        rows.append([label, *cells])
    budgets = " / ".join(map(str, BUDGETS))
    return table(["what is scored", *(f"{name}: {budgets} calls" for name in MODELS.values())], rows)


def differences_table(everything: Values, searched: dict[str, Values]) -> str:
    """Paired, on the questions that both have answered."""

    def gap(one: Any, other: Any) -> str:
        return difference([np.array(one) - np.array(other)])

    rows = []
    for encoder in ENCODERS:
        stage = STAGES[f"bm25+{encoder}"]
        search = [label for label in searched["public"] if label.startswith(f"crosscut, {ENCODERS[encoder]}")][-1]
        for budget in map(str, BUDGETS):
            reranked = [searched[model][stage][budget] for model in MODELS]
            whole = [next(iter(searched[model]["all answers"].values())) for model in MODELS]
            found = [searched[model][search][budget] for model in MODELS]
            rows.append([f"all answers − {stage}, {budget} reranked", *map(gap, whole, reranked)])
            rows.append([f"{search}, {budget} calls − {stage}, {budget} reranked", *map(gap, found, reranked)])
    deeper = []
    for model in MODELS:
        stage = everything["bm25+tuned"]
        deeper.append(gap(stage[f"{model} {BUDGETS[-1]}"], stage[f"{model} {BUDGETS[0]}"]))
    rows.append([f"{STAGES['bm25+tuned']}, {BUDGETS[-1]} − {BUDGETS[0]} reranked (all test questions)", *deeper])
    return table(["difference", *MODELS.values()], rows)


def recall_table(recalls: dict[str, Values]) -> str:
    rows = []
    for label in recalls["public"]:
        cells = [
            "; ".join(f"{percent(v['10'])} / {percent(v['100'])}" for v in recalls[model][label].values())
            for model in MODELS
        ]
        rows.append([label, *cells])
    budgets = "; ".join(map(str, BUDGETS))
    return table(["what is scored", *(f"{name}, {budgets} calls: k=10 / 100" for name in MODELS.values())], rows)


def plot(searched: dict[str, Values], path: Path) -> None:
    """nDCG@10 by calls, for both cross-encoders."""
    drawn, axes = figure(1, len(MODELS), width=4.2, height=3.6)
    for axis, (model, name) in zip(axes[0], MODELS.items(), strict=True):
        for label, values in searched[model].items():
            means = [100 * np.mean(value) for value in values.values()]
            if label == "all answers":
                axis.axhline(means[0], color="black", lw=1, ls=":", label=label)
            else:
                axis.plot(list(map(int, values)), means, marker="o", ms=3, lw=1, label=label)
        axis.set(title=name, xlabel="calls", xticks=BUDGETS)
    axes[0][0].set_ylabel(f"{MEASURE}, %")
    drawn.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    save_figure(drawn, path)
