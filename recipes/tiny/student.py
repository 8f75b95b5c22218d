"""A small model to train: some layers of a larger one, and its most used words.

    python recipes/tiny/student.py MODEL --layers 0,2,4 --words 20000 --texts texts/ --out student

MODEL is a BERT, a folder or a hub name: a cross-encoder, whose head is kept, or an encoder. The student keeps its
embeddings and the layers named, in this order, and `--words` tokens of its vocabulary: by turns the most frequent
in the passages of --texts and the first of the vocabulary itself, which BERT has in the order of their use in
English, with all single characters of ASCII; any other word falls into pieces of these. Their vectors are rounded
to int8, a scale for each, as they will ship: training leaves them alone (--freeze-words), and two students may
share them (--words-of, for the second). What is written is a plain Hugging Face folder, a base for `crosscut
train distil`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from crosscut.data import read_items

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def main() -> None:
    args = arguments()
    source = args.words_of or args.model
    model, tokenizer = loaded(args.model), AutoTokenizer.from_pretrained(source)
    texts = [item.content for path in args.texts for item in read_items(path)]
    kept = most_used(tokenizer, texts, args.words)
    words = word_vectors(source, kept)
    student = cut(model, args.layers, words)
    student.save_pretrained(args.out)
    with_words(tokenizer, kept).save_pretrained(args.out)
    size = sum(parameter.numel() for parameter in student.parameters())
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


def loaded(model: Any) -> Any:
    config = AutoConfig.from_pretrained(model)
    if config.model_type != "bert":
        raise SystemExit(f"{model} is a {config.model_type}; this recipe knows how to cut a bert")
    with_head = any(kind.endswith("ForSequenceClassification") for kind in config.architectures or [])
    kind = AutoModelForSequenceClassification if with_head else AutoModel
    return kind.from_pretrained(model, dtype=torch.float32)


def word_vectors(model: Any, kept: list[str]) -> torch.Tensor:
    """Of some tokens of a model, in numbers that int8 and a scale for each token can hold."""
    numbers = AutoTokenizer.from_pretrained(model).get_vocab()
    rows = loaded(model).get_input_embeddings().weight.detach()[[numbers[word] for word in kept]]
    scale = rows.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    return (rows / scale).round() * scale


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
    parser.add_argument("--words-of", metavar="MODEL", help="take the words and their vectors from this model")
    parser.add_argument("--texts", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
