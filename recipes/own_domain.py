"""A passage ranker of one's own domain: does a cross-encoder that was trained on it, with negatives from the whole
corpus, gain from deeper search, where a public one does not?

    python recipes/own_domain.py train BEIR --cross-encoder PUBLIC --encoder ENCODER --like PUBLIC.npz --out run/
    python recipes/own_domain.py report run/results --data BEIR --like PUBLIC.npz --out docs/experiments

BEIR is a folder with the splits train, valid (for choosing) and test; PUBLIC.npz the score matrix of the public
cross-encoder, whose queries and items are scored with the trained one, too. `train` makes a bi-encoder and a
cross-encoder; ranks the answers to every test question by words, by either bi-encoder, and by their fusions, and
scores the first 200 of each with both cross-encoders; then scores the rows of the matrix, test questions first.
Each step is left out if its result is there, so the same command continues. --minutes shortens the training of
the cross-encoder to what fits. `report` needs no GPU; it writes tables and plots (extra `plot`), and with --page
puts the tables into a page.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from experiment import (
    SPARE,
    Clock,
    Training,
    as_int8,
    in_half,
    is_trained,
    note,
    pairs_per_second,
    run_command,
    save,
    score_rows,
    seconds_per_step,
    share_out,
)

from crosscut.data import Beir, read_beir, read_qrels, read_queries, write_beir
from crosscut.encoders import as_encoder
from crosscut.errors import CrosscutError
from crosscut.first_stage import BM25, dense_scores, reciprocal_rank_fusion, top
from crosscut.scorers import as_scorer
from crosscut.system import cores

LIMITS = {"query_tokens": 48, "item_tokens": 160}  # those of the public matrix
STAGES = ("bm25", "public", "tuned", "bm25+public", "bm25+tuned")  # first stages; `tuned` is the trained encoder
DEPTH = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    add = (train_parser := verbs.add_parser("train")).add_argument
    add("data", type=Path, metavar="BEIR")
    add("--cross-encoder", required=True, metavar="MODEL")
    add("--encoder", required=True, metavar="MODEL")
    add("--like", type=Path, required=True, metavar="PUBLIC.npz")
    add("--out", type=Path, required=True, metavar="FOLDER")
    add("--minutes", type=float, help="shorten the training so that all ends in this time")
    add("--encoder-epochs", type=float, default=4)
    add("--epochs", type=float, default=3, help="of the cross-encoder")
    add("--steps", type=int, help="of both trainings, instead of epochs")
    add("--encoder-batch", type=int, default=128, help="questions in a step of the bi-encoder")
    add("--batch-size", type=int, default=32, help="questions in a step of the cross-encoder")
    add("--negative-count", type=int, default=15, help="a third each by words, bi-encoder and chance")
    add("--encoder-rate", type=float, default=5e-5, help="learning rate of the bi-encoder")
    add("--learning-rate", type=float, default=3e-5, help="of the cross-encoder")
    add("--anchors", type=int, default=100, help="anchor queries that are scored with all items")
    add("--seed", type=int, default=0)
    train_parser.set_defaults(run=train)
    add = (report_parser := verbs.add_parser("report")).add_argument
    add("results", type=Path, metavar="RESULTS")
    add("--data", type=Path, required=True, metavar="BEIR")
    add("--like", type=Path, required=True, metavar="PUBLIC.npz")
    report_parser.set_defaults(run=report)
    run_command(parser, report_parser)


def report(args: argparse.Namespace) -> None:
    import own_domain_report

    own_domain_report.write(args)


def train(args: argparse.Namespace) -> None:
    clock = Clock(args.minutes)
    results: Path = args.out / "results"
    results.mkdir(parents=True, exist_ok=True)
    chosen = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
    note(results / "settings.json", **{name: value for name, value in chosen.items() if name != "run"})
    test = read_beir(args.data, "test")
    rows = rows_to_score(args, test)
    if not (results / "plan.json").exists():
        note(results / "plan.json", **plan(args, test, rows, clock))
    steps = json.loads((results / "plan.json").read_text())
    if not is_trained(args.out / "encoder"):
        with clock.step("encoder"):
            train_bi_encoder(args, args.data, steps["encoder"])
    shutil.copy(args.out / "encoder" / "training.json", results / "encoder.json")
    if not (results / "lists.npz").exists():
        with clock.step("first stages"):
            rank_all(args, test, rows)
    lists = np.load(results / "lists.npz")
    if not is_trained(args.out / "cross-encoder"):
        with clock.step("cross-encoder"):
            train_pairs(args, args.data, steps["cross"])
    shutil.copy(args.out / "cross-encoder" / "training.json", results / "cross-encoder.json")
    models = {"tuned": str(args.out / "cross-encoder"), "public": args.cross_encoder}
    for name, model in models.items():
        if not (path := results / f"lists-{name}.npy").exists():
            with clock.step(f"lists by {name}", may_fail=True):
                save(path, score_pairs(as_scorer(model, **LIMITS), test, lists))
    score_matrix(args, test, rows, clock)
    note(results / "settings.json", times=clock.times)
    clock.say("done")


def rows_to_score(args: argparse.Namespace, test: Beir) -> dict[str, list[str]]:
    """Ids of the questions of the public matrix: those to test with, and some of its anchor queries."""
    with np.load(args.like) as file:
        query_ids, item_ids, anchors = file["query_ids"], file["item_ids"], int(file["anchors"])
    if item_ids.tolist() != [item.id for item in test.items]:
        raise CrosscutError(f"{args.like} has other items than {args.data}, or has them in another order")
    return {"test": query_ids[anchors:].tolist(), "anchors": query_ids[: min(args.anchors, anchors)].tolist()}


def train_bi_encoder(args: argparse.Namespace, data: Path, steps: int, **settings: Any) -> None:
    from crosscut.train import train_encoder

    given = {
        "out": args.out / "encoder",
        "negative_count": 2,
        "batch_size": args.encoder_batch,
        "learning_rate": args.encoder_rate,
        "eval_every": math.ceil(steps / 4),
        "seed": args.seed,
    }
    train_encoder(data, base=args.encoder, steps=steps, **(given | settings))


def train_pairs(args: argparse.Namespace, data: Path, steps: int, **settings: Any) -> None:
    from crosscut.train import train_cross_encoder

    given = {
        "out": args.out / "cross-encoder",
        "negatives": f"bm25,encoder:{args.out / 'encoder'},random",
        "negative_count": args.negative_count,
        "batch_size": args.batch_size,
        "learning_rate": args.learning_rate,
        "eval_every": math.ceil(steps / 6),
        "seed": args.seed,
    }
    train_cross_encoder(data, base=args.cross_encoder, steps=steps, **LIMITS, **(given | settings))


def plan(args: argparse.Namespace, test: Beir, rows: dict[str, list[str]], clock: Clock) -> dict[str, int]:
    """Steps of the bi-encoder and of the cross-encoder."""
    questions = count_questions(args.data)
    encoder = args.steps or math.ceil(args.encoder_epochs * math.ceil(questions / args.encoder_batch))
    cross = args.steps or math.ceil(args.epochs * math.ceil(questions / args.batch_size))
    if args.minutes is None:
        return {"encoder": encoder, "cross": cross}
    with clock.step("probe"):
        probe, models = probe_data(args.data, args.out / "probe"), args.out / "probes"
        quick = {"overwrite": True, "dev_queries": 16, "negatives": "random"}
        times = [
            seconds_per_step(partial(train_bi_encoder, args, probe, out=models / "encoder", **quick)),
            seconds_per_step(partial(train_pairs, args, probe, out=models / "cross-encoder", **quick)),
        ]
        texts = [query.text for query in test.queries[:100]], [item.content for item in test.items]
        speed = pairs_per_second(as_scorer(args.cross_encoder, **LIMITS), *texts)
    lists = 2 * len(test.queries) * 2.5 * DEPTH  # what the five first stages find has much in common
    scoring = (sum(map(len, rows.values())) * len(test.items) + lists) / speed
    steps = share_out(clock.left() - scoring - SPARE, Training(encoder, times[0]), Training(cross, times[1]))
    clock.say(f"seconds a step {times}, {speed:,.0f} pairs/s, so {scoring:.0f} s of scoring")
    clock.say(
        f"{steps['encoder']} of {encoder} steps for the bi-encoder, {steps['cross']} of {cross} for the other"
    )
    return steps


def count_questions(data: Path) -> int:
    return len(read_qrels(data / "qrels" / "train.tsv"))


def probe_data(data: Path, target: Path) -> Path:
    """A few questions and answers: quick to read, and as hard to train on."""
    whole = read_beir(data, "train")
    queries = whole.queries[:600]
    judged = {query.id: whole.qrels[query.id] for query in queries}
    answers = {id for items in judged.values() for id in items}
    others = [item for item in whole.items if item.id not in answers]
    write_beir(
        target, [item for item in whole.items if item.id in answers] + others[:600], queries, {"train": judged}
    )
    return target


def rank_all(args: argparse.Namespace, test: Beir, rows: dict[str, list[str]]) -> None:
    """The first items of every test question by each first stage, and the trained encoder's vectors."""
    texts, items = [query.text for query in test.queries], [item.content for item in test.items]
    words = BM25(items)
    vectors = {}
    for name, model in (("public", args.encoder), ("tuned", str(args.out / "encoder"))):
        encoder = as_encoder(model)
        vectors[name] = encoder.encode(texts, "query"), encoder.encode(items, "item")
    known = {query.id: query.text for query in read_queries(args.data)}
    asked = encoder.encode([known[id] for id in rows["anchors"] + rows["test"]], "query")

    def rank(block: slice) -> np.ndarray:
        scores = {"bm25": np.array([words.scores(text) for text in texts[block]])}
        scores |= {name: dense_scores(found, queries[block]) for name, (queries, found) in vectors.items()}
        for name in vectors:
            scores[f"bm25+{name}"] = reciprocal_rank_fusion([scores["bm25"], scores[name]])
        return np.stack([top(scores[stage], DEPTH) for stage in STAGES])

    with ThreadPoolExecutor(min(16, len(cores()))) as pool:
        blocks = [slice(start, start + 32) for start in range(0, len(texts), 32)]
        stages = np.concatenate(list(pool.map(rank, blocks)), axis=1).astype(np.int32)
    # Most lists of a question share most of their items, which are scored once.
    unions = [np.unique(stages[:, question]) for question in range(len(texts))]
    save(
        args.out / "results" / "vectors.npz",
        item_embeddings=as_int8(vectors["tuned"][1]),
        query_embeddings=asked.astype(np.float16),
        query_ids=np.array(rows["anchors"] + rows["test"]),
        anchors=np.array(len(rows["anchors"])),
    )
    save(
        args.out / "results" / "lists.npz",
        query_ids=np.array([query.id for query in test.queries]),
        stages=stages,
        positions=np.concatenate(unions).astype(np.int32),
        counts=np.array([len(union) for union in unions]),
    )


def score_pairs(scorer: Any, test: Beir, lists: Any) -> np.ndarray:
    """Every test question with all items that some first stage has found, in the order of `positions`."""
    items = [item.content for item in test.items]
    texts = np.repeat(np.array([query.text for query in test.queries], object), lists["counts"]).tolist()
    return scorer.score([(text, items[at]) for text, at in zip(texts, lists["positions"], strict=True)])


def score_matrix(args: argparse.Namespace, test: Beir, rows: dict[str, list[str]], clock: Clock) -> None:
    """The rows of the public matrix by the trained cross-encoder."""
    known = {query.id: query.text for query in read_queries(args.data)}
    items = [item.content for item in test.items]
    scorer, speed = as_scorer(str(args.out / "cross-encoder"), **LIMITS), float("inf")
    for name, ids in rows.items():
        path = args.out / "results" / f"rows-{name}.npz"
        if path.exists() or not ids:
            continue
        if clock.left() < len(ids) * len(items) / speed:
            ids = ids[: int(clock.left() * speed / len(items))]
            clock.say(f"time is left for {len(ids)} rows of {name} only")
        if ids:
            with clock.step(step := f"rows of {name}", may_fail=True):
                save(path, **in_half(score_rows(scorer, [known[id] for id in ids], items)))
            speed = len(ids) * len(items) / max(clock.times[step], 0.1)


if __name__ == "__main__":
    main()
