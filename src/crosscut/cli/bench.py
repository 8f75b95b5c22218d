"""`crosscut bench`: methods compared at equal budgets."""

from __future__ import annotations

import argparse
import json

from crosscut.cli.arguments import Verbs, add_search_settings, at_least, new_parser, numbers, words

ABOUT = "Compare search methods at equal budgets of model calls."
EXAMPLES = """\
examples:
  crosscut bench matrix scifact.npz
  crosscut bench matrix --help
"""
MATRIX_ABOUT = """\
Compare search methods on a file of scores, with no model in the loop: how much of the true top k does
each find with the same number of calls? The file is an .npz with `scores` (queries x items) and
`anchors` (so many first rows are anchor queries, the others test queries); optional are
item_embeddings, query_embeddings, lexical_scores, item_ids and query_ids, and compare_scores (queries x
items, of a compare model), which the default then goes by too, and which --first compare ranks by.
Figures are means over the test queries; the overhead is the time per query beside scoring.
"""
MATRIX_EXAMPLES = """\
examples:
  crosscut bench matrix scifact.npz
  crosscut bench matrix scifact.npz --methods rerank,crosscut --budgets 50,100 --k 10 --anchors 20
  crosscut bench matrix scifact.npz --data scifact/ --seed 0,1,2 --json > rows.json
"""


def add_parser(verbs: Verbs) -> None:
    parser = new_parser(verbs, "bench", ABOUT, EXAMPLES, help="compare methods at equal budgets")
    _add_matrix(parser.add_subparsers(metavar="BENCH", required=True))


def _add_matrix(benches: Verbs) -> None:
    parser = new_parser(benches, "matrix", MATRIX_ABOUT, MATRIX_EXAMPLES, help="on a file of scores")
    add = parser.add_argument
    add("file", metavar="FILE.npz", help="the score matrix")
    add(
        "--methods",
        type=words,
        default="rerank,anncur,adacur,crosscut",
        metavar="NAME,...",
        help="of exact, rerank, anncur, adacur, itemcur, fixeditem, crosscut (default: %(default)s)",
    )
    add(
        "--budgets",
        type=numbers(1),
        default="100,200,500",
        metavar="B,...",
        help="calls per query (default: %(default)s)",
    )
    add(
        "--k",
        type=numbers(1),
        default="1,10,50,100",
        metavar="K,...",
        help="how many of the true best to look for (default: %(default)s)",
    )
    add("--anchors", type=at_least(0), metavar="N", help="use the first N anchor queries (default: all)")
    add_search_settings(parser)
    add(
        "--data",
        metavar="FOLDER",
        help="a BEIR folder, whose texts are joined by id (default: none, so no words to go by "
        "but the file's lexical_scores)",
    )
    add(
        "--seed",
        type=numbers(0),
        default="0",
        metavar="S,...",
        help="seeds of random draws; figures are means over them (default: %(default)s)",
    )
    add(
        "--store",
        choices=["float16", "int8"],
        help="round the anchor scores as an index that keeps them so (default: take them as they are)",
    )
    add(
        "--no-signal",
        dest="signal",
        action="store_false",
        help="let the default not go by compare_scores (default: it does, where there are any)",
    )
    add("--json", action="store_true", help="print a JSON array of rows instead of a table")
    parser.set_defaults(run=run_matrix)


def run_matrix(args: argparse.Namespace) -> int:
    from crosscut.evaluate.matrix import Matrix, bench_matrix

    rows = bench_matrix(
        Matrix.load(args.file),
        args.methods,
        args.budgets,
        args.k,
        anchors=args.anchors,
        data=args.data,
        seeds=args.seed,
        store=args.store,
        signal=args.signal,
        progress=True,
        rounds=args.rounds,
        first=args.first,
    )
    if args.json:
        print(json.dumps([vars(row) for row in rows], indent=1))
        return 0
    print(f"{'method':<10} {'anchors':>7} {'budget':>7} {'k':>5} {'recall %':>9} {'calls':>8} {'overhead ms':>12}")
    for row in rows:
        print(
            f"{row.method:<10} {row.anchors:>7} {row.budget:>7} {row.k:>5} {100 * row.recall:>9.1f} "
            f"{row.calls:>8.1f} {row.overhead_ms:>12.1f}"
        )
    return 0
