"""Searches of score matrices with and without CMC: as the first stage of the default search, as one of its
features, or both."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from compare_data import Part, read_parts
from compare_results import Results
from entity_linking_data import prepare
from experiment import from_half
from reporting import difference, percent, remembered, table

from crosscut.data import write_beir
from crosscut.errors import CrosscutError
from crosscut.evaluate.matrix import COMPARE, Matrix, MatrixBench
from crosscut.first_stage import top
from crosscut.types import Item, Query

BUDGETS = (16, 32, 64, 100, 200)
MEASURES = {"1": "its own best item", "10": "its 10 best items", "right": "the right answer"}
# Method, its settings, and whether the default goes by CMC's scores.
WAYS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "rerank, bi-encoder": ("rerank", {"first": "encoder"}, False),
    "rerank, CMC": ("rerank", {"first": COMPARE}, False),
    "crosscut": ("crosscut", {}, False),
    "crosscut, CMC first": ("crosscut", {"first": COMPARE}, False),
    "crosscut, CMC as a feature": ("crosscut", {}, True),
    "crosscut, both": ("crosscut", {"first": COMPARE}, True),
}
COMPARED = (  # what CMC gives to the default search, and what that gives to CMC
    ("crosscut, CMC first", "crosscut"),
    ("crosscut, CMC as a feature", "crosscut"),
    ("crosscut, both", "crosscut"),
    ("crosscut, both", "rerank, CMC"),
)


@dataclass(frozen=True)
class Searched:
    """A score matrix with CMC's scores, the texts, and who is right for its test queries."""

    name: str
    matrix: Matrix
    texts: Path
    part: Part

    def measure(self, way: str, anchors: int, benches: dict[bool, MatrixBench]) -> dict[str, Any]:
        """Of each budget and test query: the share of the scorer's best items, and whether its answer is right."""
        method, settings, signal = WAYS[way]
        if signal not in benches:
            benches[signal] = MatrixBench(self.matrix, anchors, self.texts, signal=signal)
        scores = self.matrix.scores[self.matrix.anchors :].astype(np.float32)
        truth, made = top(scores, 10), {}
        for budget in BUDGETS:
            found = benches[signal].run(method, budget, 0, settings).positions
            hits = np.array([np.isin(row, one) for row, one in zip(truth, found, strict=True)])
            best = np.take_along_axis(scores, found, axis=1).argmax(axis=1)
            right = self.part.right(found[np.arange(len(found)), best][:, None])[:, 0]
            values = {"1": hits[:, 0], "10": hits.mean(axis=1), "right": right}
            made[str(budget)] = {name: value.astype(float).tolist() for name, value in values.items()}
        return made


def tables(args: argparse.Namespace, runs: dict[str, Results]) -> dict[str, str]:
    """One of each task whose score matrices are given."""
    made = {}
    for task, source in (("linking", args.matrices), ("passages", args.like)):
        if task in runs and source is not None and list(runs[task].folder.glob("join-*.npz")):
            found = remembered(
                runs[task].folder / "searched.json", lambda task=task: search(args, runs[task], task)
            )
            for anchors in ("all", "none"):
                made[f"compare-join-{task}-{anchors}"] = join_table(found[anchors])
    return made


def search(args: argparse.Namespace, run: Results, task: str) -> dict[str, Any]:
    """Per query: with all anchor queries or none, by way, by matrix, by budget."""
    made: dict[str, Any] = {"all": {}, "none": {}}
    for one in (linking_matrices if task == "linking" else passage_matrices)(args, run):
        for label, anchors in (("all", one.matrix.anchors), ("none", 0)):
            benches: dict[bool, MatrixBench] = {}
            for way in WAYS:
                made[label].setdefault(way, {})[one.name] = one.measure(way, anchors, benches)
    return made


def join_table(found: dict[str, Any]) -> str:
    """Means over the matrices; below, differences between ways."""
    rows = []

    def parts(way: str, budget: int, measure: str) -> list[np.ndarray]:
        return [np.array(matrix[str(budget)][measure]) for matrix in found[way].values()]

    for way in found:
        cells = [
            " / ".join(
                percent(float(np.mean([part.mean() for part in parts(way, budget, name)]))) for name in MEASURES
            )
            for budget in BUDGETS
        ]
        rows.append([way, *cells])
    for way, rival in COMPARED:
        gaps = [
            difference([a - b for a, b in zip(parts(way, budget, "10"), parts(rival, budget, "10"), strict=True)])
            for budget in BUDGETS
        ]
        rows.append([f"{way} − {rival}, 10 best", *gaps])
    return table(["", *(f"{budget} calls" for budget in BUDGETS)], rows)


def linking_matrices(args: argparse.Namespace, run: Results) -> Iterator[Searched]:
    """Those that recipes/entity_linking.py has made of the test worlds, by its [CLS] cross-encoder."""
    if args.worlds is None:
        raise CrosscutError("the worlds of the score matrices are needed: name them with --worlds")
    data = run.folder / "data"
    if not data.exists():
        prepare(args.worlds, data, bool(run.settings["easy"]))
    for part in read_parts("linking", data):
        files = [args.matrices / f"{part.name}{end}.npz" for end in ("", "-cls")]
        joined = run.folder / f"join-{part.name}.npz"
        if not all(file.exists() for file in (*files, joined)):
            continue  # time had run out
        with np.load(files[0]) as file:
            shared = dict(file)
        matrix = Matrix(scores=from_half(np.load(files[1])), **(shared | {"anchors": int(shared["anchors"])}))
        if not (texts := run.folder / "texts" / part.name).exists():
            examples = part.examples
            queries = map(Query, examples.query_ids, examples.queries)
            write_beir(texts, map(Item, examples.item_ids, examples.items), queries, {})
        yield searched(part, matrix, joined, texts)


def passage_matrices(args: argparse.Namespace, run: Results) -> Iterator[Searched]:
    if args.beir is None:
        raise CrosscutError("the texts of the score matrix are needed: name their folder with --beir")
    (part,) = read_parts("passages", args.beir)
    yield searched(part, Matrix.load(args.like), run.folder / "join-passages.npz", args.beir)


def searched(part: Part, matrix: Matrix, joined: Path, texts: Path) -> Searched:
    """A matrix with what CMC says of its queries; items that it did not compare have its lowest score."""
    with np.load(joined) as file:
        made = dict(file)
    ids = matrix.query_ids.tolist() if matrix.query_ids is not None else []
    rows = {id: row for row, id in enumerate(made["query_ids"].tolist())}
    if not ids or not set(ids) <= set(rows):
        raise CrosscutError(f"{joined} has not the queries of its score matrix: compare those, with the unit join")
    if matrix.item_ids is None or matrix.item_ids.tolist() != part.examples.item_ids:
        raise CrosscutError(f"the score matrix of {part.name} has other items than the data")
    scores = made["scores"].astype(np.float32)
    if "positions" in made:
        whole = np.repeat(scores.min(axis=1, keepdims=True), len(part.examples.items), axis=1)
        np.put_along_axis(whole, made["positions"].astype(np.int64), scores, axis=1)
        scores = whole
    places = {id: place for place, id in enumerate(part.examples.query_ids)}
    tested = part.examples.take([places[id] for id in ids[matrix.anchors :]])
    matrix = replace(matrix, compare_scores=scores[[rows[id] for id in ids]])
    return Searched(part.name, matrix, texts, Part(part.name, tested))
