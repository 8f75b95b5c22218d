"""`crosscut index`: make items ready to be searched."""

from __future__ import annotations

import argparse
import json
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from crosscut.cli.arguments import COMPARE, ENCODER, ITEMS, SCORER, Verbs, add_scorer_option, at_least, new_parser
from crosscut.cli.output import hint_at_cuts
from crosscut.errors import CrosscutError
from crosscut.types import Item, Query

if TYPE_CHECKING:
    from crosscut.compare import Comparer
    from crosscut.encoders import Encoder
    from crosscut.index.executors import Executor
    from crosscut.index.store import Store
    from crosscut.scorers import Scorer

ABOUT = """\
Make an index of items. Every anchor query is scored against every item now, which makes every later
search better; the encoder adds a vector for each item. Models that are not named are crosscut-tiny,
which comes with crosscut. A build that was stopped continues where it was when the same command is
run again. --add brings more items or anchor queries to a finished index, and scores only what is new.
--compare keeps what a compare model makes of the items too, for pipelines and better searches; it may
also be given later, to the same command.
"""
EXAMPLES = """\
examples:
  crosscut index faq.jsonl --out faq.index
  crosscut index faq.jsonl --out faq.index --scorer cross-encoder/ms-marco-MiniLM-L6-v2
  crosscut index scifact/ --out scifact.index --scorer ./my-model \\
      --encoder sentence-transformers/all-MiniLM-L6-v2 --anchor-queries scifact/ --anchors 200
  crosscut index faq.jsonl --out faq.index --scorer ./my-model --anchor-queries past.txt --dry-run
  crosscut index more.jsonl --out faq.index --add
  crosscut index --out faq.index --add --anchor-queries new-questions.txt
  crosscut index --out faq.index --add --compare ./my-cmc
  crosscut index faq.jsonl --out faq.index --scorer ./my-model --anchor-queries past.txt \\
      --executor ray --address 10.0.0.1:6379
  cat lines.txt | crosscut index - --out lines.index --scorer python:my_module:my_function
"""

NO_ENCODER = "none"

Named: TypeAlias = "tuple[str | None, Comparer | str]"  # a compare model and the name it was given


def add_parser(verbs: Verbs) -> None:
    parser = new_parser(verbs, "index", ABOUT, EXAMPLES, help="make items ready to be searched")
    add = parser.add_argument
    add("items", metavar="ITEMS", nargs="?", help=f"{ITEMS}; only --add can do without")
    add(
        "--entities",
        action="store_true",
        help="hand the items to the models as models of entity linking read them: title [ENT] text",
    )
    add("--out", required=True, metavar="FOLDER", help="the folder to keep the index in")
    add("--scorer", metavar="MODEL", help=f"the cross-encoder: {SCORER} (default: crosscut-tiny)")
    add_scorer_option(parser)
    add("--encoder", metavar="MODEL", help=f"a bi-encoder: {ENCODER}, or none (default: crosscut-tiny)")
    add(
        "--compare",
        action="append",
        default=[],
        metavar="MODEL",
        help=f"a compare model, and more with more of these: {COMPARE} (default: none; its name is its kind)",
    )
    add(
        "--remove-compare",
        action="append",
        default=[],
        metavar="NAME",
        help="with --add: take a compare model out of the index",
    )
    add(
        "--signal",
        type=at_least(0),
        metavar="N",
        help="how many of a query's nearest items the default search has the first --compare model compare, to go "
        "by its scores too; 0: none (default: 16384, or 1024 on a CPU; 0 for models of a vector per token)",
    )
    add(
        "--anchor-queries",
        metavar="FILE",
        help="queries like those that will be asked: a file or folder as for ITEMS, or - (default: none)",
    )
    add("--anchors", type=at_least(0), metavar="N", help="use the first N of the anchor queries (default: all)")
    add(
        "--anchor-items",
        type=at_least(0),
        metavar="N",
        help="score N items against every item, for itemcur and fixeditem (default: 0)",
    )
    add(
        "--lexical",
        choices=["bm25", "tfidf", "none"],
        help="how words are weighted (default: bm25)",
    )
    add(
        "--store",
        choices=["float16", "int8"],
        help="how scores are stored: int8 takes half of the bytes on disk (default: float16)",
    )
    add(
        "--overwrite",
        action="store_true",
        help="replace the index that is there; a build of the same input and models that was stopped is continued "
        "all the same",
    )
    add(
        "--add",
        action="store_true",
        help="add items and anchor queries to the finished index in FOLDER; those that it has already are passed "
        "over, so the same command continues what was stopped. The models are those of the index",
    )
    add(
        "--dry-run",
        action="store_true",
        help="measure a few batches, print what it would take, and write nothing",
    )
    add(
        "--seed",
        type=at_least(0),
        metavar="S",
        help="seed that draws the anchor items (default: 0)",
    )
    add(
        "--executor",
        choices=["local", "processes", "ray"],
        default="local",
        help="where pairs are scored: in this process, in one process per GPU of this machine (or, without a GPU, "
        "in some that share its cores), or on a Ray cluster (default: %(default)s)",
    )
    add(
        "--workers",
        type=at_least(1),
        metavar="N",
        help="of `processes` or `ray` (default: one per GPU)",
    )
    add("--address", metavar="HOST:PORT", help="the Ray cluster (default: RAY_ADDRESS, or one on this machine)")
    add("--json", action="store_true", help="print what was built as a JSON object")
    parser.set_defaults(
        run=run, when_stopped="stopped; finished work is kept, and the same command continues from there"
    )


def run(args: argparse.Namespace) -> int:
    from crosscut.index.store import Store

    _check_flags(args)
    executor = _executor(args)
    start = perf_counter()
    items, queries = _items(args.items, args.entities), _anchor_queries(args.anchor_queries, args.anchors)
    store = Store.open(args.out) if args.add else None
    if store:
        items, queries = _new_ones(store, items, queries)
    scorer, encoder = _models(args, store)
    comparers = _comparers(args.compare)
    if args.dry_run:
        from crosscut.cli.dry_run import dry_run

        return dry_run(args, store, items, queries, scorer, encoder, comparers, executor)
    if store:
        _add(args, store, items, queries, scorer, encoder, comparers, executor)
    else:
        _build(args, items, queries, scorer, encoder, comparers, executor)
    manifest = Store.open(args.out).manifest
    contents = manifest.contents
    built = {
        "folder": args.out,
        "items": contents.item_count - len(manifest.deleted),
        "anchor_queries": contents.anchor_count,
        "anchor_items": contents.item_anchors.count if contents.item_anchors else 0,
        "calls": scorer.calls,
        "truncated": getattr(scorer, "truncated", 0),
        "seconds": round(perf_counter() - start, 3),
        "scorer": scorer.name,
        "encoder": encoder.name if encoder else None,
        "compare": {name: one.model.name for name, one in manifest.compare.items()},
    }
    if store:
        built |= {"added_items": len(items), "added_anchor_queries": len(queries)}
    if args.json:
        print(json.dumps(built))
    else:
        compare = [name if one.complete else f"{name} (not finished)" for name, one in manifest.compare.items()]
        added = f"{len(items)} items and {len(queries)} anchor queries added, now " if store else ""
        print(
            f"{args.out}: {added}{built['items']} items, {built['anchor_queries']} anchor queries; "
            f"{scorer.calls} calls in {built['seconds']:.1f} s"
            + (f"; compare models: {', '.join(compare)}" if compare else "")
        )
    hint_at_cuts(scorer)
    for hint in _hints(built):
        print(f"hint: {hint}", file=sys.stderr)
    return 0


def _check_flags(args: argparse.Namespace) -> None:
    if args.items == args.anchor_queries == "-":
        raise CrosscutError("items and anchor queries cannot both come from stdin: put one of them in a file")
    if not args.add and args.items is None:
        raise CrosscutError("no items are given: name a file or folder of them, or - for stdin")
    if args.add and args.items is args.anchor_queries is None and not (args.compare or args.remove_compare):
        raise CrosscutError(
            "nothing is given to add: name a file of items, --anchor-queries FILE, or --compare MODEL"
        )
    if args.remove_compare and (args.dry_run or not args.add):
        raise CrosscutError("--remove-compare goes with --add, and not with --dry-run")
    if args.signal is not None and not args.compare:
        raise CrosscutError("--signal says how a compare model is used: name one with --compare MODEL")
    for flag in ("overwrite", "store", "anchor_items", "lexical", "seed"):
        given = getattr(args, flag)
        if args.add and given is not None and given is not False:  # 0 may be given too
            raise CrosscutError(
                f"--add leaves the index as it was built: it does not go with --{flag.replace('_', '-')}"
            )


def _executor(args: argparse.Namespace) -> Executor:
    from crosscut.index.executors import as_executor

    options = {"workers": args.workers, "address": args.address}
    return as_executor(args.executor, **{name: value for name, value in options.items() if value is not None})


def _items(path: str | None, entities: bool) -> list[Item]:
    from crosscut.data import as_entity, read_items

    items = [] if path is None else read_items(path)
    return [as_entity(item) for item in items] if entities else items


def _models(args: argparse.Namespace, store: Store | None) -> tuple[Scorer, Encoder | None]:
    """The models that the flags name, or else those of the index that is added to."""
    from crosscut.cli.models import index_scorer, load_encoder, load_scorer, stored_name

    if store is None:
        scorer = load_scorer(args.scorer, args.scorer_option)
        return scorer, None if args.encoder == NO_ENCODER else load_encoder(args.encoder)
    scorer = index_scorer(store.manifest, args.scorer, args.scorer_option)
    encoder = args.encoder or stored_name("encoder", store.manifest)
    return scorer, None if encoder in (None, NO_ENCODER) else load_encoder(encoder)


def _comparers(given: list[str]) -> list[Named]:
    from crosscut.cli.models import load_comparer

    return [load_comparer(text) for text in given]


def _build(
    args: argparse.Namespace,
    items: list[Item],
    queries: list[Query],
    scorer: Scorer,
    encoder: Encoder | None,
    comparers: list[Named],
    executor: Executor,
) -> None:
    from crosscut.index.index import Index

    Index.build(
        items,
        scorer=scorer,
        anchor_queries=queries,
        encoder=False if encoder is None else encoder,
        compare=comparers,
        signal=args.signal,
        path=args.out,
        lexical=None if args.lexical == "none" else args.lexical or "bm25",
        anchor_items=args.anchor_items or 0,
        overwrite=args.overwrite,
        progress=True,
        seed=args.seed or 0,
        store=args.store or "float16",
        executor=executor,
    )


def _new_ones(store: Store, items: list[Item], queries: list[Query]) -> tuple[list[Item], list[Query]]:
    from crosscut.index.inputs import only_new

    there = [item for item, deleted in zip(store.items(), store.deleted(), strict=True) if not deleted]
    return only_new("item", items, there), only_new("anchor query", queries, store.anchor_queries())


def _add(
    args: argparse.Namespace,
    store: Store,
    items: list[Item],
    queries: list[Query],
    scorer: Scorer,
    encoder: Encoder | None,
    comparers: list[Named],
    executor: Executor,
) -> None:
    from crosscut.index.change import add_anchor_queries, add_items
    from crosscut.index.compared import remove_compare
    from crosscut.index.index import Index
    from crosscut.index.models import Models, add_comparers, check_added, given_comparers

    given, removed = given_comparers(comparers), args.remove_compare or []
    check_added({n: one for n, one in store.manifest.compare.items() if n not in removed}, given, args.signal)
    if removed:
        remove_compare(store, *removed)
    known = add_comparers(store, given, args.signal, progress=True)
    if items:
        known = Models(store, comparers=known).comparers()
        add_items(store, items, scorer=scorer, encoder=encoder, comparers=known, executor=executor, progress=True)
    if queries:
        add_anchor_queries(store, queries, scorer=scorer, encoder=encoder, executor=executor, progress=True)
    Index(store, scorer, encoder, known)  # learns anew what searches go by, so that no search has to


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


def _hints(built: dict[str, Any]) -> list[str]:
    hints = []
    if not built["anchor_queries"]:
        hints.append(
            "no anchor queries: searches go by words and vectors alone; "
            "add some with --anchor-queries to find more"
        )
    if not built["encoder"]:
        hints.append(
            "no encoder: items that share no word with a query are hard to find; leave --encoder out to use the "
            "one that comes with crosscut"
        )
    return hints
