"""`crosscut train`: make a model from queries and the items that answer them."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from crosscut.cli.arguments import Verbs, add_scorer_option, at_least, new_parser

ABOUT = """\
Train a model on queries and the items that answer them. The result is an ordinary Hugging Face folder, the
best of the checkpoints on queries that were set apart. A run that was stopped continues when the same command
is run again. Several GPUs: torchrun --nproc-per-node 4 -m crosscut.cli train ...
"""
EXAMPLES = """\
examples:
  crosscut train cross-encoder scifact/ --base microsoft/MiniLM-L12-H384-uncased --out my-model
  crosscut train cross-encoder zeshel/ --base google-bert/bert-base-uncased --out linker --head emb \\
      --negatives encoder:./my-encoder --negative-count 63
  crosscut train encoder scifact/ --base sentence-transformers/all-MiniLM-L6-v2 --out my-encoder
  crosscut train compare scifact/ --model cmc --base ./my-encoder --out my-cmc
  crosscut train distil scifact/ --teacher ./my-model --base ./my-encoder --out my-student
"""
DATA = (
    "a BEIR folder, a ZESHEL folder, one with entities/WORLD.jsonl and, in BLINK's form, mentions/SPLIT.jsonl, "
    "one with SPLIT.jsonl (a context and a reply on each line), or one file of mentions (see --items)"
)
BASE = "the model to begin with: a name on the Hugging Face hub, or a folder"
HELP = {
    "epochs": "passes over the training queries",
    "steps": "how many steps to train, instead of --epochs",
    "batch_size": "queries in a batch, on each device (texts, for --loss vectors)",
    "accumulate": "batches in a step",
    "learning_rate": "the highest learning rate",
    "warmup": "the share of the steps in which the learning rate rises",
    "weight_decay": "of AdamW",
    "seed": "of everything that is drawn",
    "eval_every": "steps between evaluations, each with a checkpoint (default: five evaluations in an epoch)",
    "precision": "auto, bf16 or fp32; auto is bf16 on a GPU that has it; many new CPUs are faster with bf16, too",
    "device": "cpu, to leave a GPU alone",
    "compile": "run the model through torch.compile",
    "freeze_words": "leave the vectors of words as they are",
    "split": "the queries to train on",
    "dev": "the split to evaluate on (default: dev, valid, validation or val; or a tenth of those to train on)",
    "dev_queries": "evaluate on so many of them at most",
    "items": "the entities, where DATA is a file of mentions",
    "window": "words of context that a mention keeps on each side",
}


def add_parser(verbs: Verbs) -> None:
    parser = new_parser(verbs, "train", ABOUT, EXAMPLES, help="train a model")
    from crosscut.cli.train_compare import add_compare

    models = parser.add_subparsers(metavar="WHAT", required=True)
    _add_cross_encoder(models)
    _add_encoder(models)
    add_compare(models)
    _add_distil(models)


def _add_cross_encoder(models: Verbs) -> None:
    parser = model_parser(
        models,
        "cross-encoder",
        "Train a cross-encoder: cross-entropy over one item that answers the query and some that do not.",
        """\
examples:
  crosscut train cross-encoder scifact/ --base microsoft/MiniLM-L12-H384-uncased --out my-model \\
      --negatives bm25,random --item-tokens 220 --epochs 3
  crosscut train cross-encoder zeshel/ --base google-bert/bert-base-uncased --out linker --head emb --dev val \\
      --negatives encoder:./my-encoder --negative-count 63 --depth 63 --learning-rate 1e-5 --epochs 4
""",
        help="a model that reads query and item together",
    )
    add = parser.add_argument
    add("--head", default="cls", metavar="NAME", help="cls, or emb: two marked vectors (default: %(default)s)")
    add_negatives(parser, "bm25,random", 15)
    add_limits(parser)
    finish(parser, _cross_encoder)


def _cross_encoder(args: dict[str, Any]) -> dict[str, Any]:
    from crosscut.train import train_cross_encoder

    return train_cross_encoder(args.pop("data"), **args)


def _add_encoder(models: Verbs) -> None:
    parser = model_parser(
        models,
        "encoder",
        "Train a bi-encoder: each query finds its item among all items of the batch, hard ones included.",
        """\
examples:
  crosscut train encoder scifact/ --base sentence-transformers/all-MiniLM-L6-v2 --out my-encoder
  crosscut train encoder zeshel/ --base google-bert/bert-base-uncased --out linker --dev val --epochs 4 \\
      --max-length 128
""",
        help="a model that turns texts into vectors",
    )
    add_negatives(parser, "self", 4, ": self (the model itself, anew in every epoch), random")
    parser.add_argument("--scale", type=float, metavar="X", help="of the cosines in the loss (default: 20)")
    text = "cut a text to N tokens (default: what the model can read)"
    parser.add_argument("--max-length", type=at_least(1), metavar="N", help=text)
    finish(parser, _encoder)


def _encoder(args: dict[str, Any]) -> dict[str, Any]:
    from crosscut.train import train_encoder

    return train_encoder(args.pop("data"), **args)


def _add_distil(models: Verbs) -> None:
    parser = model_parser(
        models,
        "distil",
        """\
Train a student on the scores of a cross-encoder. With the losses match and pair a bi-encoder learns to find
what the teacher would rank first; with mse a smaller cross-encoder learns the scores themselves. With the loss
vectors the teacher is an encoder, and a bi-encoder learns its vectors. What the teacher says is kept while the
run lasts: one that is continued does not ask again.""",
        """\
examples:
  crosscut train distil scifact/ --teacher ./my-model --base ./my-encoder --out student
  crosscut train distil scifact/ --teacher scifact.npz --candidates all --loss pair --top 100 \\
      --base ./my-encoder --out student
  crosscut train distil scifact/ --teacher ./large --teacher ./larger --loss mse --head emb \\
      --base microsoft/MiniLM-L12-H384-uncased --out small
  crosscut train distil scifact/ --teacher ./my-model --teacher encoder:./my-encoder --loss mse \\
      --base ./small-model --out small
  crosscut train distil scifact/ --teacher sentence-transformers/all-MiniLM-L6-v2 --loss vectors \\
      --base ./small-encoder --out student --batch-size 256
""",
        help="a student of a cross-encoder, or of an encoder",
    )
    add = parser.add_argument
    add(
        "--teacher",
        required=True,
        action="append",
        metavar="MODEL",
        help="a cross-encoder as for --scorer elsewhere, a bi-encoder (encoder:MODEL; its cosines times --scale) "
        "or a score matrix (.npz); several are averaged. For --loss vectors an encoder",
    )
    add_scorer_option(parser)
    add(
        "--loss",
        default="match",
        metavar="NAME",
        help="match, pair or vectors (encoder), or mse (default: %(default)s)",
    )
    add(
        "--candidates",
        metavar="NAMES",
        help="the items that the teacher scores: all, or the first of random, bm25, tfidf, encoder:MODEL or "
        "run:FILE (default: the first of the student as it begins; bm25,random for mse)",
    )
    add("--depth", type=at_least(1), metavar="N", help="so many for each query (default: 100)")
    add("--top", type=at_least(1), metavar="N", help="the teacher's first N are paired in `pair` (default: 10)")
    add("--sample", type=at_least(1), metavar="N", help="items of a query in a step (default: all; 16 for mse)")
    add("--scale", type=float, metavar="X", help="of cosines, the student's and the teachers' (default: 20)")
    add("--head", metavar="NAME", help="of the cross-encoder: cls (default), or emb: two marked vectors")
    text = "mse: learn the first teacher's hidden states as well, with this weight (default: scores alone)"
    add("--states", type=float, metavar="X", help=text)
    add_limits(parser)
    finish(parser, _distil)


def _distil(args: dict[str, Any]) -> dict[str, Any]:
    from crosscut.cli.models import PYTHON, load_scorer
    from crosscut.scorers import option_types
    from crosscut.train import distil
    from crosscut.train.mining import ENCODER
    from crosscut.train.settings import Settings

    options, teachers = args.pop("scorer_option"), args.pop("teacher")
    device = Settings(device=args.get("device")).own_device

    def load(name: str) -> Any:
        is_model = not name.startswith(PYTHON) and "device" in option_types(name)
        return load_scorer(name, [f"device={device}", *options] if device and is_model else options)

    if args["loss"] != "vectors":
        teachers = [name if name.endswith(".npz") or name.startswith(ENCODER) else load(name) for name in teachers]
    return distil(args.pop("data"), teacher=teachers, **args)


def add_negatives(parser: argparse.ArgumentParser, sources: str, count: int, from_where: str = ": random") -> None:
    add = parser.add_argument
    add(
        "--negatives",
        default=sources,
        metavar="NAMES",
        help=f"where items come from that do not answer a query{from_where}, bm25, tfidf, encoder:MODEL or "
        "run:FILE (a TREC run); several, between commas, in equal parts (default: %(default)s)",
    )
    add(
        "--negative-count",
        type=at_least(1),
        default=count,
        metavar="N",
        help="how many of them (default: %(default)s)",
    )
    add(
        "--depth",
        type=at_least(1),
        default=100,
        metavar="N",
        help="draw them anew in every epoch from the first N of a ranking (default: %(default)s)",
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    for name, what in (("query", "a query"), ("item", "an item")):
        parser.add_argument(
            f"--{name}-tokens", type=at_least(1), metavar="N", help=f"cut {what} to N tokens (default: no limit)"
        )
    parser.add_argument(
        "--max-length",
        type=at_least(1),
        metavar="N",
        help="cut a pair to N tokens (default: what the model can read)",
    )


def model_parser(models: Verbs, name: str, about: str, examples: str, help: str) -> argparse.ArgumentParser:
    parser = new_parser(models, name, about, examples, help)
    parser.add_argument("data", metavar="DATA", help=DATA)
    parser.add_argument("--base", required=True, metavar="MODEL", help=BASE)
    parser.add_argument(
        "--out", required=True, metavar="FOLDER", help="the folder for the model, and its checkpoints"
    )
    return parser


def finish(parser: argparse.ArgumentParser, train: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The flags that every model has: those of `Settings`, and what to do with the folder."""
    from crosscut.train.settings import Settings

    group = parser.add_argument_group("settings")
    for field in fields(Settings):
        flag = f"--{field.name.replace('_', '-')}"
        is_plain = field.default is None or field.default is False
        text = HELP[field.name] + ("" if is_plain else f" (default: {field.default})")
        if field.default is False:
            group.add_argument(flag, action="store_true", help=text)
        else:
            kind = float if "float" in str(field.type) else int if "int" in str(field.type) else str
            group.add_argument(flag, type=kind, metavar={int: "N", float: "X", str: "NAME"}[kind], help=text)
    add = parser.add_argument
    add("--licence", metavar="NAME", help="of the model, for its card, such as apache-2.0")
    add("--overwrite", action="store_true", help="begin anew, whatever model is there (default: continue)")
    add("--json", action="store_true", help="print the figures as a JSON object")
    parser.set_defaults(
        run=run, train=train, when_stopped="stopped; the same command continues from the last checkpoint"
    )


def run(args: argparse.Namespace) -> int:
    ours = ("run", "train", "when_stopped", "json")
    # What is not given keeps the default of the function.
    given = {name: value for name, value in vars(args).items() if name not in ours and value is not None}
    report = args.train({**given, "progress": True})
    if os.environ.get("RANK", "0") != "0":
        return 0  # one of several processes speaks
    if args.json:
        print(json.dumps(report))
    else:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in report["figures"].items())
        print(f"{args.out}: {figures} at step {report['best_step']} of {report['steps']}")
    return 0
