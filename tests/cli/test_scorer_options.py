"""--scorer-option: typed, checked, kept in an index, and told when texts were too long."""

import json
import re
from pathlib import Path

import pytest

from crosscut import Index
from crosscut.errors import CrosscutError
from crosscut.scorers import as_scorer

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.models

MANIFEST = Path("cut.index/index.json")


@pytest.fixture
def built(folder, model, run):
    """An index whose scorer has options."""
    options = ["--scorer-option", "label=1", "--scorer-option", "item_tokens=4", "--scorer-option", "device=cpu"]
    command = ["index", "items.jsonl", "--out", "cut.index", "--scorer", model, "--encoder", "none", *options]
    status, _, err = run(*command, "--anchor-queries", "queries.txt")
    assert status == 0
    assert "hint: 120 of 120 pairs were cut to the limit of 16 tokens and item_tokens=4: what came after" in err
    return command


def scores(out):
    return {hit["id"]: hit["score"] for hit in json.loads(out)["hits"]}


def test_an_index_keeps_the_options_that_change_scores(built, model, run):
    assert json.loads(MANIFEST.read_text())["scorer_options"] == {"item_tokens": 4, "label": 1}
    status, out, err = run("search", "cut.index", "flood damage", "-k", 3, "--budget", 10, "--json")
    assert status == 0
    assert "hint: 10 of 10 pairs were cut" in err
    items = {item["id"]: item["text"] for item in map(json.loads, Path("items.jsonl").read_text().splitlines())}
    scorer = as_scorer(model, label=1, item_tokens=4)
    for id, score in scores(out).items():
        assert score == pytest.approx(float(scorer.score([("flood damage", items[id])])[0]), abs=1e-4)


def test_options_that_change_no_score_are_free(built, run):
    options = ["--scorer-option", "batch_tokens=7", "--scorer-option", "dtype=float32"]
    plain = run("search", "cut.index", "flood damage", "--json")
    tuned = run("search", "cut.index", "flood damage", "--json", *options)
    assert (plain[0], tuned[0]) == (0, 0)
    # Some items have the same text, and either may be among the hits.
    assert sorted(scores(tuned[1]).values()) == pytest.approx(sorted(scores(plain[1]).values()), abs=1e-4)


def test_the_model_may_be_named_again(built, model, run):
    assert run("search", "cut.index", "flood", "--scorer", model)[0] == 0
    assert len(Index.load("cut.index", scorer=model).search("flood", k=2, budget=5)) == 2


def test_other_options_are_refused(built, model, run):
    status, _, err = run("search", "cut.index", "flood", "--scorer-option", "item_tokens=5")
    assert status == 2
    assert "with item_tokens=4, label=1, but this is scorer" in err
    assert "with item_tokens=5, label=1: use the same, or say --other-models" in err
    assert (
        run("search", "cut.index", "flood", "--scorer-option", "item_tokens=5", "--other-models")[0] == 2
    )  # label?
    again = ["--scorer-option", "item_tokens=5", "--scorer-option", "label=1", "--other-models"]
    assert run("search", "cut.index", "flood", *again)[0] == 0
    with pytest.raises(CrosscutError, match="with item_tokens=4, label=1, but this is scorer"):
        Index.load("cut.index", scorer=as_scorer(model, label=1))


def test_the_same_build_needs_the_same_options(built, run):
    assert run(*built, "--anchor-queries", "queries.txt")[0] == 0
    status, _, err = run(*built, "--anchor-queries", "queries.txt", "--scorer-option", "item_tokens=5")
    assert status == 2
    assert "scorer options ({'item_tokens': 4, 'label': 1} there, {'item_tokens': 5, 'label': 1} here)" in err


def test_additions_take_the_options_of_the_index(built, run):
    Path("more.jsonl").write_text('{"id": "new", "text": "storm and frost and storm and frost"}\n')
    Path("last.jsonl").write_text('{"id": "last", "text": "theft and theft and theft"}\n')
    status, _, err = run("index", "more.jsonl", "--out", "cut.index", "--add")
    assert status == 0
    assert "hint: 3 of 3 pairs were cut to the limit of 16 tokens and item_tokens=4" in err
    assert run("index", "last.jsonl", "--out", "cut.index", "--add", "--scorer-option", "item_tokens=5")[0] == 2


def test_rerank(folder, model, run):
    command = ["rerank", "flood damage", "--items", "items.jsonl", "--scorer", model, "--json"]
    status, out, err = run(*command, "--scorer-option", "label=0")
    assert status == 0 and "hint" not in err
    other = run(*command, "--scorer-option", "label=1", "--scorer-option", "query_tokens=1")
    assert "hint: 40 of 40 pairs were cut to the limit of 16 tokens and query_tokens=1" in other[2]
    assert scores(other[1]) != scores(out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], r"2 labels \(0 is 'LABEL_0', 1 is 'LABEL_1'\).*the option label=NUMBER"),
        (["label"], "--scorer-option takes KEY=VALUE, such as item_tokens=160, but got 'label'"),
        (["=3"], "--scorer-option takes KEY=VALUE"),
        (["label=one"], "the scorer option label must be a whole number, but is 'one'"),
        (["label=2"], "has no label 2"),
        ([f"query_tokens={10**30}"], "query_tokens must be less than 2000000000, but is '1000"),
        (["label=0", "item_tokens=0"], "item_tokens must be a whole number of at least 1"),
        (
            ["label=0", "tokens=9"],
            "wrong options for a scorer .*'tokens'.* these are known: query_tokens, item_tok",
        ),
        (["label=0", "device=moon"], "the device 'moon' is not available"),
    ],
)
def test_options_that_will_not_do(folder, model, run, options, message):
    words = [word for option in options for word in ("--scorer-option", option)]
    status, out, err = run("rerank", "flood", "--items", "items.jsonl", "--scorer", model, *words)
    assert (status, out) == (2, "")
    assert re.search(f"^crosscut: error: .*{message}.*\n$", err, re.MULTILINE)


def test_a_function_takes_no_options(folder, run):
    status, _, err = run(
        "rerank",
        "flood",
        "--items",
        "items.jsonl",
        "--scorer",
        "python:my_scorers:words",
        "--scorer-option",
        "label=1",
    )
    assert status == 2
    assert "wrong options for a scorer" in err


def test_options_of_a_server_are_numbers_too():
    from crosscut.cli.models import typed_options
    from crosscut.scorers import option_types

    made = typed_options(["timeout=2.5", "tries=3"], option_types("tei:http://localhost:1"))
    assert made == {"timeout": 2.5, "tries": 3}
    with pytest.raises(CrosscutError, match="the scorer option timeout must be a number, but is 'soon'"):
        typed_options(["timeout=soon"], option_types("tei:http://localhost:1"))
    for value in ("nan", "inf", "9" * 5000):
        with pytest.raises(CrosscutError, match=f"timeout must be less than 2000000000, but is '{value[:9]}"):
            typed_options([f"timeout={value}"], option_types("tei:http://localhost:1"))


def test_a_damaged_manifest(built, run):
    manifest = json.loads(MANIFEST.read_text())
    manifest["scorer_options"] = ["label", 1]
    MANIFEST.write_text(json.dumps(manifest))
    status, _, err = run("search", "cut.index", "flood")
    assert status == 2
    assert "scorer_options" in err
