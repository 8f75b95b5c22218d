"""`crosscut eval`: measure run files against judgements."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from crosscut.cli.arguments import Verbs, new_parser, words

if TYPE_CHECKING:
    from crosscut.evaluate.runs import Evaluation

ABOUT = """\
Measure TREC run files against relevance judgements. A query that is judged but missing from a run
counts as 0; queries of a run that are not judged are left out. The measures are those of ir-measures,
by the names they have there (https://ir-measur.es).
"""
EXAMPLES = """\
examples:
  crosscut eval faq.run --qrels qrels/test.tsv
  crosscut eval a.run b.run --qrels test.qrels --measures nDCG@10,AP --json
  crosscut search faq.index --queries queries.jsonl --format trec | crosscut eval - --qrels test.qrels
"""


def add_parser(verbs: Verbs) -> None:
    parser = new_parser(verbs, "eval", ABOUT, EXAMPLES, help="measure run files against judgements")
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="TREC run files (also .gz), or - for stdin")
    add("--qrels", required=True, metavar="FILE", help="judgements, in TREC's form or BEIR's")
    add(
        "--measures",
        type=words,
        nargs="+",
        default=[["nDCG@10", "RR@10", "R@100"]],
        metavar="NAME,...",
        help="what to measure (default: nDCG@10,RR@10,R@100)",
    )
    add("--per-query", action="store_true", help="show every query as well as the mean")
    add(
        "--json",
        action="store_true",
        help="print a JSON array with an object {run, queries, missing, measures} for each run",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from crosscut.data import read_qrels, read_run
    from crosscut.evaluate.runs import evaluate_run

    names = list(dict.fromkeys(name for group in args.measures for name in group))
    qrels = read_qrels(args.qrels)
    done: list[tuple[str, Evaluation]] = []
    for path in args.runs:
        evaluation = evaluate_run(read_run(path), qrels, names)
        done.append((path, evaluation))
        if evaluation.missing:
            count, of = len(evaluation.missing), len(qrels)
            print(f"{path}: {count} of {of} judged queries are missing and count as 0", file=sys.stderr)
    if args.json:
        print(json.dumps([_as_object(path, one, args.per_query) for path, one in done], indent=1))
        return 0
    rows = []
    for path, one in done:
        rows += [(f"{path} {query}", values) for query, values in one.per_query.items() if args.per_query]
        rows.append((path, one.mean))
    width = max(len("run"), *(len(label) for label, _ in rows))
    print(f"{'run':<{width}}" + "".join(f"  {name:>8}" for name in names))
    for label, values in rows:
        print(f"{label:<{width}}" + "".join(f"  {values[name]:>{max(8, len(name))}.4f}" for name in names))
    return 0


def _as_object(path: str, one: Evaluation, per_query: bool) -> dict[str, object]:
    made: dict[str, object] = {
        "run": path,
        "queries": len(one.per_query),
        "missing": len(one.missing),
        "measures": one.mean,
    }
    return made | {"per_query": one.per_query} if per_query else made
