"""Score a matrix for `crosscut bench matrix`: every drawn query against every item, with the encoder's vectors.

    python benchmarks/make_matrix.py MODEL --items PATH ... --queries PATH --draw 600 --anchors 400 --out FILE

The first `--anchors` of the queries drawn are the anchor queries. `--like OLD.npz` takes the anchor queries
(scores and vectors) from a matrix of the same items, and draws test queries that it does not have. `--mentions
WORLD [...]` says that the queries are BLINK mentions, of which those of these worlds are drawn: the query is the
mention, a colon, and the mention between twenty words of context on each side. `--texts FOLDER` writes items and
queries as a BEIR folder, for `bench matrix --data`. A GPU is advisable: ten million pairs are common.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from tqdm import tqdm

from crosscut.data import read_blink, read_items, read_queries, write_beir
from crosscut.encoders import as_encoder
from crosscut.scorers import as_scorer
from crosscut.types import Query


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--items", nargs="+", required=True)
    parser.add_argument("--queries", required=True)
    parser.add_argument("--mentions", nargs="*", metavar="WORLD")
    parser.add_argument("--draw", type=int, required=True, metavar="N", help="queries to draw")
    parser.add_argument("--anchors", type=int, default=0)
    parser.add_argument("--like", type=Path, metavar="OLD")
    parser.add_argument("--encoder")
    parser.add_argument("--query-tokens", type=int, default=48)
    parser.add_argument("--item-tokens", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--texts", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    old = dict(np.load(args.like)) if args.like else {}
    items = [item for path in args.items for item in read_items(path)]
    taken = set(old.get("query_ids", np.array([])).tolist())
    queries = [query for query in all_queries(args) if query.id not in taken]
    drawn = np.random.default_rng(args.seed).choice(len(queries), args.draw, replace=False)
    queries = [queries[at] for at in (np.sort(drawn) if args.like else drawn)]
    if args.texts:
        write_beir(args.texts, items, queries, {})
    scorer = as_scorer(args.model, query_tokens=args.query_tokens, item_tokens=args.item_tokens)
    rows = [
        scorer.score([(query.text, item.content) for item in items]).astype(np.float16) for query in tqdm(queries)
    ]
    made = {
        "scores": np.stack(rows),
        "query_ids": np.array([query.id for query in queries]),
    }
    if args.encoder:
        encoder = as_encoder(args.encoder)
        made["query_embeddings"] = encoder.encode([q.text for q in queries], role="query").astype(np.float16)
    if old:
        anchors = int(old["anchors"])
        made = {name: np.concatenate([old[name][:anchors], values]) for name, values in made.items()}
        made |= {"anchors": np.array(anchors)} | {name: old[name] for name in ("item_ids", "item_embeddings")}
    else:
        made |= {"anchors": np.array(args.anchors), "item_ids": np.array([item.id for item in items])}
        if args.encoder:
            vectors = encoder.encode([item.content for item in items], role="item")
            made["item_embeddings"] = vectors.astype(np.float16)
    np.savez(args.out, **made)


def all_queries(args: argparse.Namespace) -> list[Query]:
    if args.mentions is None:
        return read_queries(args.queries)
    return [
        Query(m.id, f"{m.mention}: {tail(m.context_left)} {m.mention} {' '.join(m.context_right.split()[:20])}")
        for m in read_blink(args.queries)
        if m.world in args.mentions
    ]


def tail(text: str) -> str:
    return " ".join(text.split()[-20:])


if __name__ == "__main__":
    main()
