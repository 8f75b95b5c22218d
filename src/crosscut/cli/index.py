"""`crosscut index`: make items ready to be searched."""

from __future__ import annotations

import argparse
import json
import sys
from time import perf_counter

from crosscut.cli.arguments import ITEMS, MODEL, Verbs, at_least, new_parser
from crosscut.errors import CrosscutError
from crosscut.types import Query

ABOUT = """\
Make an index of items. Every anchor query is scored against every item now, which makes every later
search better; an encoder adds a vector for each item. Both are optional. A build that was stopped
continues where it was when the same command is run again.
"""
EXAMPLES = """\
examples:
  crosscut index faq.jsonl --out faq.index --scorer cross-encoder/ms-marco-MiniLM-L6-v2
  crosscut index scifact/ --out scifact.index --scorer ./my-model \\
      --encoder sentence-transformers/all-MiniLM-L6-v2 --anchor-queries scifact/ --anchors 200
  cat lines.txt | crosscut index - --out lines.index --scorer python:my_module:my_function
"""


def add_parser(verbs: Verbs) -> None:
    parser = new_parser(verbs, "index", ABOUT, EXAMPLES, help="make items ready to be searched")
    add = parser.add_argument
    add("items", metavar="ITEMS", help=ITEMS)
    add("--out", required=True, metavar="FOLDER", help="the folder to keep the index in")
    add("--scorer", metavar="MODEL", help=f"the cross-encoder: {MODEL}; `overlap` counts words in common")
    add("--encoder", metavar="MODEL", help=f"a bi-encoder: {MODEL} (default: none)")
    add(
        "--anchor-queries",
        metavar="FILE",
        help="queries like those that will be asked: a file or folder as for ITEMS, or - (default: none)",
    )
    add("--anchors", type=at_least(0), metavar="N", help="use the first N of the anchor queries (default: all)")
    add(
        "--anchor-items",
        type=at_least(0),
        default=0,
        metavar="N",
        help="score N items against every item, for itemcur and fixeditem (default: %(default)s)",
    )
    add(
        "--lexical",
        choices=["bm25", "tfidf", "none"],
        default="bm25",
        help="how words are weighted (default: %(default)s)",
    )
    add("--overwrite", action="store_true", help="replace the index that is there (default: continue it)")
    add(
        "--seed",
        type=at_least(0),
        default=0,
        metavar="S",
        help="seed that draws the anchor items (default: %(default)s)",
    )
    add("--json", action="store_true", help="print what was built as a JSON object")
    parser.set_defaults(
        run=run, when_stopped="stopped; finished work is kept, and the same command continues from there"
    )


def run(args: argparse.Namespace) -> int:
    from crosscut.cli.models import load_encoder, load_scorer
    from crosscut.data import read_items
    from crosscut.index.index import Index

    if args.items == args.anchor_queries == "-":
        raise CrosscutError("items and anchor queries cannot both come from stdin: put one of them in a file")
    start = perf_counter()
    items = read_items(args.items)
    queries = _anchor_queries(args.anchor_queries, args.anchors)
    scorer = load_scorer(args.scorer)
    encoder = None if args.encoder is None else load_encoder(args.encoder)
    Index.build(
        items,
        scorer=scorer,
        anchor_queries=queries,
        encoder=encoder,
        path=args.out,
        lexical=None if args.lexical == "none" else args.lexical,
        anchor_items=args.anchor_items,
        overwrite=args.overwrite,
        progress=True,
        seed=args.seed,
    )
    built = {
        "folder": args.out,
        "items": len(items),
        "anchor_queries": len(queries),
        "anchor_items": args.anchor_items,
        "calls": scorer.calls,
        "seconds": round(perf_counter() - start, 3),
        "scorer": scorer.name,
        "encoder": encoder.name if encoder else None,
    }
    if args.json:
        print(json.dumps(built))
    else:
        print(
            f"{args.out}: {len(items)} items, {len(queries)} anchor queries; "
            f"{scorer.calls} calls in {built['seconds']:.1f} s"
        )
    for hint in _hints(built):
        print(f"hint: {hint}", file=sys.stderr)
    return 0


def _anchor_queries(path: str | None, count: int | None) -> list[Query]:
    from crosscut.data import read_queries

    if path is None:
        if count:
            raise CrosscutError("--anchors says how many of the anchor queries to use: add --anchor-queries FILE")
        return []
    queries = read_queries(path)
    if count is not None and count > len(queries):
        raise CrosscutError(f"{path} has {len(queries)} queries, but --anchors asks for {count}")
    return queries[:count]


def _hints(built: dict[str, object]) -> list[str]:
    hints = []
    if not built["anchor_queries"]:
        hints.append(
            "no anchor queries: searches go by words and vectors alone; "
            "add some with --anchor-queries to find more"
        )
    if not built["encoder"]:
        hints.append(
            "no encoder: items that share no word with a query are hard to find; "
            "add one with --encoder sentence-transformers/all-MiniLM-L6-v2"
        )
    return hints
