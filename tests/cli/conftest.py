"""A small corpus, an index of it, and scorers in a module of the current folder, as a user would have them."""

import json
import sys

import pytest

from crosscut.cli import main

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "policy", "covers", "flood", "fire", "storm", "theft", "frost", "and", "damage"]
SCORERS = """
import time
from pathlib import Path

def words(query, texts):
    return [float(len(set(query.split()) & set(text.split()))) for text in texts]

def raises(query, texts):
    raise RuntimeError("out of memory")

def too_few(query, texts):
    return [1.0]

def nan(query, texts):
    return [float("nan") for _ in texts]

def slow(query, texts):
    time.sleep(0.02)
    with Path("calls.log").open("a") as file:
        file.write(f"{query}|{texts[0]}\\n")
    return words(query, texts)

class Model:
    def predict(self, pairs):
        return [words(query, [text])[0] for query, text in pairs]

    def encode(self, texts):
        return [[len(text), text.count("flood"), 1.0] for text in texts]

model = Model()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder: items.jsonl, queries.txt, my_scorers.py and small.index."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_scorers", raising=False)
    (tmp_path / "my_scorers.py").write_text(SCORERS)
    subjects = ["flood", "fire", "storm", "theft", "frost"]
    lines = [
        json.dumps({"id": f"a{n}", "text": f"policy {n} covers {subjects[n % 5]} and {subjects[n % 3]} damage"})
        for n in range(40)
    ]
    (tmp_path / "items.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "queries.txt").write_text("flood damage\nfire damage\npolicy 7\n")
    return tmp_path


@pytest.fixture
def index(folder, capsys):
    """The index of the items, by a scorer of the user's own."""
    scorer = "python:my_scorers:words"
    assert main(["index", "items.jsonl", "--out", "small.index", "--scorer", scorer, "--encoder", "none"]) == 0
    capsys.readouterr()
    return "small.index"


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The folder of a tiny BERT with two labels, which reads 16 tokens."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("models") / "two-labels"
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(
        **sizes, vocab_size=len(WORDS), max_position_embeddings=16, num_labels=2, initializer_range=1.0
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.fixture
def run(capsys):
    """Run the command line in this process: (status, stdout, stderr)."""

    def run(*argv, trust=True):
        words = [str(word) for word in argv]
        if trust and words[:2] == ["search", "small.index"] and "--scorer" not in words:
            words += ["--scorer", "python:my_scorers:words"]  # the user's own code, so it must be named
        try:
            status = main(words)
        except SystemExit as exit:  # argparse leaves this way
            status = exit.code
        said = capsys.readouterr()
        return status, said.out, said.err

    return run
