"""`crosscut index --compare` and `crosscut search --pipeline`."""

import json
import sys

import pytest

COMPARE = """
import hashlib
import numpy as np
from crosscut.compare import Comparer, ItemVectors

class Letters(Comparer):
    kind, per_item = "letters", 1

    def __init__(self, letters):
        self.letters, self.width, self.name = letters, len(letters), "letters-" + letters

    def digest(self):
        return hashlib.sha256(self.letters.encode()).hexdigest()[:16]

    def _encode(self, texts, role, progress):
        return ItemVectors.single(np.array([[text.count(one) for one in self.letters] for text in texts], float))

    def _score(self, queries, candidates):
        return [items.rows.astype(float) @ row for row, items in zip(queries.rows, candidates)]

model, other, text = Letters("of"), Letters("ofx"), "not a model"
"""
SCORER = ("--scorer", "python:my_scorers:words", "--encoder", "none")
MODEL = ("--compare", "python:my_compare:model")


@pytest.fixture
def compare(folder, monkeypatch):
    (folder / "my_compare.py").write_text(COMPARE)
    monkeypatch.delitem(sys.modules, "my_compare", raising=False)
    return folder


@pytest.fixture
def built(run, compare):
    assert run("index", "items.jsonl", "--out", "small.index", *SCORER, *MODEL)[0] == 0
    return "small.index"


def search(run, *words):
    return run("search", "small.index", "flood damage", *words)


def test_the_index_says_which_compare_models_it_has(run, compare):
    command = ["index", "items.jsonl", "--out", "x", *SCORER, *MODEL, "--compare", "wide=python:my_compare:other"]
    status, out, _ = run(*command, "--json")
    assert status == 0
    assert json.loads(out)["compare"] == {"letters": "letters-of", "wide": "letters-ofx"}
    assert json.loads((compare / "x/index.json").read_text())["format"] == 3


def test_a_model_comes_later_with_the_same_command_or_with_add(run, index, compare):
    assert "unknown stage 'letters'" in search(run, "--pipeline", "letters:5")[2]
    again = ["index", "items.jsonl", "--out", index, *SCORER, *MODEL, "--json"]
    assert json.loads(run(*again)[1])["calls"] == 0
    assert search(run, "--pipeline", "letters:5", *MODEL)[0] == 0
    wide = ["--compare", "wide=python:my_compare:other"]
    assert run("index", "--out", index, "--add", *SCORER, *wide, "--signal", "0")[0] == 0
    assert search(run, "--pipeline", "wide:5", *wide, *MODEL)[0] == 0


def test_items_that_are_added_need_the_model_too(run, built, folder):
    (folder / "more.jsonl").write_text('{"id": "n1", "text": "flood of floods of floods"}\n')
    command = ["index", "more.jsonl", "--out", built, "--add", *SCORER]
    status, _, err = run(*command)
    assert status == 2 and "'letters-of', an object of the program that built it: give it as --compare" in err
    assert run(*command, *MODEL)[0] == 0
    found = json.loads(search(run, "--pipeline", "letters:3", *MODEL, "--json")[1])
    assert found["hits"][0]["id"] == "n1"


def test_a_scorer_that_no_stage_needs_is_not_asked_for(run, built):
    command = ["search", built, "flood damage", *MODEL, "--pipeline"]
    assert run(*command, "lexical:20 > letters:3", trust=False)[0] == 0
    status, _, err = run(*command, "lexical:20 > cross:3", trust=False)
    assert status == 2 and "give --scorer python:my_scorers:words if you trust that code" in err


@pytest.mark.parametrize("given", ["", "x=", "=my-cmc"])
def test_a_compare_model_without_a_name_or_a_place(run, built, given):
    status, _, err = run("index", "--out", built, "--add", *SCORER, "--compare", given)
    assert status == 2 and "--compare takes MODEL or NAME=MODEL" in err


def test_an_odd_name_of_a_compare_model(run, built):
    status, _, err = run(
        "index", "--out", built, "--add", *SCORER, "--compare", "Bad_Name=python:my_compare:other"
    )
    assert status == 2 and "named with a-z, 0-9 and hyphens" in err


def test_a_pipeline_as_json(run, built):
    pipeline = ["--pipeline", "lexical:20 > letters:8 > cross:4"]
    status, out, err = search(run, *pipeline, *MODEL, "-k", 2, "--json")
    result = json.loads(out)
    assert (status, err) == (0, "")
    assert list(result) == ["query", "hits", "calls", "rounds", "seconds", "stages"]
    assert (len(result["hits"]), result["calls"], result["rounds"]) == (2, 4, 1)
    assert list(result["stages"][0]) == ["name", "items_in", "items_out", "calls", "seconds", "scores"]
    assert [(s["name"], s["items_in"], s["items_out"], s["calls"]) for s in result["stages"]] == [
        ("lexical", 40, 20, 0),
        ("letters", 20, 8, 0),
        ("cross", 8, 4, 4),
    ]


def test_a_pipeline_as_a_table(run, built):
    pipeline = ["--pipeline", "lexical:20>letters:8>cross:4"]
    plain, traced = search(run, *pipeline, *MODEL)[1], search(run, *pipeline, *MODEL, "--trace")[1]
    assert "stage" not in plain and "4 calls in 1 round" in plain
    assert "stage letters: 20 items in, 8 out, 0 calls, " in traced
    assert "score: raw score of the compare model letters" in traced
    assert "stage cross: 8 items in, 4 out, 4 calls" in traced and "round 1: 4 items" in traced


def test_a_model_is_taken_out(run, built, folder):
    take_out = ["index", "--out", built, *SCORER, "--remove-compare", "letters"]
    assert "--remove-compare goes with --add" in run(*take_out, "items.jsonl")[2]
    assert "no compare model 'cmc'" in run(*take_out, "--add", "--remove-compare", "cmc")[2]
    assert search(run, "--pipeline", "letters:3", *MODEL)[0] == 0  # so nothing was removed
    other = ["--compare", "python:my_compare:other"]
    assert run(*take_out, "--add", *other)[0] == 0
    assert search(run, "--pipeline", "letters:3", *other)[0] == 0
    refused = run(*take_out, "--add", "--compare", "cross=python:my_compare:model")
    assert refused[0] == 2 and search(run, "--pipeline", "letters:3", *other)[0] == 0  # still there
    assert run(*take_out, "--add")[0] == 0
    assert not list((folder / built).glob("compare/*"))
    assert search(run)[0] == 0


def test_a_run_file_of_a_pipeline(run, built, folder):
    asked = ["search", built, "--queries", "queries.txt", "--pipeline", "letters:6", "--format", "trec"]
    status, out, _ = run(*asked, *MODEL, "--out", "x.run")
    assert (status, out) == (0, "")
    assert len((folder / "x.run").read_text().splitlines()) == 3 * 6


def test_a_compare_model_as_first_stage(run, built):
    result = json.loads(
        search(run, "--first", "letters", "--method", "rerank", "--budget", 5, *MODEL, "--json")[1]
    )
    assert result["calls"] == 5 and "stages" not in result


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pipeline", "lexical:8 > cross:9"], "a pipeline cannot widen: 'cross:9' asks for 9 items"),
        (["--pipeline", "lexical:8 > cmc:4"], "unknown stage 'cmc'"),
        (["--pipeline", "dense:8"], "stage 'dense' is not possible: the index has no encoder"),
        (["--pipeline", "lexical"], "'lexical' is not a stage"),
        (["--pipeline", "lexical:0"], "at least 1"),
        (["--pipeline", ""], "'' is not a stage"),
        (["--pipeline", "letters:8 > lexical:4"], "'lexical' ranks all items"),
        (["--pipeline", "lexical:8", "--budget", "5"], "budget does not go with it"),
        (["--pipeline", "lexical:8", "--method", "rerank"], "method does not go with it"),
        (["--pipeline", "lexical:8", "--rounds", "2"], "rounds does not go with it"),
        (["--compare", "python:my_compare:other"], "the vectors 'letters' of this index were made by"),
        (["--compare", "cmc=python:my_compare:model"], "the index has no vectors of the compare model"),
        (["--compare", "python:my_compare:text"], "is not a compare model"),
        (["--compare", "python:my_compare:nothing"], "has no 'nothing'"),
        pytest.param(["--compare", "./nowhere"], "there is no model folder", marks=pytest.mark.models),
    ],
)
def test_bad_input(run, built, words, message):
    status, out, err = search(run, *words, *([] if "--compare" in words else MODEL))
    assert (status, out) == (2, "")
    assert message in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["items.jsonl", "--signal", "5"], "--signal says how a compare model is used"),
        (["items.jsonl", "--compare", "cross=python:my_compare:model"], "'cross' is the name of another stage"),
        (
            ["items.jsonl", "--compare", "python:my_compare:other"],
            "the vectors 'letters' of this index were made by",
        ),
    ],
)
def test_bad_compare_models_for_an_index(run, built, folder, words, message):
    before = (folder / built / "index.json").read_bytes()
    status, out, err = run("index", *words, "--out", built, *SCORER)
    assert (status, out) == (2, "") and message in err
    assert (folder / built / "index.json").read_bytes() == before


def test_a_dry_run_counts_compare_models(run, compare):
    command = ["index", "items.jsonl", "--out", "x", *SCORER, *MODEL]
    cost = json.loads(run(*command, "--dry-run", "--json")[1])
    assert (cost["compare_texts"], cost["compare_texts_done"]) == (40, 0)
    assert cost["compare_bytes"] == 40 * (2 * 2 + 8) and cost["compare_seconds"] > 0
    assert "compare   40 texts to encode" in run(*command, "--dry-run")[1]
    assert not (compare / "x").exists()
    assert run(*command)[0] == 0
    assert "40 of them done already" in run(*command, "--dry-run")[1]
    (compare / "more.jsonl").write_text('{"id": "n1", "text": "flood"}\n')
    more = ["index", "more.jsonl", "--out", "x", "--add", *SCORER, *MODEL, "--dry-run", "--json"]
    cost = json.loads(run(*more)[1])
    assert (cost["compare_texts"], cost["compare_texts_done"]) == (41, 40)


@pytest.mark.models
def test_with_a_real_model(run, folder):
    """A CMC with random weights: the index finds it again by its folder."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("sentence_transformers")
    import tiny_families

    from crosscut.compare.comparer import ModelComparer
    from crosscut.compare.registry import model_class
    from crosscut.compare.text_encoder import TextEncoder

    tiny_families.save(folder / "encoder", "bert", transformers.AutoModel)
    torch.manual_seed(0)
    cmc = model_class("cmc")(TextEncoder.load(folder / "encoder"))
    ModelComparer(cmc, device="cpu").save(folder / "my-cmc")
    command = ["index", "items.jsonl", "--out", "x", "--compare", "my-cmc", "--anchor-queries", "queries.txt"]
    assert run(*command)[0] == 0
    for pipeline, count in (("dense:20 > cmc:8 > cross:4", 4), ("cmc:6", 6), ("cmc:20 > crosscut:10", 10)):
        status, out, err = run("search", "x", "flood damage", "--pipeline", pipeline, "--json")
        assert status == 0, err
        assert len(json.loads(out)["hits"]) == count
    assert run("search", "x", "flood damage", "--first", "cmc", "--budget", 10)[0] == 0
    (folder / "more.jsonl").write_text('{"id": "n1", "text": "storm and frost"}\n')
    assert run("index", "more.jsonl", "--out", "x", "--add")[0] == 0
    (stage,) = json.loads(run("search", "x", "flood", "--pipeline", "cmc:99", "--json")[1])["stages"]
    assert (stage["items_in"], stage["items_out"]) == (41, 41)
