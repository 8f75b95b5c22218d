"""The report on entity linking: what was linked, how the score matrices look, how well they are searched."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from entity_linking_data import World, prepare, read_worlds
from experiment import from_half
from reporting import difference, figure, interval, percent, remembered, save_figure, table, write_tables
from spectra import approximation, centred, shape_of, singular_values

from crosscut.data import write_beir
from crosscut.encoders.base import to_unit_length
from crosscut.evaluate.matrix import Matrix, MatrixBench
from crosscut.first_stage import top
from crosscut.types import Item, Query

HEADS = {"cls": "[CLS]", "emb": "[EMB]"}
COLOURS = {"cls": "#c44e52", "emb": "#4c72b0", "encoder": "#999999"}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "rerank, bi-encoder": ("rerank", {"first": "encoder"}),
    "rerank, fused with BM25": ("rerank", {"first": "rrf"}),
    "anncur": ("anncur", {}),
    "adacur": ("adacur", {}),
    "crosscut": ("crosscut", {}),
}
BUDGETS, KS = (50, 100, 200, 500), (1, 10, 100)
LINKING_BUDGET = 64
GRID = {"queries": (50, 100, 200), "items": (50, 100, 200, 500)}  # k_q and k_i


@dataclass(frozen=True)
class Run:
    """The results of one run of `train`. `scored`: the worlds with a score matrix of each head."""

    results: Path
    worlds: list[World]
    scored: dict[str, dict[str, Matrix]]
    suffix: str  # of its tables and plots

    def bench(self, world: str, head: str) -> MatrixBench:
        matrix = self.scored[world][head]
        return MatrixBench(matrix, matrix.anchors, self.results / "texts" / world)


def write(args: argparse.Namespace) -> None:
    tables: dict[str, str] = {}
    given = ((args.results, ""), (args.easy, "-easy"))
    runs = [read_run(results, args.data, suffix) for results, suffix in given if results is not None]
    for run in runs:
        suffix = run.suffix
        tables[f"linking{suffix}"] = linking_table(run)
        if run.scored:
            tables[f"rank{suffix}"] = rank_table(run)
            tables[f"approximation{suffix}"] = approximation_table(run)
            tables[f"search{suffix}"] = search_table(run)
            tables[f"search-worlds{suffix}"] = world_table(run)
            tables[f"linking-search{suffix}"] = linking_search_table(run)
    write_tables(args.out, tables, args.page)
    for run in runs:
        if run.scored:
            plot_scores(run, args.out / f"linking-scores{run.suffix}.svg")
            plot_spectra(run, args.out / f"linking-spectra{run.suffix}.svg")
            plot_recall(run, args.out / f"linking-recall{run.suffix}.svg")


def read_run(results: Path, source: Path, suffix: str) -> Run:
    data = results / "data"
    if not data.exists():
        prepare(source, data, bool(json.loads((results / "settings.json").read_text())["easy"]))
    worlds, scored = read_worlds(data), {}
    for world in worlds:
        files = {head: results / f"{world.name}-{head}.npz" for head in HEADS}
        if not all(file.exists() for file in files.values()):
            continue  # time had run out
        with np.load(results / f"{world.name}.npz") as file:
            shared = dict(file)
        shared["anchors"] = int(shared["anchors"])
        scored[world.name] = {head: Matrix(scores=from_half(np.load(f)), **shared) for head, f in files.items()}
        if not (texts := results / "texts" / world.name).exists():
            items = map(Item, world.examples.item_ids, world.examples.items)
            write_beir(texts, items, map(Query, world.examples.query_ids, world.examples.queries), {})
    return Run(results, worlds, scored, suffix)


def linking_table(run: Run) -> str:
    """Recall@64 of the bi-encoder, and accuracy over its candidates (the paper's §3.1 and Table 3a)."""
    found, links = np.load(run.results / "candidates.npz"), {}
    for head in HEADS:
        if (path := run.results / f"links-{head}.npz").exists():
            links[head] = np.load(path)
    rows, means, right = [], [], {head: [] for head in links}
    for world in run.worlds:
        hits = world.is_right(found[world.name].T).T
        able = hits.any(axis=1)
        values = [able.mean(), hits[:, 0].mean()]
        for head in links:
            right[head].append(world.is_right(links[head][world.name]))
            values += [right[head][-1].mean(), right[head][-1][able].mean()]
        means.append(values)
        gap = [difference([right["emb"][-1] * 1.0 - right["cls"][-1]])] if len(links) == 2 else []
        counts = f"{hits.shape[0]:,}", f"{len(world.examples.items):,}"
        rows.append([world.name, *counts, *map(percent, values), *gap])
    gaps = [emb * 1.0 - cls for cls, emb in zip(*right.values(), strict=True)] if len(links) == 2 else []
    rows.append(["mean", "", "", *map(percent, np.mean(means, axis=0)), *([difference(gaps)] if gaps else [])])
    heads = [f"{HEADS[head]}{what}" for head in links for what in ("", ", normalised")]
    header = ["world", "mentions", "entities", "recall@64", "bi-encoder", *heads]
    return table([*header, *(["[EMB] − [CLS]"] if gaps else [])], rows)


def rank_table(run: Run) -> str:
    """Rank of the score matrices as they are and centred (the paper's Table 3b), and the shape of their scores."""
    rows = []
    for world, matrices in run.scored.items():
        for head, matrix in matrices.items():
            raw, middle = (shape_of(scores) for scores in (matrix.scores, centred(matrix.scores)))
            pairs = [f"{a:.0f} / {b:.0f}" for a, b in zip(raw[:4], middle[:4], strict=True)]
            size = f"{matrix.scores.shape[0]} × {matrix.scores.shape[1]:,}"
            rows.append([world, HEADS[head], size, *pairs, f"{matrix.scores.mean():.1f}", *row_shape(matrix)])
    header = ["world", "head", "matrix", "rank", "90 % of energy", "99 %", "effective rank"]
    return table([*header, "mean score", "sd within a query", "skewness"], rows)


def row_shape(matrix: Matrix) -> list[str]:
    """Spread and skewness of a query's scores, on the mean of the queries."""
    apart = matrix.scores - matrix.scores.mean(axis=1, keepdims=True)
    spread = apart.std(axis=1)
    return [f"{spread.mean():.1f}", f"{((apart**3).mean(axis=1) / spread**3).mean():.1f}"]


def approximation_table(run: Run) -> str:
    """ANNCUR's estimates of the test rows, with k_q anchor queries and k_i anchor items (Figures 6 and 8)."""

    def make() -> list[list[str]]:
        rows = []
        for queries in GRID["queries"]:
            for count in GRID["items"]:
                cells = []
                for head in HEADS:
                    made = [
                        approximation(matrices[head], queries, count)
                        for matrices in run.scored.values()
                        if queries <= matrices[head].anchors and count <= matrices[head].scores.shape[1]
                    ]
                    cells.append(np.mean(made, axis=0) if made else [np.nan] * 3)
                if not np.isnan(cells).any():
                    pairs = [f"{a:.3f} / {b:.3f}" for a, b in zip(*cells, strict=True)][:2]
                    rows.append([queries, count, *pairs, " / ".join(percent(cell[2]) for cell in cells)])
        return rows

    rows = remembered(run.results / "approximation.json", make)
    header = ["anchor queries", "anchor items", "error, [CLS] / [EMB]", "of what is centred"]
    return table([*header, "top 10 among the first 500"], rows)


def recalls(run: Run) -> dict[str, Any]:
    """Top-k-recall of every test query: world, head, method, budget, k."""

    def make() -> dict[str, Any]:
        made: dict[str, Any] = {}
        for world, matrices in run.scored.items():
            for head, matrix in matrices.items():
                bench = run.bench(world, head)
                truth = top(matrix.scores[matrix.anchors :], max(KS))
                for name, (method, settings) in METHODS.items():
                    for budget in BUDGETS:
                        found = bench.run(method, budget, 0, settings).positions
                        hits = np.array([np.isin(row, one) for row, one in zip(truth, found, strict=True)])
                        means = {str(k): hits[:, :k].mean(axis=1).tolist() for k in KS}
                        made.setdefault(world, {}).setdefault(head, {}).setdefault(name, {})[str(budget)] = means
        return made

    return remembered(run.results / "recall.json", make)


def per_world(run: Run, head: str, method: str, budget: int, k: int) -> list[np.ndarray]:
    found = recalls(run)
    return [np.array(found[world][head][method][str(budget)][str(k)]) for world in run.scored]


def search_table(run: Run) -> str:
    """Means over the worlds, and the difference that the head makes at k = 10."""
    rows = []
    for method in METHODS:
        for head, label in HEADS.items():
            cells = [
                " / ".join(percent(interval(per_world(run, head, method, budget, k))[0]) for k in KS)
                for budget in BUDGETS
            ]
            rows.append([method, label, *cells])
        gaps = [
            difference(
                [
                    emb - cls
                    for cls, emb in zip(*(per_world(run, head, method, budget, 10) for head in HEADS), strict=True)
                ]
            )
            for budget in BUDGETS
        ]
        rows.append(["", "difference, k=10", *gaps])
    ks = " / ".join(map(str, KS))
    return table(["method", "head", *(f"B={budget}: k={ks}" for budget in BUDGETS)], rows)


def world_table(run: Run) -> str:
    """The same for each world, at k = 10."""
    rows = []
    for place, world in enumerate(run.scored):
        for method in METHODS:
            cells = [
                " / ".join(percent(per_world(run, head, method, budget, 10)[place].mean()) for head in HEADS)
                for budget in BUDGETS
            ]
            rows.append([world, method, *cells])
    return table(["world", "method", *(f"B={budget}: [CLS] / [EMB]" for budget in BUDGETS)], rows)


def linking_search_table(run: Run) -> str:
    """Accuracy of linking with 64 calls, by reranking or by search, and with all, on the queries of the test."""

    def make() -> list[list[str]]:
        rows = []
        for name, matrices in run.scored.items():
            world = next(world for world in run.worlds if world.name == name)
            places = {id: place for place, id in enumerate(world.examples.query_ids)}
            for head, matrix in matrices.items():
                bench, scores = run.bench(name, head), matrix.scores[matrix.anchors :]
                gold = world.gold[[places[str(id)] for id in matrix.query_ids[matrix.anchors :]]]
                kinds, cells = world.examples.kinds, []
                for method, settings in (METHODS["rerank, bi-encoder"], METHODS["crosscut"], ("exact", {})):
                    found = bench.run(method, LINKING_BUDGET, 0, settings).positions
                    best = np.take_along_axis(scores, found, axis=1).argmax(axis=1)
                    linked = found[np.arange(len(found)), best]
                    cells.append((kinds[linked] == kinds[gold]).astype(float))
                gain = difference([cells[1] - cells[0]])
                rows.append([name, HEADS[head], *(percent(cell.mean()) for cell in cells), gain])
        return rows

    rows = remembered(run.results / "linking-search.json", make)
    header = ["world", "head", "rerank, bi-encoder's 64", "crosscut, 64 calls", "all entities"]
    return table([*header, "crosscut − rerank"], rows)


def plot_scores(run: Run, path: Path) -> None:
    """Histograms of a query's scores less their mean, in units of their spread (Figure 1b)."""
    drawn, axes = figure(1, len(run.scored), sharey=True)
    edges = np.linspace(-5, 12, 120)
    for axis, (world, matrices) in zip(axes[0], run.scored.items(), strict=True):
        matrix = matrices["cls"]
        sides = [to_unit_length(side) for side in (matrix.query_embeddings, matrix.item_embeddings)]
        shown = {"encoder": sides[0] @ sides[1].T} | {head: one.scores for head, one in matrices.items()}
        for name, scores in shown.items():
            apart = scores - scores.mean(axis=1, keepdims=True)
            heights, _ = np.histogram(apart / apart.std(), bins=edges, density=True)
            axis.stairs(heights, edges, color=COLOURS[name], label=HEADS.get(name, "bi-encoder"))
        axis.set(title=world, yscale="log", ylim=(1e-6, 1), xlabel="score less the query's mean, in sd")
    axes[0][0].set_ylabel("density")
    axes[0][-1].legend()
    save_figure(drawn, path)


def plot_spectra(run: Run, path: Path) -> None:
    """What the first singular vectors leave unexplained of the centred matrices."""
    drawn, axes = figure(1, len(run.scored), sharey=True)
    for axis, (world, matrices) in zip(axes[0], run.scored.items(), strict=True):
        for head, matrix in matrices.items():
            energy = singular_values(centred(matrix.scores)) ** 2
            rest = 1 - np.cumsum(energy) / energy.sum()
            axis.plot(np.arange(1, len(rest)), rest[:-1], color=COLOURS[head], label=HEADS[head])
        axis.set(title=world, xscale="log", yscale="log", ylim=(1e-3, 1), xlabel="singular vectors")
    axes[0][0].set_ylabel("energy left, centred scores")
    axes[0][-1].legend()
    save_figure(drawn, path)


def plot_recall(run: Run, path: Path) -> None:
    """Recall at each budget, the mean over the worlds."""
    drawn, axes = figure(1, len(KS), sharey=True)
    styles = {"cls": "-", "emb": "--"}
    for axis, k in zip(axes[0], KS, strict=True):
        for number, method in enumerate(METHODS):
            for head, style in styles.items():
                means = [
                    100 * np.mean([part.mean() for part in per_world(run, head, method, budget, k)])
                    for budget in BUDGETS
                ]
                axis.plot(BUDGETS, means, style, marker="o", ms=3, lw=1, color=f"C{number}", label=method)
        axis.set(title=f"k = {k}", xscale="log", xlabel="calls (solid: [CLS], dashed: [EMB])")
        axis.set_xticks(BUDGETS, map(str, BUDGETS))
        axis.minorticks_off()
    axes[0][0].set_ylabel("top-k-recall, %")
    drawn.legend(axes[0][0].get_lines()[::2], METHODS, loc="outside lower center", ncols=len(METHODS))
    save_figure(drawn, path)
