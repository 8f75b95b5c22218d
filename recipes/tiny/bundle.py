"""The two trained models as the folder that ships with crosscut: int8, with one tokenizer and one word table.

    python recipes/tiny/bundle.py CROSS_ENCODER ENCODER [--out src/crosscut/tiny] [--texts texts/]

Both are Hugging Face folders, the encoder as sentence-transformers saves it. They were trained from the same
student with its words frozen: tokenizer and word table are stored once, so they must be the same in both. --texts
show which channels are too large for the rest (default: docstrings of Python's standard library). The files appear
in --out together, beside the model card, and what int8 changed is printed.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx.external_data_helper import set_external_data

from crosscut.data import read_items
from crosscut.data.docstrings import read_docstrings
from crosscut.encoders import as_encoder
from crosscut.encoders.exported import ExportedEncoder
from crosscut.export import about, sample_pairs
from crosscut.export.graph import write_graph
from crosscut.export.onnx import convert
from crosscut.export.sources import Source, load_source
from crosscut.scorers import TransformerScorer
from crosscut.scorers.exported import ExportedScorer
from crosscut.scorers.exported.manifest import PAIR, TINY_FOLDER

WORDS = "words.bin"
TABLE = "embeddings.word_embeddings.weight"
MOST = 20_000_000  # bytes, all together


def main() -> None:
    args = arguments()
    texts = [item.content for item in (read_items(args.texts) if args.texts else read_docstrings())]
    sources = {"scorer": load_source(args.cross_encoder, None), "encoder": load_source(args.encoder, None)}
    check(sources)
    args.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=args.out) as scratch:
        folder = Path(scratch)
        # The encoder's cuts texts; scorers cut pairs by themselves.
        sources["encoder"].tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        for kind, source in sources.items():
            samples = source.samples(sample_pairs(texts))
            with TemporaryDirectory() as traced:
                write_graph(source.graph, Path(traced) / "traced.onnx", samples)
                convert(Path(traced) / "traced.onnx", Path(traced), samples)
                with_shared_words(onnx.load(Path(traced) / "model.onnx"), folder, kind)
            files = [folder / name for name in (f"{kind}.onnx", WORDS, "tokenizer.json")]
            manifest = about(source, f"crosscut-tiny {kind}", "onnx", True, files, graph=kind)
            manifest.write(folder / PAIR[kind])
        size = sum(path.stat().st_size for path in folder.iterdir())
        if size > MOST:
            raise SystemExit(f"the files take {size:,} bytes, but may take {MOST:,}: use fewer layers or words")
        for path in sorted(folder.iterdir(), key=lambda path: path.suffix == ".json"):  # the manifests last
            os.replace(path, args.out / path.name)
    print(f"{args.out}: {size:,} bytes")
    print_errors(args, sample_pairs(texts[1::2]))


def check(sources: dict[str, Source]) -> None:
    """Refuse models that are not what they should be, or cannot share what is to be stored once."""
    for kind, source in sources.items():
        if source.kind != kind:
            raise SystemExit(f"the model given as the {kind} is a {source.kind}: the cross-encoder comes first")
    tables = [source.graph.embeddings.word_embeddings.weight.detach().numpy() for source in sources.values()]
    if tables[0].shape != tables[1].shape or not np.array_equal(*tables):
        raise SystemExit(
            "the word tables of the two models differ: train both from one student with --freeze-words"
        )
    specs = [json.loads(source.tokenizer.to_str()) for source in sources.values()]
    for spec in specs:
        spec["truncation"] = spec["padding"] = None
    if specs[0] != specs[1]:
        raise SystemExit("the tokenizers of the two models differ: train both from one student")


def with_shared_words(model: Any, folder: Path, name: str) -> None:
    """Write the model to name.onnx, and its word table to the file beside it that both models read."""
    with (folder / WORDS).open("wb") as file:
        for tensor in sorted(model.graph.initializer, key=lambda tensor: tensor.name):
            if tensor.name.startswith(TABLE):
                set_external_data(tensor, WORDS, offset=file.tell(), length=len(tensor.raw_data))
                file.write(tensor.raw_data)
                tensor.ClearField("raw_data")
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())


def print_errors(args: argparse.Namespace, pairs: list[tuple[str, str]]) -> None:
    """What int8 changed, on pairs that it was not fitted to."""
    exact = TransformerScorer(args.cross_encoder, device="cpu").score(pairs)
    error = np.abs(ExportedScorer(args.out).score(pairs) - exact)
    print(
        f"scores of {len(pairs)} pairs (sd {exact.std():.3f}): error {error.mean():.4f}, at most {error.max():.4f}"
    )
    texts = [text for pair in pairs for text in pair]
    vectors = as_encoder(args.encoder).encode(texts)
    cosines = (vectors * ExportedEncoder(args.out).encode(texts)).sum(axis=1)
    print(f"vectors of {len(texts)} texts: cosine {cosines.mean():.5f}, at least {cosines.min():.5f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cross_encoder")
    parser.add_argument("encoder")
    parser.add_argument("--out", type=Path, default=TINY_FOLDER)
    parser.add_argument("--texts")
    return parser.parse_args()


if __name__ == "__main__":
    main()
