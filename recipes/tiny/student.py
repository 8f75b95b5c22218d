"""A small model to train: some layers of a larger one, and its most used words.

    python recipes/tiny/student.py MODEL --layers 0,2,4 --words 20000 --texts texts/ --out student

MODEL is a BERT with any head, a folder or a hub name (all-MiniLM-L6-v2, say). The student keeps its embeddings
and the layers named, in this order, and `--words` tokens of its vocabulary: by turns the most frequent in the
passages of --texts and the first of the vocabulary itself, which BERT has in the order of their use in English,
with all single characters of ASCII; any other word falls into pieces of these. Their vectors are rounded to int8,
a scale for each, as they will ship: training leaves them alone (--freeze-words), and two students share them. What
is written is a plain Hugging Face folder, a base for `crosscut train distil`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast

from crosscut.data import read_items

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def main() -> None:
    args = arguments()
    model, tokenizer = AutoModel.from_pretrained(args.model), AutoTokenizer.from_pretrained(args.model)
    if model.config.model_type != "bert":
        raise SystemExit(f"{args.model} is a {model.config.model_type}; this recipe knows how to cut a bert")
    texts = [item.content for path in args.texts for item in read_items(path)]
    kept = most_used(tokenizer, texts, args.words)
    model = with_layers(model, args.layers)
    numbers = tokenizer.get_vocab()
    rows = torch.tensor([numbers[word] for word in kept])
    words = model.embeddings.word_embeddings
    rounded = to_int8(words.weight.detach()[rows])
    model.embeddings.word_embeddings = torch.nn.Embedding.from_pretrained(rounded, padding_idx=0)
    model.config.vocab_size, model.config.pad_token_id = len(kept), 0
    model.save_pretrained(args.out)
    with_words(tokenizer, kept).save_pretrained(args.out)
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{args.out}: {len(args.layers)} layers, {len(kept):,} tokens, {size / 1e6:.1f} M parameters")


def most_used(tokenizer: Any, texts: list[str], count: int) -> list[str]:
    """The special tokens, the characters of ASCII as words and as pieces, and the most used of the rest."""
    uses: Counter[int] = Counter()
    for at in range(0, len(texts), 4096):
        for encoding in tokenizer.backend_tokenizer.encode_batch(texts[at : at + 4096], add_special_tokens=False):
            uses.update(encoding.ids)
    names = {number: word for word, number in tokenizer.get_vocab().items()}
    letters = [mark + chr(code) for code in range(33, 127) for mark in ("", "##")]
    always = SPECIAL + [letter for letter in letters if letter in names.values()]
    here = [names[number] for number, _ in uses.most_common()]
    english = [word for _, word in sorted(names.items()) if word.isascii() and not word.startswith("[")]
    by_turns = (word for turn in zip_longest(here, english) for word in turn if word is not None)
    return list(dict.fromkeys([*always, *by_turns]))[:count]


def to_int8(rows: torch.Tensor) -> torch.Tensor:
    """Rows of numbers that int8 and one scale can hold."""
    scale = rows.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    return (rows / scale).round() * scale


def with_layers(model: Any, layers: list[int]) -> Any:
    """The model with these layers of its own and no pooler, which a new head would not want."""
    chosen = torch.nn.ModuleList([model.encoder.layer[number] for number in layers])
    model.encoder.layer, model.pooler = chosen, None
    model.config.num_hidden_layers = len(layers)
    return model


def with_words(tokenizer: Any, kept: list[str]) -> PreTrainedTokenizerFast:
    """The tokenizer with another vocabulary, its special tokens first."""
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    ids = {word: number for number, word in enumerate(kept)}
    spec["model"]["vocab"] = ids
    spec["added_tokens"] = [token | {"id": ids[token["content"]]} for token in spec["added_tokens"]]
    spec["post_processor"] = renumbered(spec["post_processor"], ids)
    spec["padding"] = spec["truncation"] = None
    named = {f"{name[1:-1].lower()}_token": name for name in SPECIAL}
    from tokenizers import Tokenizer

    limit = {"model_max_length": tokenizer.model_max_length, "model_input_names": tokenizer.model_input_names}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(spec)), **named, **limit)


def renumbered(spec: dict[str, Any], ids: dict[str, int]) -> dict[str, Any]:
    """The pair template with new numbers of its special tokens."""
    if spec["type"] == "BertProcessing":
        return spec | {part: [spec[part][0], ids[spec[part][0]]] for part in ("sep", "cls")}
    tokens = {
        name: token | {"ids": [ids[word] for word in token["tokens"]]}
        for name, token in spec["special_tokens"].items()
    }
    return spec | {"special_tokens": tokens}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--layers", type=lambda text: [int(part) for part in text.split(",")], required=True)
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--texts", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
