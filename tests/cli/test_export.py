"""`crosscut export`: what it says, what its folder is good for, and that a mistake leaves nothing behind."""

import json
import os
import re

import pytest

from crosscut.cli import main
from crosscut.scorers import TransformerScorer

for package in ("torch", "transformers", "onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)
pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    """The label 1 of the tiny model, in int8, by the texts that come with Python."""
    out = tmp_path_factory.mktemp("exports") / "fast.model"
    assert main(["export", str(model), "--out", str(out), "--label", "1", "--int8"]) == 0
    return out


def scores(out):
    return {hit["id"]: hit["score"] for hit in json.loads(out)["hits"]}


def test_without_out_the_name_says_what_it_is(folder, model, run):
    status, out, _ = run("export", model, "--label", 1)
    assert status == 0
    assert re.fullmatch(r"two-labels-onnx-fp32: scorer, onnx, fp32, 0\.\d MB\n", out)
    status, out, _ = run(
        "rerank", "flood", "--items", "items.jsonl", "--scorer", "two-labels-onnx-fp32", "-k", 40, "--json"
    )
    assert status == 0
    items = {item["id"]: item["text"] for item in map(json.loads, (folder / "items.jsonl").open())}
    found = scores(out)
    exact = TransformerScorer(model, label=1, device="cpu").score([("flood", items[id]) for id in found])
    assert list(found.values()) == pytest.approx(exact.tolist(), abs=1e-4)

    status, out, err = run("export", model, "--label", 1)
    assert (status, out) == (2, "")
    assert err.endswith("two-labels-onnx-fp32 already exists: choose another folder, or set --overwrite\n")


def test_index_and_search(folder, exported, run):
    options = ["--scorer-option", "item_tokens=4", "--scorer-option", "threads=1"]
    command = ["index", "items.jsonl", "--scorer", exported, "--anchor-queries", "queries.txt", *options, "--json"]
    status, out, err = run(*command, "--out", "x.index")
    built = json.loads(out)
    assert (status, built["calls"], built["truncated"]) == (0, 120, 120)
    assert "hint: 120 of 120 pairs were cut to the limit of 16 tokens and item_tokens=4" in err
    status, out, err = run("search", "x.index", "flood damage", "-k", 3, "--budget", 10, "--json")
    assert (status, len(scores(out))) == (0, 3)
    assert "hint: 10 of 10 pairs were cut" in err
    again = run("search", "x.index", "flood damage", "-k", 3, "--budget", 10, "--json", "--scorer", exported)
    assert scores(again[1]) == scores(out)
    status, _, err = run("search", "x.index", "flood", "--scorer-option", "item_tokens=5")
    assert status == 2
    assert "with item_tokens=4, but this is scorer" in err

    # int8 or not, a pair has one score, whichever process gives it.
    status, _, _ = run(*command, "--out", "y.index", "--executor", "processes", "--workers", 2)
    assert status == 0
    stored = "scores/q000000-i000000.npy"
    assert (folder / "x.index" / stored).read_bytes() == (folder / "y.index" / stored).read_bytes()


def test_an_encoder(folder, model, run):
    """What sentence-transformers saved as an encoder becomes one, which an index opens again by its name."""
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    from sentence_transformers import SentenceTransformer

    parts = [modules.Transformer(str(model)), modules.Pooling(16, "mean")]
    SentenceTransformer(modules=parts, device="cpu").save("bi-encoder", create_model_card=False)
    status, out, _ = run("export", "bi-encoder", "--out", "fast.encoder")
    assert status == 0
    assert re.fullmatch(r"fast\.encoder: encoder, onnx, fp32, 0\.\d MB\n", out)
    assert run("index", "items.jsonl", "--out", "x.index", "--encoder", "fast.encoder")[0] == 0
    assert json.loads((folder / "x.index" / "index.json").read_text())["encoder"]["name"].endswith("/fast.encoder")
    search = ["search", "x.index", "flood damage", "-k", 3, "--budget", 10, "--json"]
    status, out, _ = run(*search)
    assert (status, len(scores(out))) == (0, 3)
    assert scores(run(*search, "--encoder", "fast.encoder")[1]) == scores(out)

    for words, message in [
        (
            ["index", "items.jsonl", "--out", "y", "--scorer", "fast.encoder"],
            "exported encoder and cannot serve as s",
        ),
        (["export", "fast.encoder", "--out", "y"], "is an exported model already"),
        (["export", "bi-encoder", "--out", "y", "--label", 0], "is an encoder and has no labels"),
        ([*search, "--encoder", "bi-encoder"], "the index was built with encoder .*fast.encoder"),
    ]:
        status, out, err = run(*words)
        assert (status, out) == (2, "")
        assert re.search(f"^crosscut: error: .*{message}", err, re.MULTILINE), err
    assert not (folder / "y").exists()


def test_mistakes(folder, model, exported, run):
    (folder / "notes.txt").write_text("mine")
    (folder / "half.jsonl").write_text('{"id": "1", "text": "blue \\ud83d"}\n')
    cases = [
        ([model], r"has 2 labels .*: choose one with the option label=NUMBER"),
        ([model, "--label", 2], "has no label 2"),
        ([model, "--label", 1, "--backend", "abacus"], "there is no backend 'abacus' to export to: use onnx or"),
        ([model, "--label", 1, "--data", "items.jsonl"], "texts are of use for int8 only: set --int8, or leave"),
        ([model, "--label", 1, "--int8", "--data", "half.jsonl"], "half"),
        ([model, "--label", 1, "--int8", "--data", "lost.jsonl"], r"lost\.jsonl"),
        ([exported], "is an exported model already"),
        (["./nowhere"], "there is no model folder ./nowhere"),
        (["~nobody-of-this-name/model"], "there is no model folder ~nobody"),
    ]
    before = sorted(os.listdir())
    for words, message in cases:
        status, out, err = run("export", *words, "--out", "out")
        assert (status, out) == (2, "")
        assert re.search(f"^crosscut: error: .*{message}", err, re.MULTILINE), err
        assert "Traceback" not in err
    for words in (["--out", "notes.txt"], ["--out", "notes.txt", "--overwrite"], ["--out", ".", "--overwrite"]):
        status, _, err = run("export", model, "--label", 1, *words)
        assert status == 2 and "is not an exported model, so it is not overwritten: choose another" in err
    assert sorted(os.listdir()) == before
    assert (folder / "notes.txt").read_text() == "mine"


def test_options_of_an_exported_model(folder, exported, run):
    command = ["rerank", "flood", "--items", "items.jsonl", "--scorer", exported, "--scorer-option"]
    for option, message in [
        ("max_length=17", "max_length 17 does not suit .*: it must be at most 16"),
        ("threads=none", "the scorer option threads must be a whole number, but is 'none'"),
        ("label=1", "these are known: query_tokens, item_tokens, max_length, threads"),
    ]:
        status, out, err = run(*command, option)
        assert (status, out) == (2, "")
        assert re.search(f"^crosscut: error: .*{message}", err, re.MULTILINE)


def test_ctrl_c_leaves_nothing(folder, model, run, monkeypatch):
    def interrupted(graph, path, samples):
        path.write_text("half")
        raise KeyboardInterrupt

    before = sorted(os.listdir())
    monkeypatch.setattr("crosscut.export.graph.write_graph", interrupted)
    status, out, err = run("export", model, "--label", 1, "--out", "out")
    assert (status, out) == (130, "")
    assert err.endswith("\ncrosscut: stopped; nothing was written\n")
    assert sorted(os.listdir()) == before


def test_help(run):
    status, out, _ = run("export", "--help")
    assert status == 0
    assert all(word in out for word in ("--int8", "--backend", "openvino", "--data", "--label", "--overwrite"))
    for verb in ("index", "search", "rerank"):
        words = " ".join(run(verb, "--help")[1].split())
        for named in (
            "Hugging Face hub",
            "`crosscut export`",
            "tei:URL",
            "cohere:MODEL",
            "python:module:function",
        ):
            assert named in words
