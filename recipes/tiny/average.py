"""A model whose weights are the means of those of others, which were trained from one another.

    python recipes/tiny/average.py MODEL MODEL ... --out FOLDER

Each is a Hugging Face folder with safetensors; configuration, tokenizer and card are the last one's. Along a
training that goes on with another teacher, the mean keeps most of what either end can do.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.out.exists():
        raise SystemExit(f"{args.out} is there already")
    for model in args.models:
        if not (model / WEIGHTS).is_file():
            raise SystemExit(f"there is no {model / WEIGHTS}")
    weights = [load_file(model / WEIGHTS) for model in args.models]
    shapes = [{name: value.shape for name, value in each.items()} for each in weights]
    if any(each != shapes[0] for each in shapes):
        raise SystemExit("the models have different weights: average only those of one architecture")
    mean = {name: sum(each[name].float() for each in weights) / len(weights) for name in shapes[0]}
    shutil.copytree(args.models[-1], args.out, ignore=shutil.ignore_patterns(WEIGHTS))
    save_file(mean, args.out / WEIGHTS, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
