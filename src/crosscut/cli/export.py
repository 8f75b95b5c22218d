"""`crosscut export`: a model as a folder that runs fast on a CPU, without torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from crosscut.cli.arguments import ITEMS, Verbs, at_least, new_parser

ABOUT = """\
Write a cross-encoder or a bi-encoder to a folder for ONNX Runtime or OpenVINO. The folder is a scorer, or
an encoder, by its path, wherever a model is named, and needs neither torch nor transformers to run. --int8
gives up a little accuracy for speed; ONNX Runtime keeps closer to the model there.
"""
EXAMPLES = """\
examples:
  crosscut export cross-encoder/ms-marco-MiniLM-L6-v2 --out fast.model --int8
  crosscut export ./my-model --out fast.model --backend openvino --int8 --data faq.jsonl
  crosscut export sentence-transformers/all-MiniLM-L6-v2 --out fast.encoder
  crosscut rerank "does my policy cover floods?" --items faq.jsonl --scorer fast.model
"""


def add_parser(verbs: Verbs) -> None:
    parser = new_parser(verbs, "export", ABOUT, EXAMPLES, help="write a model that runs fast on a CPU")
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL",
        help="a cross-encoder, or a sentence-transformers bi-encoder: a name on the Hugging Face hub, or a folder",
    )
    add(
        "--out",
        metavar="FOLDER",
        help="the folder to write, whole or not at all (default: MODEL-BACKEND-PRECISION)",
    )
    add("--backend", default="onnx", metavar="NAME", help="onnx or openvino (default: %(default)s)")
    add("--int8", action="store_true", help="8-bit weights and activations")
    add(
        "--data",
        metavar="FILE",
        help=f"texts like those to come, which int8 is fitted to: {ITEMS} (default: docstrings of Python)",
    )
    add("--label", type=at_least(0), metavar="N", help="which of a model's labels is the score, if it has several")
    add("--overwrite", action="store_true", help="replace the folder of an earlier export")
    parser.set_defaults(run=run, when_stopped="stopped; nothing was written")


def run(args: argparse.Namespace) -> int:
    from crosscut.data import read_items
    from crosscut.export import export_model
    from crosscut.scorers.exported import MANIFEST, Manifest

    precision = "int8" if args.int8 else "fp32"
    folder = export_model(
        args.model,
        args.out or f"{Path(args.model).resolve().name}-{args.backend}-{precision}",
        backend=args.backend,
        int8=args.int8,
        texts=[item.content for item in read_items(args.data)] if args.data else None,
        label=args.label,
        overwrite=args.overwrite,
    )
    kind = Manifest.parse(folder / MANIFEST).kind
    megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    print(f"{folder}: {kind}, {args.backend}, {precision}, {megabytes:.1f} MB")
    return 0
