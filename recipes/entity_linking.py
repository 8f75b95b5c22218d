"""Entity linking as in the ANNCUR paper: does the head [EMB] give a score matrix of lower rank, and one that is
searched better, at equal accuracy (its Table 3, Figures 1b, 6 and 8)?

    python recipes/entity_linking.py train WORLDS --base all-MiniLM-L6-v2 --out run/
    python recipes/entity_linking.py train WORLDS --base all-MiniLM-L6-v2 --out easy/ --easy
    python recipes/entity_linking.py report run/results --easy easy/results --data WORLDS --out docs/experiments

WORLDS has entities/WORLD.jsonl and mentions/{train,dev,test}.jsonl. An entity's text is its description alone;
with --easy its title (names of the entity) comes before it. `train` makes a bi-encoder, then a [CLS] and an [EMB]
cross-encoder with negatives from the bi-encoder's first; links every test mention among the bi-encoder's first
64; and scores, in each test world, some mentions with all entities. Each step is left out if its result is there,
so the same command continues. --minutes shortens the training of the cross-encoders to what fits. `report` needs
no GPU; it writes tables and plots (extra `plot`), and with --page puts the tables into a page.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from entity_linking_data import WINDOW, World, count_mentions, prepare, probe_data, read_worlds
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
    score_lists,
    score_rows,
    seconds_per_step,
    share_out,
)

from crosscut.encoders import as_encoder
from crosscut.first_stage import dense_scores, top
from crosscut.scorers import as_scorer

HEADS = ("cls", "emb")
DEPTH = 64  # candidates of a mention, in training and in linking
LIMITS = {"query_tokens": 96, "item_tokens": 64}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    add = (train_parser := verbs.add_parser("train")).add_argument
    add("data", type=Path, metavar="WORLDS")
    add("--base", required=True, metavar="MODEL")
    add("--out", type=Path, required=True, metavar="FOLDER")
    add("--easy", action="store_true", help="an entity's text begins with its names")
    add("--minutes", type=float, help="shorten the training so that all ends in this time")
    add("--encoder-epochs", type=float, default=3)
    add("--epochs", type=float, default=2, help="of the cross-encoders")
    add("--steps", type=int, help="of every training, instead of epochs")
    add("--most", type=int, metavar="N", help="train on at most so many mentions of an entity (default: all)")
    add("--names", action="store_true", help="entities without a mention are mentioned by a name of theirs")
    add("--freeze-words", action="store_true", help="the vectors of words stay as they are in --base")
    add("--encoder-batch", type=int, default=256, help="mentions in a step of the bi-encoder")
    add("--batch-size", type=int, default=64, help="mentions in a step of a cross-encoder")
    add("--negative-count", type=int, default=15, help="drawn from the bi-encoder's first 63")
    add("--encoder-rate", type=float, default=1e-4, help="learning rate of the bi-encoder")
    add("--learning-rate", type=float, default=5e-5, help="of the cross-encoders")
    add("--anchors", type=int, default=200, help="mentions of each test world that are anchor queries")
    add("--test", type=int, default=100, help="further mentions of each test world, to test the search")
    add("--seed", type=int, default=0)
    train_parser.set_defaults(run=train)
    add = (report_parser := verbs.add_parser("report")).add_argument
    add("results", type=Path, metavar="RESULTS")
    add("--easy", type=Path, metavar="RESULTS", help="those of a run with --easy")
    add("--data", type=Path, required=True, metavar="WORLDS")
    report_parser.set_defaults(run=report)
    run_command(parser, report_parser)


def report(args: argparse.Namespace) -> None:
    import entity_linking_report

    entity_linking_report.write(args)


def train(args: argparse.Namespace) -> None:
    clock = Clock(args.minutes)
    results: Path = args.out / "results"
    results.mkdir(parents=True, exist_ok=True)
    chosen = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
    note(results / "settings.json", **{name: value for name, value in chosen.items() if name != "run"})
    data = args.out / "data"
    if not data.exists():
        with clock.step("data"):
            prepare(args.data, data, args.easy, args.most, args.names, args.seed)
    worlds = read_worlds(data)
    if not (results / "plan.json").exists():
        note(results / "plan.json", **plan(args, worlds, data, clock))
    steps = json.loads((results / "plan.json").read_text())
    if not is_trained(args.out / "encoder"):
        with clock.step("encoder"):
            train_bi_encoder(args, data, steps["encoder"])
    shutil.copy(args.out / "encoder" / "training.json", results / "encoder.json")
    found = find_candidates(args, worlds, clock)
    for head in HEADS:
        if not is_trained(args.out / head):
            with clock.step(head):
                train_pairs(args, data, head=head, steps=steps["cross"], out=args.out / head)
        shutil.copy(args.out / head / "training.json", results / f"{head}.json")
        link(args, worlds, found, head, clock)
    score_worlds(args, worlds, clock)
    note(results / "settings.json", times=clock.times)
    clock.say("done")


def train_bi_encoder(args: argparse.Namespace, data: Path, steps: int, **settings: Any) -> None:
    from crosscut.train import train_encoder

    given = {
        "out": args.out / "encoder",
        "negative_count": 3,
        "depth": DEPTH,
        "max_length": LIMITS["query_tokens"],
        "window": WINDOW,
        "batch_size": args.encoder_batch,
        "learning_rate": args.encoder_rate,
        "eval_every": math.ceil(steps / 3),
        "freeze_words": args.freeze_words,
        "seed": args.seed,
    }
    train_encoder(data, base=args.base, steps=steps, **(given | settings))


def train_pairs(args: argparse.Namespace, data: Path, steps: int, **settings: Any) -> None:
    from crosscut.train import train_cross_encoder

    given = {
        "base": args.base,
        "negatives": f"encoder:{args.out / 'encoder'}",
        "negative_count": args.negative_count,
        "depth": DEPTH - 1,
        "window": WINDOW,
        "batch_size": args.batch_size,
        "learning_rate": args.learning_rate,
        "eval_every": math.ceil(steps / 4),
        "freeze_words": args.freeze_words,
        "seed": args.seed,
    }
    train_cross_encoder(data, steps=steps, **LIMITS, **(given | settings))


def plan(args: argparse.Namespace, worlds: list[World], data: Path, clock: Clock) -> dict[str, int]:
    """Steps of the bi-encoder, and of each cross-encoder: both take the same, for the comparison to be fair."""
    mentions = count_mentions(data)
    encoder = args.steps or math.ceil(args.encoder_epochs * math.ceil(mentions / args.encoder_batch))
    cross = args.steps or math.ceil(args.epochs * math.ceil(mentions / args.batch_size))
    if args.minutes is None:
        return {"encoder": encoder, "cross": cross}
    with clock.step("probe"):
        probe, models, largest = probe_data(data, args.out / "probe"), args.out / "probes", worlds[-1].examples
        quick = {"overwrite": True, "dev_queries": 16, "negatives": "random"}
        times = [
            seconds_per_step(partial(train_bi_encoder, args, probe, out=models / "encoder", **quick)),
            seconds_per_step(partial(train_pairs, args, probe, head="cls", out=models / "cls", **quick)),
        ]
        speed = pairs_per_second(as_scorer(str(models / "cls"), **LIMITS), largest.queries[:100], largest.items)
    rows = sum(len(world.examples.items) * len(drawn(world, args)) for world in worlds)
    scoring = len(HEADS) * (rows + sum(DEPTH * len(world.gold) for world in worlds)) / speed
    trainings = Training(encoder, times[0]), Training(cross, times[1], len(HEADS))
    steps = share_out(clock.left() - scoring - SPARE, *trainings)
    clock.say(f"seconds a step {times}, {speed:,.0f} pairs/s, so {scoring:.0f} s of scoring")
    clock.say(
        f"{steps['encoder']} of {encoder} steps for the bi-encoder, {steps['cross']} of {cross} for the others"
    )
    return steps


def find_candidates(args: argparse.Namespace, worlds: list[World], clock: Clock) -> dict[str, np.ndarray]:
    """The bi-encoder's first 64 entities of every test mention; writes its vectors for the score matrices."""
    results = args.out / "results"
    if not (results / "candidates.npz").exists():
        with clock.step("candidates"):
            encoder, found, figures = as_encoder(str(args.out / "encoder")), {}, {}
            for world in worlds:
                queries = encoder.encode(world.examples.queries, "query")
                items = encoder.encode(world.examples.items, "item")
                found[world.name] = top(dense_scores(items, queries), DEPTH).astype(np.int32)
                hits = world.is_right(found[world.name].T).T
                figures[world.name] = {
                    "entities": len(items),
                    "mentions": len(queries),
                    "recall": {k: float(hits[:, :k].any(axis=1).mean()) for k in (1, 8, DEPTH)},
                }
                rows = drawn(world, args)
                save(
                    results / f"{world.name}.npz",
                    anchors=np.array(anchor_count(args, len(rows))),
                    query_ids=np.array([world.examples.query_ids[row] for row in rows]),
                    item_ids=np.array(world.examples.item_ids),
                    query_embeddings=queries[rows].astype(np.float16),
                    item_embeddings=as_int8(items),
                )
            note(results / "linking.json", encoder=figures)
            save(results / "candidates.npz", **found)
            clock.say(json.dumps(figures))
    with np.load(results / "candidates.npz") as file:
        return {name: file[name] for name in file.files}


def drawn(world: World, args: argparse.Namespace) -> np.ndarray:
    """The mentions that are scored with all entities: anchor queries first, then those to test with."""
    order = np.random.default_rng(args.seed).permutation(len(world.gold))
    return order[: args.anchors + args.test]


def anchor_count(args: argparse.Namespace, rows: int) -> int:
    """All that are asked for, or their share of the mentions that there are."""
    return args.anchors if rows == args.anchors + args.test else rows * args.anchors // (args.anchors + args.test)


def link(
    args: argparse.Namespace, worlds: list[World], found: dict[str, np.ndarray], head: str, clock: Clock
) -> None:
    """Every test mention to the best of its candidates, by one cross-encoder."""
    path = args.out / "results" / f"links-{head}.npz"
    if path.exists():
        return
    with clock.step(f"link {head}", may_fail=True):
        scorer, links, figures = as_scorer(str(args.out / head), **LIMITS), {}, {}
        for world in worlds:
            examples, candidates = world.examples, found[world.name]
            scores = score_lists(scorer, examples.queries, examples.items, candidates)
            links[world.name] = candidates[np.arange(len(scores)), scores.argmax(axis=1)]
            right, able = world.is_right(links[world.name]), world.is_right(candidates.T).any(axis=0)
            figures[world.name] = {"accuracy": float(right.mean()), "normalised": float(right[able].mean())}
        note(args.out / "results" / "linking.json", **{head: figures})
        save(path, **links)
        clock.say(head, json.dumps(figures))


def score_worlds(args: argparse.Namespace, worlds: list[World], clock: Clock) -> None:
    """Some mentions of each test world with all of its entities, by both cross-encoders."""
    scorers: dict[str, Any] = {}
    speed = float("inf")
    for world in worlds:
        queries = [world.examples.queries[row] for row in drawn(world, args)]
        pairs = len(queries) * len(world.examples.items)
        for head in HEADS:
            path = args.out / "results" / f"{world.name}-{head}.npz"
            if path.exists():
                continue
            if clock.left() < pairs / speed:
                clock.say(f"no time is left for {world.name} by {head}")
                continue
            with clock.step(name := f"score {world.name} {head}", may_fail=True):
                if head not in scorers:
                    scorers[head] = as_scorer(str(args.out / head), **LIMITS)
                save(path, **in_half(score_rows(scorers[head], queries, world.examples.items)))
            speed = pairs / max(clock.times[name], 0.1)


if __name__ == "__main__":
    main()
