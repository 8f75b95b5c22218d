"""What each verb does, in the shapes that scripts rely on."""

import json
import sys

import numpy as np
import pytest

from crosscut.data import read_run
from crosscut.search import METHODS
from crosscut.search.loop import SELECTIONS
from crosscut.search.problem import FIRST_STAGES

VERBS = [[], ["index"], ["search"], ["rerank"], ["eval"], ["bench"], ["bench", "matrix"], ["demo"]]
SCORER = ("--scorer", "python:my_scorers:words")


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_teaches_with_examples(run, verb):
    status, out, _ = run(*verb, "--help")
    assert status == 0
    assert "\nexamples:\n  crosscut " in out


def test_help_names_every_method_first_stage_and_selection(run):
    _, out, _ = run("search", "--help")
    said = set(out.replace(",", " ").split())
    assert said >= {*METHODS, *FIRST_STAGES, *SELECTIONS}
    assert set(METHODS) <= set(run("bench", "matrix", "--help")[1].replace(",", " ").split())


def test_version(run):
    assert run("--version")[:2] == (0, "crosscut 0.1.0\n")


def test_index_says_what_it_built_and_what_would_help(run, folder):
    status, out, err = run("index", "items.jsonl", "--out", "new.index", *SCORER, "--encoder", "none")
    assert status == 0
    assert "new.index: 40 items, 0 anchor queries; 0 calls" in out
    assert "no anchor queries" in err and "no encoder" in err


def test_index_as_json_is_all_there_is_on_stdout(run, folder):
    status, out, err = run(
        "index", "items.jsonl", "--out", "x", *SCORER, "--encoder", "python:my_scorers:model",
        "--anchor-queries", "queries.txt", "--anchors", 2, "--anchor-items", 3, "--lexical", "tfidf", "--json",
    )  # fmt: skip
    built = json.loads(out)
    assert status == 0 and err == ""
    assert (built["items"], built["anchor_queries"], built["anchor_items"]) == (40, 2, 3)
    assert built["calls"] == (2 + 3) * 40
    models = [*SCORER, "--encoder", "python:my_scorers:model"]
    assert run("search", "x", "flood", "--method", "itemcur", "--budget", 10, *models)[0] == 0


def test_a_second_index_command_calls_nothing(run, folder):
    command = ["index", "items.jsonl", "--out", "x", *SCORER, "--anchor-queries", "queries.txt", "--json"]
    assert json.loads(run(*command)[1])["calls"] == 120
    assert json.loads(run(*command)[1])["calls"] == 0


def test_an_index_runs_no_code_without_being_told(run, index, folder):
    status, _, err = run("search", index, "policy 7", trust=False)
    assert status == 2 and "give --scorer python:my_scorers:words if you trust that code" in err
    vectors = ["--encoder", "python:my_scorers:model"]
    assert run("index", "items.jsonl", "--out", "own", *vectors)[0] == 0
    status, _, err = run("search", "own", "policy 7")
    assert status == 2 and "give --encoder python:my_scorers:model if you trust that code" in err
    assert run("search", "own", "policy 7", *vectors)[0] == 0


def test_search_as_json(run, index):
    status, out, err = run("search", index, "policy 7", "-k", 2, "--budget", 40, "--json")
    result = json.loads(out)
    assert status == 0 and err == ""
    assert list(result) == ["query", "hits", "calls", "rounds", "seconds"]
    assert list(result["hits"][0]) == ["rank", "id", "score", "text"]
    assert list(result["seconds"]) == ["scoring", "fitting", "selecting"]
    assert (result["hits"][0]["id"], result["calls"], len(result["hits"])) == ("a7", 40, 2)


def test_a_scorer_of_the_users_own_class_is_taken_as_it_is(run, folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "my_class", raising=False)
    (folder / "my_class.py").write_text(
        "from crosscut.scorers import Scorer\n"
        "class Length(Scorer):\n"
        "    name = 'length'\n"
        "    def _score(self, pairs):\n"
        "        return [len(item) for _, item in pairs]\n"
        "scorer = Length()\n"
    )
    own = ["--scorer", "python:my_class:scorer"]
    status, out, _ = run("index", "items.jsonl", "--out", "x", *own, "--anchor-queries", "queries.txt", "--json")
    assert (status, json.loads(out)["scorer"], json.loads(out)["calls"]) == (0, "length", 120)
    assert json.loads(run("search", "x", "flood", *own, "--json")[1])["hits"][0]["score"] > 30
    assert run("rerank", "flood", "--items", "items.jsonl", *own)[0] == 0
    status, _, err = run("search", "x", "flood")
    assert status == 2 and "built with scorer 'length'" in err
    status, _, err = run("search", "x", "flood", *own, "--scorer-option", "label=1")
    assert status == 2 and "a ready scorer takes no options, but got label" in err


def test_search_with_a_model_object_of_the_users_own(run, folder):
    model = "python:my_scorers:model"
    assert run("index", "items.jsonl", "--out", "x", "--scorer", model, "--encoder", model)[0] == 0
    found = run("search", "x", "policy 7", "--scorer", model, "--encoder", model, "--json")[1]
    assert json.loads(found)["hits"][0]["id"] == "a7"


def test_search_prints_a_table_no_wider_than_the_terminal(run, index, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    _, out, _ = run("search", index, "flood damage", "-k", 3, "--budget", 20, "--trace")
    lines = out.splitlines()
    assert lines[0].split() == ["rank", "score", "id", "text"]
    assert all(len(line) <= 50 for line in lines[:4]) and lines[1].endswith("…")
    assert "round 1: 5 items" in out
    assert "20 calls in 4 rounds" in lines[-1]


def test_control_characters_of_an_item_do_not_reach_the_terminal(run, folder):
    (folder / "evil.jsonl").write_text(json.dumps({"id": "a", "text": "one\u001b[2Jtwo\nthree"}) + "\n")
    _, out, _ = run("rerank", "one", "--items", "evil.jsonl")
    assert "\u001b" not in out and "two three" in out


def test_many_queries_as_an_array_lines_and_a_run(run, index):
    ask = ["search", index, "--queries", "queries.txt", "-k", 2, "--budget", 20]
    array = json.loads(run(*ask, "--json")[1])
    lines = [json.loads(line) for line in run(*ask, "--format", "jsonl")[1].splitlines()]
    assert [one["id"] for one in array] == ["1", "2", "3"]
    assert [one["hits"] for one in lines] == [one["hits"] for one in array]
    assert run(*ask, "--format", "trec", "--out", "x.run", "--tag", "mine")[:2] == (0, "")
    found = read_run("x.run")
    assert {q: list(items) for q, items in found.items()} == {o["id"]: [h["id"] for h in o["hits"]] for o in array}
    assert "flood damage" in run(*ask)[1]


def test_filters(run, index, folder):
    (folder / "ids.txt").write_text("a1\na2\n")
    ask = ["search", index, "policy 7", "--json", "-k", 5]
    ids = lambda out: {hit["id"] for hit in json.loads(out)["hits"]}  # noqa: E731
    assert ids(run(*ask, "--only", "ids.txt", "a7")[1]) == {"a1", "a2", "a7"}
    assert ids(run(*ask, "--only", "ids.txt", "a7", "--exclude", "a7", "a1")[1]) == {"a2"}


def test_rerank_scores_everything_best_first(run, folder):
    status, out, _ = run("rerank", "policy 7", "--items", "items.jsonl", *SCORER, "-k", 2, "--json")
    result = json.loads(out)
    assert status == 0 and result["calls"] == 40
    assert [(hit["id"], hit["score"]) for hit in result["hits"]] == [("a7", 2.0), ("a0", 1.0)]


def test_a_run_that_search_wrote_is_evaluated(run, index, folder):
    run(
        "search",
        index,
        "--queries",
        "queries.txt",
        "-k",
        40,
        "--method",
        "exact",
        "--format",
        "trec",
        "--out",
        "r",
    )
    (folder / "qrels").write_text("3 0 a7 1\nother 0 a1 1\n")
    status, out, err = run(
        "eval", "r", "--qrels", "qrels", "--measures", "RR@10,P@1", "R@100", "--json", "--per-query"
    )
    (one,) = json.loads(out)
    assert status == 0 and "1 of 2 judged queries are missing" in err
    assert one["measures"] == {"RR@10": 0.5, "P@1": 0.5, "R@100": 0.5}
    assert one["per_query"]["other"] == {"RR@10": 0.0, "P@1": 0.0, "R@100": 0.0}
    table = run("eval", "r", "--qrels", "qrels", "--measures", "P@1")[1].splitlines()
    assert [line.split() for line in table] == [["run", "P@1"], ["r", "0.5000"]]


@pytest.fixture
def matrix(folder):
    rng = np.random.default_rng(0)
    # Of low rank and without noise, which leaves the estimator no rounding error to spare.
    np.savez(folder / "m.npz", scores=rng.normal(size=(30, 5)) @ rng.normal(size=(5, 200)), anchors=np.int64(20))
    return "m.npz"


def test_bench_matrix_prints_rows_with_exactly_the_promised_keys(run, matrix):
    status, out, err = run(
        "bench", "matrix", matrix, "--budgets", "20,50", "--k", "1,10", "--seed", "0,1", "--json"
    )
    rows = json.loads(out)
    assert status == 0 and err == ""
    assert len(rows) == 4 * 2 * 2
    assert all(list(r) == ["method", "anchors", "budget", "k", "recall", "calls", "overhead_ms"] for r in rows)
    assert {row["method"] for row in rows} == {"rerank", "anncur", "adacur", "crosscut"}
    assert all(0 <= row["recall"] <= 1 and row["calls"] == row["budget"] and row["anchors"] == 20 for row in rows)
    assert [row["recall"] for row in rows if row["method"] == "adacur" and row["budget"] == 50] == [1.0, 1.0]


def test_bench_matrix_as_a_table_with_settings(run, matrix):
    status, out, _ = run(
        "bench", "matrix", matrix, "--methods", "rerank,crosscut", "--budgets", 20, "--k", 10, "--anchors", 5,
        "--rounds", 2, "--first", "random",
    )  # fmt: skip
    assert status == 0
    assert [line.split()[:4] for line in out.splitlines()[1:]] == [
        ["rerank", "5", "20", "10"],
        ["crosscut", "5", "20", "10"],
    ]


@pytest.mark.models
def test_index_and_search_with_a_model_folder(run, folder, monkeypatch):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = folder / "tiny"
    model.mkdir()
    (model / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "flood", "fire"]))
    transformers.BertTokenizerFast.from_pretrained(str(model)).save_pretrained(model)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=7, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32, num_labels=1,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(model)
    args = ["index", "items.jsonl", "--out", "x", "--scorer", "tiny", "--anchor-queries", "queries.txt"]
    assert run(*args)[0] == 0
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")  # the index knows where its model is
    status, out, _ = run("search", folder / "x", "flood", "--budget", 10, "--json")
    assert status == 0 and json.loads(out)["calls"] == 10
