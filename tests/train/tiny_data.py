"""Data that a tiny model can learn: the item that answers a query speaks of the same animal and place."""

from __future__ import annotations

import json
from pathlib import Path

from crosscut.data import Mention, write_beir, write_blink
from crosscut.types import Item, Query

ANIMALS = ["whale", "cat", "dog", "owl", "fox", "hen", "ant", "bee", "cow", "pig", "rat", "bat"]
PLACES = ["sea", "house", "yard", "wood", "field", "farm"]
WORDS = ["where", "lives", "the", "in", "a", "is", "animal", "of", *ANIMALS, *PLACES]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
# Large weights, so that different texts are clearly different from the start.
SIZES |= {"initializer_range": 0.2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def items() -> list[Item]:
    return [
        Item(f"{animal}-{place}", f"the {animal} lives in the {place}") for animal in ANIMALS for place in PLACES
    ]


def queries() -> list[Query]:
    return [Query(f"q-{a}-{p}", f"where is the {a} of the {p}") for a in ANIMALS for p in PLACES]


def save_beir(folder: Path) -> Path:
    """72 queries: 60 in the split train, 12 in dev."""
    asked = queries()
    judged = {query.id: {query.id.removeprefix("q-"): 1} for query in asked}
    apart = {f"q-{animal}-{PLACES[number % 6]}" for number, animal in enumerate(ANIMALS)}
    splits = {
        "train": {id: items for id, items in judged.items() if id not in apart},
        "dev": {id: items for id, items in judged.items() if id in apart},
    }
    write_beir(folder, items(), asked, splits)
    return folder


def mentions(world: str, animals: list[str]) -> list[Mention]:
    return [
        Mention(f"{world}-{a}-{p}", f"in the {p} lives", a, f"of the {p}", f"{a}-{p}", world)
        for a in animals
        for p in PLACES
    ]


def save_worlds(folder: Path) -> Path:
    """Entities of two worlds, and mentions of them in BLINK's form."""
    (folder / "entities").mkdir(parents=True)
    (folder / "mentions").mkdir()
    worlds = {"wild": ANIMALS[:6], "tame": ANIMALS[6:]}
    for world, animals in worlds.items():
        found = [{"_id": f"{a}-{p}", "title": a, "text": f"animal of the {p}"} for a in animals for p in PLACES]
        lines = "".join(json.dumps(entity) + "\n" for entity in found)
        (folder / "entities" / f"{world}.jsonl").write_text(lines)
    write_blink(folder / "mentions" / "train.jsonl", [m for w, a in worlds.items() for m in mentions(w, a)])
    return folder


def save_base(folder: Path, seed: int = 0, **options) -> Path:
    """A BERT with random weights and no head, whose words are the ones above."""
    from transformers import BertConfig, BertModel, BertTokenizer

    words = [*SPECIAL, *WORDS]
    tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(words)}, model_max_length=32)
    tokenizer.save_pretrained(folder)
    import torch

    torch.manual_seed(seed)
    config = BertConfig(vocab_size=len(words), max_position_embeddings=32, **(SIZES | options))
    BertModel(config).save_pretrained(folder)
    return folder
