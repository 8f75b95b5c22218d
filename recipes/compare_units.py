"""The units of the experiment with compare models that test how well they rank; `compare_times` has the others."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from compare_data import CALLS, CHUNK, DEPTH, SOURCES, VARIANTS, WIDE, Part, gold_ranks, read_parts
from compare_run import Run
from compare_scoring import Compared
from entity_linking import anchor_count, drawn
from entity_linking_data import World
from experiment import encoding, note, save

from crosscut.compare import as_comparer
from crosscut.data import read_queries
from crosscut.errors import CrosscutError
from crosscut.first_stage import top
from crosscut.scorers import as_scorer
from crosscut.train.nearest import by_vectors

LARGEST = 16_384  # items that CMC compares in one pass


def encoder(run: Run) -> None:
    _keep_record(run, run.encoder, "encoder")


def cross(run: Run) -> None:
    _keep_record(run, run.cross, "cross")


def _keep_record(run: Run, model: Path, name: str) -> None:
    """How a model was trained, if that is known; one that is given may be from anywhere."""
    if (model / "training.json").exists():
        shutil.copy(model / "training.json", run.results / f"{name}.done.json")
    else:
        note(run.results / f"{name}.done.json", given=str(model))


def first(run: Run) -> None:
    """Ranks by the first stage."""
    _ = run.candidates


def variant(run: Run, name: str) -> None:
    """Train a compare model; where it ranks what is right, among more or fewer candidates."""
    comparer, counts = as_comparer(str(run.model(name))), VARIANTS[name].counts
    counts = counts if run.task.has_stage else (run.task.reranked,)
    ranks, kept, chunked, bytes = {}, {}, {}, []
    with encoding(run.args.precision):
        for part in run.parts:
            compared = Compared.of(comparer, part.examples.queries, part.examples.items)
            bytes.append(compared.bytes)
            candidates = run.candidates[part.name]
            right = part.right(candidates)
            for count in counts:
                few = candidates[:, :count]
                scores = compared.scores(few)
                ranks[f"{part.name}/{count}"] = gold_ranks(scores, right[:, :count])
                if name == "cmc" and count in SOURCES and run.task.has_stage:
                    best = top(scores, max(CALLS))
                    kept[f"{part.name}/{count}"] = np.take_along_axis(few, best, axis=1)
            if name == "cmc" and run.task.has_stage:
                parts = (
                    compared.scores(candidates[:, at : at + CHUNK]) for at in range(0, candidates.shape[1], CHUNK)
                )
                chunked[f"{part.name}/{DEPTH}"] = gold_ranks(np.concatenate(list(parts), axis=1), right)
    if kept:
        save(run.out / "kept.npz", **kept)
        save(run.results / "cmc-chunked.npz", **chunked)
    note(run.results / "bytes.json", **{name: float(np.mean(bytes))})
    save(run.results / f"{name}.npz", **ranks)
    figures = {key: round(float(((values > 0) & (values <= 1)).mean()), 4) for key, values in ranks.items()}
    run.clock.say(name, "accuracy", figures)


def final(run: Run) -> None:
    """The cross-encoder over candidates of the first stage and of CMC; each pair is scored once.

    NAME/SOURCE/N has, for every query, whether the best of N candidates is right (1) and one of them is (2). For
    linking it also ranks as many candidates as an intermediate stage does: what comparing can hope for.
    """
    exactly = {"dtype": "bfloat16"} if run.args.precision == "bf16" else {}
    scorer = as_scorer(str(run.cross), **run.task.limits, **exactly)
    if run.task.has_stage and not (run.out / "kept.npz").exists():
        variant(run, "cmc")
    kept = dict(np.load(run.out / "kept.npz")) if run.task.has_stage else {}
    made, ranks = {}, {}
    for part in run.parts:
        counts = (run.task.reranked, WIDE) if run.args.task == "linking" else (run.task.reranked,)
        candidates = run.candidates[part.name][:, : max(counts)]
        lists = {"first": candidates}
        lists |= {f"cmc-{n}": kept[f"{part.name}/{n}"] for n in SOURCES if f"{part.name}/{n}" in kept}
        scores = _scores(scorer, part, lists)
        for source, rows in lists.items():
            right = part.right(rows)
            for count in CALLS if run.task.has_stage else ():
                best = scores[source][:, :count].argmax(axis=1)
                hit = right[np.arange(len(right)), best]
                made[f"{part.name}/{source}/{count}"] = (hit + 2 * right[:, :count].any(axis=1)).astype(np.uint8)
        right = part.right(candidates)
        for count in counts:
            ranks[f"{part.name}/{count}"] = gold_ranks(scores["first"][:, :count], right[:, :count])
    save(run.results / "cross.npz", **ranks)
    save(run.results / "final.npz", **made)


def _scores(scorer: Any, part: Part, lists: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of the items in several lists (queries x items) that have much in common."""
    queries, items = part.examples.queries, part.examples.items
    table = np.concatenate(list(lists.values()), axis=1).astype(np.int64)
    numbers, back = np.unique(table + len(items) * np.arange(len(table))[:, None], return_inverse=True)
    pairs = [(queries[number // len(items)], items[number % len(items)]) for number in numbers.tolist()]
    scores = scorer.score(pairs)[back.reshape(table.shape)]
    ends = np.cumsum([rows.shape[1] for rows in lists.values()])
    return dict(zip(lists, np.split(scores, ends[:-1], axis=1), strict=True))


def join(run: Run) -> None:
    """CMC's scores of the queries of score matrices, for the searches of the report."""
    comparer = as_comparer(str(run.model("cmc")))
    for part in read_parts(run.args.task, run.data):
        ids, texts, anchors = rows_of(run, part)
        items = part.examples.items
        with encoding(run.args.precision):
            compared = Compared.of(comparer, texts, items)
        count = min(run.args.nearest, LARGEST)
        made: dict[str, Any] = {"query_ids": np.array(ids), "anchors": np.array(anchors)}
        if count >= len(items):
            found = np.broadcast_to(np.arange(len(items)), (len(texts), len(items)))
        else:
            queries, vectors = run.stage.encode(texts, "query"), run.stage.encode(items, "item")
            found = by_vectors(queries, vectors, count, [np.zeros(0, np.int64)] * len(texts))
            made["positions"] = found.astype(np.uint16 if len(items) <= 1 << 16 else np.int32)
        with encoding(run.args.precision):
            made["scores"] = compared.scores(found).astype(np.float16)
        save(run.results / f"join-{part.name}.npz", item_ids=np.array(part.examples.item_ids), **made)
    note(run.results / "join.done.json", nearest=run.args.nearest)


def rows_of(run: Run, part: Part) -> tuple[list[str], list[str], int]:
    """The queries of a score matrix: ids, texts, and how many of them are anchor queries."""
    args = run.args
    if args.task == "linking":  # those that recipes/entity_linking.py draws
        drawn_as = SimpleNamespace(anchors=args.anchors, test=args.test, seed=args.seed)
        rows = drawn(World(part.name, part.examples), drawn_as)
        ids, texts = part.examples.query_ids, part.examples.queries
        return [ids[row] for row in rows], [texts[row] for row in rows], anchor_count(drawn_as, len(rows))
    if args.like is None:
        raise CrosscutError("the queries of a score matrix are needed: name it with --like")
    with np.load(args.like) as file:
        ids, anchors = file["query_ids"].tolist(), int(file["anchors"])
    known = {query.id: query.text for query in read_queries(run.data)}
    return ids, [known[id] for id in ids], anchors
