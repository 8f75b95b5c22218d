"""Compare models as in the CMC paper: does comparing many candidates at once find what a bi-encoder misses, and
save calls of a cross-encoder (its Tables 1 to 4, 8 and 12, and Figure 4)? And does it help the default search?

    python recipes/compare.py train linking WORLDS --base all-MiniLM-L6-v2 --out run/linking
    python recipes/compare.py train passages BEIR --base all-MiniLM-L6-v2 --out run/passages --like PUBLIC.npz
    python recipes/compare.py train replies DIALOGUES --base all-MiniLM-L6-v2 --out run/replies
    python recipes/compare.py report --linking run/linking/results --passages run/passages/results ... \\
        --out docs/experiments

WORLDS is as in entity_linking.py (an entity's text is its description alone; with --easy its names come before
it); BEIR has the splits train and test, and one to choose by; DIALOGUES has train.jsonl, dev.jsonl and test.jsonl
with a context and a reply on each line. The work is divided into units, each with results of its own:

    encoder, first            the bi-encoder that finds candidates, and how well it does
    cmc, poly, ...            a compare model, trained and tested; all take the same number of steps
    cmc-no-skip, ...          the same in another way (see ABLATIONS in compare_data.py)
    cmc-from-encoder, ...     the same with another encoder to begin with: base, encoder or vanilla
    cross, final              the cross-encoder, and its accuracy over candidates of either
    time, curve               how long pipelines take, and how time grows with the candidates
    time-cpu, curve-cpu       the same without a GPU
    join                      CMC's scores of the queries of score matrices

A unit is left out if its results are there, so the same command continues. --units names them in order. Steps are
given (--steps, --epochs), or as many as fit into --minutes. `report` needs no GPU; it writes tables and plots
(extra `plot`), and with --page puts the tables into a page.
"""

from __future__ import annotations

import argparse
import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from compare_data import REPORTED, STARTS, TASKS, VARIANTS
from experiment import Clock, note, run_command

SAME = (
    "task",
    "easy",
    "most",
    "names",
    "start",
    "seed",
    "batch_size",
    "candidates",
    "depth",
    "fixed_items",
    "tested",
)  # for all units of a run
INITIAL = ("cmc", "poly", "bi")  # models whose start is varied
MEASURES = ("encoder", "first", "cross", "final", "time", "time-cpu", "curve", "curve-cpu", "join")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    add = (train_parser := verbs.add_parser("train")).add_argument
    add("task", choices=TASKS)
    add("data", type=Path, metavar="FOLDER")
    add("--base", required=True, metavar="MODEL")
    add("--out", type=Path, required=True, metavar="FOLDER")
    add("--units", type=lambda text: text.split(","), metavar="NAME,...", help="in order; * stands for many names")
    add("--easy", action="store_true", help="linking: an entity's text begins with its names")
    add("--most", type=int, metavar="N", help="linking: train on at most so many mentions of an entity")
    add(
        "--names",
        action="store_true",
        help="linking: entities without a mention are mentioned by a name of theirs",
    )
    add("--encoder", metavar="MODEL", help="a bi-encoder of this domain (default: it is trained)")
    add("--cross-encoder", metavar="MODEL", help="a cross-encoder of this domain (default: it is trained)")
    add("--vanilla", metavar="MODEL", help="a plain encoder, to begin with in units such as cmc-from-vanilla")
    add("--start", choices=STARTS, default="base", help="what the encoders of compare models begin as")
    add("--fixed-items", action="store_true", help="what is kept of items stays as the start makes it")
    add("--minutes", type=float, help="shorten the training so that all ends in this time")
    add("--steps", type=int, help="of every compare model, instead of epochs")
    add("--epochs", type=float, default=1)
    add("--batch-size", type=int, help="queries in a step")
    add("--candidates", type=int, help="of a query in training")
    add("--depth", type=int, default=1024, help="of the first stage, from which they are drawn")
    add("--learning-rate", type=float, default=5e-5)
    add("--layer-rate", type=float, default=5e-4, help="learning rate of a model's own layers")
    add("--regularise-weight", type=float, default=0.5, help="λ2")
    add("--encoder-epochs", type=float, default=2)
    add("--encoder-steps", type=int)
    add("--encoder-batch", type=int, default=256)
    add("--encoder-rate", type=float, default=1e-4)
    add("--encoder-negatives", type=int, default=3, help="hard ones of each query, beside those of its batch")
    add("--cross-base", metavar="MODEL", help="what the cross-encoder begins as (default: the base)")
    add("--cross-epochs", type=float, default=1)
    add("--cross-steps", type=int)
    add("--cross-rate", type=float, default=5e-5)
    add("--negative-count", type=int, default=15, help="of the cross-encoder")
    add("--dev-queries", type=int, default=500, help="to evaluate on, once, at the end of a training")
    add("--tested", type=int, metavar="N", help="test on at most so many queries, of a world if there are several")
    add("--anchors", type=int, default=200, help="linking: anchor queries of each score matrix")
    add("--test", type=int, default=100, help="linking: its other queries")
    add("--like", type=Path, metavar="MATRIX.npz", help="passages: a score matrix, whose queries are compared")
    add("--nearest", type=int, default=16_384, help="items that CMC compares for a query of a score matrix")
    add("--largest", type=int, default=16_384, help="candidates whose time is measured")
    add("--timed-items", type=int, metavar="N", help="time pipelines with so many items (default: all of a world)")
    add("--precision", help="bf16 is faster on many new CPUs, too (default: bf16 on a GPU)")
    add("--seed", type=int, default=0)
    train_parser.set_defaults(run=train)
    add = (report_parser := verbs.add_parser("report")).add_argument
    for name, about in REPORTED.items():
        add(f"--{name.replace('_', '-')}", type=Path, metavar="RESULTS", help=about)
    add("--worlds", type=Path, metavar="WORLDS", help="to search the score matrices of entity_linking.py, ...")
    add("--matrices", type=Path, metavar="RESULTS", help="... which are these")
    add("--beir", type=Path, metavar="BEIR", help="to search the score matrix ...")
    add("--like", type=Path, metavar="MATRIX.npz", help="... of passages")
    report_parser.set_defaults(run=report)
    run_command(parser, report_parser)


def report(args: argparse.Namespace) -> None:
    import compare_report

    compare_report.write(args)


def named_units(given: list[str] | None, task: str) -> list[str]:
    """Names of units, with those that a pattern stands for.

    >>> named_units(["cmc-no*", "time"], "linking")
    ['cmc-no-skip', 'cmc-no-kl', 'time']
    """
    known = (*MEASURES, *VARIANTS)
    chosen: list[str] = []
    for name in TASKS[task].units if given is None else given:
        found = [unit for unit in known if fnmatch(unit, name)]
        if not found:
            raise SystemExit(f"there is no unit {name!r}: use {', '.join(known)}")
        chosen += [unit for unit in found if unit not in chosen]
    return chosen


def train(args: argparse.Namespace) -> None:
    from compare_run import Run

    clock = Clock(args.minutes)
    others = [name for name in STARTS if name != args.start and (name != "vanilla" or args.vanilla)]
    if args.units is None and args.task == "linking":
        args.units = [*TASKS["linking"].units, *(f"{kind}-from-{start}" for start in others for kind in INITIAL)]
    args.units = named_units(args.units, args.task)
    path = args.out / "results" / "settings.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    if differs := [name for name in SAME if name in known and known[name] != getattr(args, name)]:
        raise SystemExit(f"{args.out} holds a run with another {differs[0]}: use another folder")
    run = Run(args, clock)
    chosen = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
    note(path, **{name: value for name, value in chosen.items() if name != "run"})
    for unit in args.units:
        if run.is_done(unit):
            continue
        if clock.left() < run.expected(unit):
            clock.say(f"no time is left for {unit}: about {run.expected(unit):.0f} s")
            continue
        with clock.step(unit, may_fail=True):
            carry_out(run, unit)
        times = json.loads(path.read_text()).get("times", {})
        note(path, times=times | clock.times)
    clock.say("done", json.dumps(clock.times))


def carry_out(run: Any, unit: str) -> None:
    import compare_times
    import compare_units

    if unit in VARIANTS:
        compare_units.variant(run, unit)
    elif unit.startswith(("time", "curve")):
        measure = compare_times.time if unit.startswith("time") else compare_times.curve
        measure(run, "cpu" if unit.endswith("cpu") else None, unit)
    else:
        getattr(compare_units, unit)(run)


if __name__ == "__main__":
    main()
