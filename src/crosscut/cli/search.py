"""`crosscut search`: ask an index."""

from __future__ import annotations

import argparse
from pathlib import Path

from crosscut.cli.arguments import (
    COMPARE,
    ENCODER,
    SCORER,
    Verbs,
    add_scorer_option,
    add_search_settings,
    at_least,
    new_parser,
)
from crosscut.cli.output import add_output_flags, check_text, hint_at_cuts, write_results
from crosscut.errors import CrosscutError
from crosscut.types import Query

ABOUT = """\
Find the items that the scorer ranks first, as far as a budget of calls per query can tell. Every score
shown is the model's own, never an estimate. Ask one query, or a file of them with --queries.

A --pipeline says instead which stages to go through, and how many items each hands on. NAME:N is one of
dense, lexical, rrf (the best N of all items by encoder, by words, by both), a compare model of the index
by its name (the best N of what came in), cross (the scorer ranks the best N of what came in), crosscut
(the search without --pipeline, with N calls, among what came in). Scores are those of the last stage.
"""
EXAMPLES = """\
examples:
  crosscut search faq.index "does my policy cover floods?"
  crosscut search faq.index "does my policy cover floods?" -k 5 --budget 50 --json
  crosscut search faq.index --queries queries.jsonl -k 100 --format trec --out faq.run
  crosscut search faq.index "does my policy cover floods?" --pipeline "dense:512 > cmc:64 > cross:16" --trace
"""


def add_parser(verbs: Verbs) -> None:
    parser = new_parser(verbs, "search", ABOUT, EXAMPLES, help="find what the scorer ranks first")
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="the index")
    add(
        "query", metavar="QUERY", nargs="?", help="what to ask; - reads queries from stdin, one a line or as jsonl"
    )
    add("--queries", metavar="FILE", help="a file of queries (.jsonl, .csv, .tsv, .txt), a BEIR folder, or -")
    add("-k", type=at_least(1), default=10, metavar="K", help="how many hits (default: %(default)s)")
    add(
        "--budget",
        type=at_least(1),
        metavar="B",
        help="model calls that one query may cost (default: 200)",
    )
    add(
        "--method",
        metavar="NAME",
        help="exact, rerank, anncur, adacur, itemcur, fixeditem or crosscut (default: crosscut)",
    )
    add(
        "--pipeline",
        metavar="STAGES",
        help='stages instead of a method and a budget, such as "dense:512 > cmc:64 > cross:16" (default: none)',
    )
    add_search_settings(parser)
    add("--selection", metavar="NAME", help="how later rounds pick items: topk, softmax or random (default: topk)")
    add(
        "--anchor-share",
        type=float,
        metavar="X",
        help="anncur, itemcur, fixeditem: the part of the budget for anchor items (default: 0.5)",
    )
    add(
        "--exclude",
        nargs="+",
        action="extend",
        default=[],
        metavar="ID",
        help="items to leave out (default: none; after QUERY)",
    )
    add(
        "--only",
        nargs="+",
        action="extend",
        metavar="ID",
        help="search among these items only; a file is read as one id a line (default: all; after QUERY)",
    )
    add("--seed", type=at_least(0), default=0, metavar="S", help="seed of random draws (default: %(default)s)")
    add("--trace", action="store_true", help="show what each round, and each stage of a pipeline, did")
    add("--scorer", metavar="MODEL", help=f"{SCORER} (default: the one that the index was built with)")
    add_scorer_option(parser)
    add("--encoder", metavar="MODEL", help=f"{ENCODER} (default: the one that the index was built with)")
    add(
        "--compare",
        action="append",
        default=[],
        metavar="MODEL",
        help=f"{COMPARE} (default: those that the index was built with)",
    )
    add(
        "--other-models",
        action="store_true",
        help="accept models other than those of the index: its stored scores then come from another model",
    )
    add_output_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from crosscut.cli.models import open_index
    from crosscut.search.pipeline import Pipeline

    queries, single = _queries(args.query, args.queries)
    models = args.scorer, args.encoder, args.other_models, args.scorer_option, args.compare
    needs_scorer = args.pipeline is None or Pipeline.parse(args.pipeline).needs_scorer
    index = open_index(args.folder, *models, needs_scorer=needs_scorer)
    results = index.search(
        [query.text for query in queries],
        k=args.k,
        budget=args.budget,
        method=args.method,
        pipeline=args.pipeline,
        exclude=args.exclude,
        only=None if args.only is None else _ids(args.only),
        seed=args.seed,
        trace=args.trace,
        rounds=args.rounds,
        first=args.first,
        selection=args.selection,
        anchor_share=args.anchor_share,
    )
    write_results(queries, results, args, single)
    if any(result.calls for result in results):
        hint_at_cuts(index.scorer)
    return 0


def _queries(text: str | None, path: str | None) -> tuple[list[Query], bool]:
    """The queries, and whether it is a single one from the command line."""
    from crosscut.data import read_queries

    if (text is None) == (path is None):
        raise CrosscutError('give either one query, "...", or a file of them with --queries')
    if path is None and text is not None and text != "-":
        return [Query("1", check_text(text))], True
    queries = read_queries(path or "-")
    for query in queries:
        if not query.text.strip():
            raise CrosscutError(f"query {query.id!r} is empty: give it some words")
    return queries, False


def _ids(values: list[str]) -> list[str]:
    from crosscut.data.lines import read_lines

    ids: list[str] = []
    for value in values:
        if Path(value).is_file():
            ids += [line.strip() for _, line in read_lines(value) if line.strip()]
        else:
            ids.append(value)
    return ids
