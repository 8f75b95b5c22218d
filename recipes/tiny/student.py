"""A small model to train: some layers of a larger one, of less width inside, and all of its words in 4 bits.

    python recipes/tiny/student.py MODEL --layers 0,4,8,11 --wide 1152 --texts texts/ --out student

MODEL is a BERT, a folder or a hub name: a cross-encoder, whose head is kept, or an encoder. The student keeps its
embeddings and the layers named, in this order, and of what lies between the two products at the end of each layer
the `--wide` channels that weigh most on some pairs of --texts. Words have vectors of whole numbers with a scale
for each, as they will ship: training leaves them alone (--freeze-words), and two students may share them
(--words-of, for the second). What is written is a plain Hugging Face folder, a base for `crosscut train distil`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from crosscut.data import read_items
from crosscut.export import sample_pairs

HALVES = 15  # words are made of the odd numbers from -HALVES to HALVES: 4 bits


def main() -> None:
    args = arguments()
    words_of = args.words_of or args.model
    model, tokenizer = loaded(args.model), AutoTokenizer.from_pretrained(words_of)
    student = cut(model, args.layers, rounded(loaded(words_of).get_input_embeddings().weight.detach()))
    if args.wide:
        texts = [item.content for path in args.texts for item in read_items(path)]
        queries, items = zip(*sample_pairs(texts), strict=True)
        narrow(student, args.wide, tokenizer(queries, items, padding=True, truncation=True, return_tensors="pt"))
    student.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    size = sum(parameter.numel() for parameter in student.parameters())
    print(f"{args.out}: {len(args.layers)} layers, {len(tokenizer):,} words, {size / 1e6:.1f} M parameters")


def loaded(model: Any) -> Any:
    config = AutoConfig.from_pretrained(model)
    if config.model_type != "bert":
        raise SystemExit(f"{model} is a {config.model_type}; this recipe knows how to cut a bert")
    with_head = any(kind.endswith("ForSequenceClassification") for kind in config.architectures or [])
    kind = AutoModelForSequenceClassification if with_head else AutoModel
    return kind.from_pretrained(model, dtype=torch.float32)


def rounded(rows: torch.Tensor) -> torch.Tensor:
    """Each row as odd numbers from -15 to 15 times a scale, the one of a few that keeps closest to the row.

    >>> rounded(torch.tensor([[0.3, -4.5, 0.0, 1.4], [0.0, 0.0, 0.0, 0.0]]))
    tensor([[ 0.3000, -4.5000,  0.3000,  1.5000],
            [ 0.0000,  0.0000,  0.0000,  0.0000]])
    """
    most = rows.abs().amax(dim=1, keepdim=True)
    best, least = torch.zeros_like(rows), rows.square().sum(dim=1, keepdim=True)
    for share in torch.arange(0.3, 1.01, 0.05):
        scale = share * most / HALVES
        steps = ((rows / scale.clamp(min=1e-12) - 1) / 2).round() * 2 + 1
        made = steps.clamp(-HALVES, HALVES) * scale
        error = (made - rows).square().sum(dim=1, keepdim=True)
        best, least = torch.where(error < least, made, best), torch.minimum(error, least)
    return best


def cut(model: Any, layers: list[int], words: torch.Tensor) -> Any:
    """The model with these layers of its own, these words, and no dropout.

    A student that is told the teacher's score of every pair has nothing to memorise.
    """
    bert = model.base_model
    bert.encoder.layer = torch.nn.ModuleList([bert.encoder.layer[number] for number in layers])
    if bert is model:
        bert.pooler = None  # no vector passes through it
    model.set_input_embeddings(torch.nn.Embedding.from_pretrained(words, padding_idx=0))
    config = model.config
    config.num_hidden_layers, config.vocab_size, config.pad_token_id = len(layers), len(words), 0
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    return model


def narrow(model: Any, wide: int, tokens: Any) -> None:
    """Keep `wide` channels between the products at the end of each layer: those that add most to its result."""
    weights: list[torch.Tensor] = []

    def look(layer: Any, given: tuple[torch.Tensor, ...]) -> None:
        real = given[0][tokens["attention_mask"].bool()]
        weights.append(real.square().mean(dim=0).sqrt() * layer.dense.weight.norm(dim=0))

    layers = model.base_model.encoder.layer
    hooks = [layer.output.register_forward_pre_hook(look) for layer in layers]
    with torch.no_grad():
        model.eval()(**tokens)
        for hook, layer, weight in zip(hooks, layers, weights, strict=True):
            hook.remove()
            if wide > len(weight):
                raise SystemExit(f"--wide {wide}: the model has but {len(weight)} channels")
            kept = weight.topk(wide).indices.sort().values
            into, out = layer.intermediate.dense, layer.output.dense
            into.weight, into.bias = (torch.nn.Parameter(part[kept]) for part in (into.weight, into.bias))
            out.weight = torch.nn.Parameter(out.weight[:, kept])
            into.out_features = out.in_features = wide
            share = float(weight[kept].square().sum() / weight.square().sum())
            print(f"{wide} of {len(weight)} channels have {share:.1%} of the weight")
    model.config.intermediate_size = wide


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--layers", type=lambda text: [int(part) for part in text.split(",")], required=True)
    parser.add_argument("--wide", type=int, help="(default: all)")
    parser.add_argument("--words-of", metavar="MODEL", help="take the words and their vectors from this model")
    parser.add_argument("--texts", nargs="+", default=[], help="for --wide")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.wide and not args.texts:
        parser.error("--wide needs --texts, to see which channels weigh most")
    return args


if __name__ == "__main__":
    main()
