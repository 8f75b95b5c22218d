"""`crosscut train compare`: its flags."""

from __future__ import annotations

from typing import Any

from crosscut.cli.arguments import Verbs, at_least
from crosscut.cli.train import finish, model_parser

COMPARE = {
    "layers": "cmc: layers over the vectors (default: 2)",
    "heads": "cmc: heads of attention (default: as the base has)",
    "codes": "poly: vectors of a query (default: 16)",
    "dim": "sum-of-max: dimensions of a token's vector (default: as the base has)",
    "lower": "deformer: layers that read a text alone (default: three quarters)",
    "upper": "mix: layers that candidates look into (default: 2)",
    "contexts": "mix: vectors of an item (default: 1)",
}


def add_compare(models: Verbs) -> None:
    parser = model_parser(
        models,
        "compare",
        """\
Train a compare model: items become vectors once, and all candidates of a query are scored in one pass. It learns
to put the item that answers a query before others that a first stage, a bi-encoder, ranks high.""",
        """\
examples:
  crosscut train compare scifact/ --model cmc --base ./my-encoder --out my-cmc
  crosscut train compare wordsense/ --model cmc --base ./my-encoder --out linker --skip mean --two-encoders \\
      --batch-size 4 --learning-rate 1e-5 --epochs 5
  crosscut train compare dialogues/ --model poly --base sentence-transformers/all-MiniLM-L6-v2 --out replies \\
      --negatives random --candidates 8
""",
        help="CMC, or another model that scores all candidates of a query at once",
    )
    add = parser.add_argument
    names = "cmc, poly, sum-of-max, deformer, mix or bi"
    add("--model", default="cmc", metavar="NAME", help=f"{names} (default: %(default)s)")
    add("--two-encoders", action="store_true", help="one for queries, one for items (default: one for both)")
    text = "what is kept of items stays as the base makes it: a fraction of the time, as only queries are read"
    add("--fixed-items", action="store_true", help=text)
    add("--first-stage", metavar="MODEL", help="the bi-encoder that finds candidates (default: the base)")
    text = "where the other candidates come from: first-stage (default), or random, for data without a ranking"
    add("--negatives", metavar="NAME", help=text)
    text = "how many a query has in training, the item that answers it among them (default: 64)"
    add("--candidates", type=at_least(2), metavar="N", help=text)
    text = "draw them in every epoch from the first N of the first stage, by the softmax of its scores "
    add("--depth", type=at_least(1), metavar="N", help=f"{text}(default: 1024)")
    text = "the share of them that is always its first instead (default: 0.5)"
    add("--top-share", type=float, metavar="X", help=text)
    text = (
        "stay near the first stage: paper, KL(p‖r) of the model's p and its r (default), reverse, KL(r‖p), or none"
    )
    add("--regularise", metavar="NAME", help=text)
    text = "the weight of that, λ2; the cross-entropy has 1 − λ2 (default: 0.5)"
    add("--regularise-weight", type=float, metavar="X", help=text)
    add("--scale", type=float, metavar="X", help="of the first stage's cosines (default: 20)")
    text = "learning rate of the layers that the base does not have (default: 10 times --learning-rate)"
    add("--layer-rate", type=float, metavar="X", help=text)
    text = "cut a text to N tokens (default: what the model can read)"
    add("--max-length", type=at_least(1), metavar="N", help=text)
    own = parser.add_argument_group("settings of a kind of model")
    for name, text in COMPARE.items():
        own.add_argument(f"--{name}", type=at_least(1), metavar="N", help=text)
    own.add_argument("--skip", metavar="NAME", help="cmc: the extra skip connection: add (default), mean or none")
    own.add_argument(
        "--marks", action="store_true", default=None, help="cmc: a learned mark of query and candidate"
    )
    finish(parser, _compare)


def _compare(args: dict[str, Any]) -> dict[str, Any]:
    from crosscut.train import train_compare

    own = {name: args.pop(name) for name in (*COMPARE, "skip", "marks") if name in args}
    return train_compare(args.pop("data"), model_settings=own, **args)
