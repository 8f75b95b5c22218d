"""`crosscut rerank`: score a few items, without an index."""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import TYPE_CHECKING

from crosscut.cli.arguments import ITEMS, SCORER, Verbs, add_scorer_option, at_least, new_parser
from crosscut.cli.output import add_output_flags, check_text, hint_at_cuts, write_results
from crosscut.types import Hit, Item, Query, SearchResult, Seconds

if TYPE_CHECKING:
    from crosscut.scorers import Scorer

ABOUT = """\
Score every item of a file for one query and show the best first. There is no index: each item costs
one call of the scorer. For more than a few hundred items, build an index and search it.
"""
EXAMPLES = """\
examples:
  crosscut rerank "does my policy cover floods?" --items faq.jsonl
  crosscut rerank "does my policy cover floods?" --items faq.jsonl --scorer cross-encoder/ms-marco-MiniLM-L6-v2
  cat lines.txt | crosscut rerank "floods" --items - -k 3 --json
"""
BATCH = 256


def add_parser(verbs: Verbs) -> None:
    parser = new_parser(verbs, "rerank", ABOUT, EXAMPLES, help="score the items of a file, without an index")
    add = parser.add_argument
    add("query", metavar="QUERY", help="what to ask")
    add("--items", required=True, metavar="FILE", help=ITEMS)
    add("--scorer", metavar="MODEL", help=f"the cross-encoder: {SCORER} (default: crosscut-tiny)")
    add_scorer_option(parser)
    add("-k", type=at_least(1), default=10, metavar="K", help="how many to show (default: %(default)s)")
    add_output_flags(parser)
    parser.set_defaults(run=run, trace=False)


def run(args: argparse.Namespace) -> int:
    from crosscut.cli.models import load_scorer
    from crosscut.data import read_items

    query = Query("1", check_text(args.query))
    items = read_items(args.items)
    scorer = load_scorer(args.scorer, args.scorer_option)
    start = perf_counter()
    scores = _score(scorer, query.text, items)
    seconds = Seconds(perf_counter() - start, 0.0, 0.0)
    # Python's sort is stable: ties keep the order of the file.
    order = sorted(range(len(items)), key=lambda position: -scores[position])[: args.k]
    hits = tuple(Hit(rank, items[p].id, scores[p], items[p].content) for rank, p in enumerate(order, start=1))
    result = SearchResult(query.text, hits, calls=len(items), rounds=1, seconds=seconds)
    write_results([query], [result], args, single=True)
    hint_at_cuts(scorer)
    return 0


def _score(scorer: Scorer, query: str, items: list[Item]) -> list[float]:
    from tqdm import tqdm

    scores: list[float] = []
    with tqdm(total=len(items), unit=" items", disable=None) as bar:
        for begin in range(0, len(items), BATCH):
            batch = items[begin : begin + BATCH]
            scores += scorer.score([(query, item.content) for item in batch]).tolist()
            bar.update(len(batch))
    return scores
