"""The experiments' recipes run from data to tables, with models that know nothing."""

import doctest
import importlib
import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tiny_data

from crosscut.data import read_beir, read_blink, write_beir, write_blink
from crosscut.errors import CrosscutError

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.models

RECIPES = Path(__file__).parents[2] / "recipes"
QUICK = ["--steps", "2", "--batch-size", "4", "--encoder-batch", "8", "--negative-count", "3"]


@pytest.fixture
def recipe(monkeypatch):
    """Run a recipe as its command line does."""
    monkeypatch.syspath_prepend(RECIPES)

    def run(name, *args):
        monkeypatch.setattr(sys, "argv", [name, *map(str, args)])
        importlib.import_module(name).main()

    return run


def save_model(folder, head=None):
    from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizer

    words = [*tiny_data.SPECIAL, *tiny_data.WORDS]
    BertTokenizer(vocab={word: n for n, word in enumerate(words)}, model_max_length=256).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(words), max_position_embeddings=256, num_labels=1, **tiny_data.SIZES)
    (BertForSequenceClassification if head else BertModel)(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", ["experiment", "reporting", "spectra", "own_domain_report"])
def test_examples(recipe, name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", ["student", "manuals", "texts"])
def test_examples_of_crosscut_tiny(monkeypatch, name):
    monkeypatch.syspath_prepend(RECIPES / "tiny")
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_manuals_of_source_distributions(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(RECIPES / "tiny")
    manuals, texts = importlib.import_module("manuals"), importlib.import_module("texts")
    files = {
        "PKG-INFO": "Name: cats\nLicense: MIT\n\nOf cats.",
        "docs/guide.rst": "Cats\n====\n\nA cat sleeps for most of the day.",
        "docs/changes.rst": "1.0\n===\n\nNow with tails.",
        "src/cats.txt": "Cats\n====\n\nNot a manual.",
    }
    with tarfile.open(tmp_path / "cats-1.0.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            about = tarfile.TarInfo(f"cats-1.0/{name}")
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content.encode()))
    ((said, found),) = manuals.archives(tmp_path)
    assert texts.is_permissive(said) and not texts.is_permissive("LGPL or MIT") and not texts.is_permissive("")
    assert [section for text in found for section in manuals.sections(text)] == [
        ("Cats", "A cat sleeps for most of the day.")
    ]


def test_entity_linking(recipe, worlds, tmp_path):
    data = tmp_path / "worlds"
    (data / "mentions").mkdir(parents=True)
    (data / "entities").symlink_to(worlds / "entities")
    # Of the six animals in the world to train on, two are not mentioned.
    found = {"wild": tiny_data.ANIMALS[:4], "tame": tiny_data.ANIMALS[6:]}
    for split, world in (("train", "wild"), ("dev", "tame"), ("test", "tame")):
        write_blink(data / "mentions" / f"{split}.jsonl", tiny_data.mentions(world, found[world]))
    base, run = save_model(tmp_path / "base"), tmp_path / "run"
    command = ["train", data, "--base", base, "--out", run, "--anchors", "20", "--test", "10", *QUICK]
    command += ["--most", "1", "--names", "--freeze-words"]
    recipe("entity_linking", *command, "--minutes", "5")
    entities = (run / "data" / "entities" / "tame.jsonl").read_text().splitlines()
    assert {json.loads(line)["title"] for line in entities} == {""}
    mentions = read_blink(run / "data" / "mentions" / "train.jsonl")
    by_name = [mention for mention in mentions if not mention.context_left]
    assert len(mentions) == 36 and len({mention.label_id for mention in mentions}) == 36
    assert {mention.mention for mention in by_name} == set(tiny_data.ANIMALS[4:6])
    results = run / "results"
    figures = json.loads((results / "linking.json").read_text())
    assert figures["encoder"]["tame"]["recall"]["64"] == 1.0  # there are fewer entities than that
    assert {0.0 <= figures[head]["tame"]["accuracy"] <= 1.0 for head in ("cls", "emb")} == {True}
    with np.load(results / "tame-emb.npz") as file:
        assert file["scores"].shape == (30, 36)

    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.npz")}
    recipe("entity_linking", *command)  # all is there
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*.npz")}

    report = importlib.import_module("entity_linking_report")
    read = report.read_run(results, data, "")
    assert report.linking_table(read).count("\n") == 3
    assert "[EMB] | 30 × 36" in report.rank_table(read)
    exact = report.recalls(read)["tame"]["cls"]["crosscut"]["50"]["10"]  # more calls than entities
    assert np.mean(exact) == 1.0 and len(exact) == 10
    assert "tame | [CLS]" in report.linking_search_table(read)


def test_own_domain(recipe, beir, tmp_path):
    data, like = tmp_path / "beir", tmp_path / "public.npz"
    train, dev = read_beir(beir, "train"), read_beir(beir, "dev")
    write_beir(data, train.items, train.queries + dev.queries, {s: dev.qrels for s in ("valid", "test")})
    write_beir(data, train.items, train.queries + dev.queries, {"train": train.qrels})
    queries = [*train.queries[:20], *dev.queries]
    rng = np.random.default_rng(0)
    matrix = {
        "scores": rng.normal(size=(32, 72)).astype(np.float16),
        "item_embeddings": rng.normal(size=(72, 8)),
        "query_embeddings": rng.normal(size=(32, 8)),
        "item_ids": np.array([item.id for item in train.items]),
        "query_ids": np.array([query.id for query in queries]),
    }
    np.savez(like, anchors=20, **matrix)
    models = ["--cross-encoder", save_model(tmp_path / "cross", "cls"), "--encoder", save_model(tmp_path / "base")]
    command = ["train", data, *models, "--like", like, "--out", tmp_path / "run", "--anchors", "10", *QUICK]
    recipe("own_domain", *command)
    results = tmp_path / "run" / "results"

    report = importlib.import_module("own_domain_report")
    run = report.Run(results, data, read_beir(data, "test"), like)
    tuned = run.matrix("tuned", "tuned")
    assert tuned.scores.shape == (22, 72) and tuned.anchors == 10
    public = run.matrix("public", "public").scores
    assert np.array_equal(public[[0, 10]], matrix["scores"][[0, 20]].astype(np.float32))
    reranked, searched = report.rerank_all(run), report.search(run)
    searched.pop("recall")
    # With more calls than items, all ways end alike.
    assert {np.mean(values["100"]) for values in searched["tuned"].values() if "100" in values} == {
        np.mean(searched["tuned"]["all answers"]["72"])
    }
    assert reranked["bm25"]["tuned 100"] == searched["tuned"]["BM25"]["100"]
    assert report.differences_table(reranked, searched).count("\n") == 14

    np.savez(like, anchors=20, **(matrix | {"item_ids": matrix["item_ids"][::-1]}))
    with pytest.raises(CrosscutError, match="has other items than"):
        recipe("own_domain", *command)
