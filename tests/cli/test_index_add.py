"""`crosscut index --add` and `--dry-run`: only what is new is scored; a dry run writes nothing."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

SCORER = ("--scorer", "python:my_scorers:words")


def lines(first, last):
    return "".join(json.dumps({"id": f"a{n}", "text": f"policy {n}"}) + "\n" for n in range(first, last))


@pytest.fixture
def built(run, folder):
    """x: the first 20 items, against three anchor queries."""
    (folder / "few.jsonl").write_text(lines(0, 20))
    (folder / "all.jsonl").write_text(lines(0, 30))
    command = ["index", "few.jsonl", "--out", "x", *SCORER, "--anchor-queries", "queries.txt", "--json"]
    assert json.loads(run(*command)[1])["calls"] == 60
    return "x"


def test_more_items_are_scored_and_the_old_ones_are_not(run, built, folder):
    (folder / "more.jsonl").write_text(lines(20, 30))
    status, out, _ = run("index", "more.jsonl", "--out", "x", "--add", *SCORER, "--json")
    added = json.loads(out)
    assert status == 0
    assert (added["calls"], added["items"], added["anchor_queries"]) == (10 * 3, 30, 3)
    assert (added["added_items"], added["added_anchor_queries"]) == (10, 0)
    found = json.loads(run("search", "x", "policy 27", "--json", *SCORER)[1])
    assert found["hits"][0]["id"] == "a27"


def test_a_file_that_has_grown_adds_what_is_new_in_it_and_once(run, built, folder):
    (folder / "queries.txt").write_text("flood damage\nfire damage\npolicy 7\npolicy 8\n")
    command = ["index", "all.jsonl", "--out", "x", "--add", *SCORER, "--anchor-queries", "queries.txt"]
    status, out, _ = run(*command)
    assert status == 0
    assert "x: 10 items and 1 anchor queries added, now 30 items, 4 anchor queries; 60 calls" in out
    assert json.loads(run(*command, "--json")[1])["calls"] == 0
    run("index", "all.jsonl", "--out", "whole", *SCORER, "--anchor-queries", "queries.txt")
    ask = ["policy 8", "--budget", 10, "--json", *SCORER]
    hits = [json.loads(run("search", index, *ask)[1])["hits"] for index in ("x", "whole")]
    assert hits[0] == hits[1]


def test_anchor_queries_alone(run, built, folder):
    (folder / "new.jsonl").write_text('{"id": "n1", "text": "policy 9"}\n')
    out = run("index", "--out", "x", "--add", "--anchor-queries", "new.jsonl", *SCORER, "--json")[1]
    assert (json.loads(out)["calls"], json.loads(out)["anchor_queries"]) == (20, 4)


def test_the_models_are_those_of_the_index(run, folder):
    (folder / "few.txt").write_text("one\ntwo\n")
    (folder / "more.txt").write_text("one\ntwo\nthree\n")
    assert run("index", "few.txt", "--out", "x")[0] == 0
    assert run("index", "more.txt", "--out", "x", "--add")[0] == 0
    (folder / "more.txt").write_text("one\ntwo\nthree\nfour\n")
    for flag in ("--dry-run", "--json"):
        status, _, err = run("index", "more.txt", "--out", "x", "--add", *SCORER, flag)
        assert status == 2 and "the index was built with scorer 'crosscut-tiny'" in err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["changed.jsonl", "--out", "x", "--add", *SCORER], "holds another text for the item 'a3'"),
        (["few.jsonl", "--out", "x", "--add"], "give --scorer python:my_scorers:words if you trust that code"),
        (["few.jsonl", "--out", "y", "--add", *SCORER], "there is no folder y"),
        (["few.jsonl", "--out", "x", "--add", "--overwrite", *SCORER], "does not go with --overwrite"),
        (["few.jsonl", "--out", "x", "--add", "--store", "int8", *SCORER], "does not go with --store"),
        (["few.jsonl", "--out", "x", "--add", "--anchor-items", "2"], "does not go with --anchor-items"),
        (["few.jsonl", "--out", "x", "--add", "--lexical", "tfidf", *SCORER], "does not go with --lexical"),
        (["few.jsonl", "--out", "x", "--add", "--lexical", "bm25", *SCORER], "does not go with --lexical"),
        (["few.jsonl", "--out", "x", "--add", "--seed", "0", *SCORER], "does not go with --seed"),
        (["--out", "x", "--add", *SCORER], "nothing is given to add"),
        (["--out", "x", *SCORER], "no items are given"),
        (["all.jsonl", "--out", "x", *SCORER, "--anchor-queries", "queries.txt"], "`crosscut index --add`"),
    ],
)
def test_what_cannot_be_added(run, built, folder, command, message):
    (folder / "changed.jsonl").write_text('{"id": "a3", "text": "no policy"}\n')
    before = (folder / "x" / "index.json").read_bytes()
    status, out, err = run("index", *command)
    assert (status, out) == (2, "")
    assert message in err
    assert (folder / "x" / "index.json").read_bytes() == before


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_addition_that_was_killed_goes_on_where_it_was(run, folder):
    (folder / "few.jsonl").write_text(lines(0, 5))
    (folder / "all.jsonl").write_text(lines(0, 25))
    (folder / "anchors.txt").write_text("".join(f"policy {n}\n" for n in range(96)))
    slow = ["--scorer", "python:my_scorers:slow"]
    assert run("index", "few.jsonl", "--out", "x", *slow, "--anchor-queries", "anchors.txt")[0] == 0
    (folder / "calls.log").unlink()
    command = ["index", "all.jsonl", "--out", "x", "--add", *slow, "--json"]
    process = subprocess.Popen([sys.executable, "-m", "crosscut.cli", *command], stdout=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while len(list(folder.glob("x/scores/q000000-i000001.tiles/*.npy"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    kept = len(list(folder.glob("x/scores/*.tiles/*.npy")))
    assert 2 <= kept < 6
    (folder / "calls.log").unlink()
    assert json.loads(run(*command)[1])["calls"] == 20 * (96 - 16 * kept)
    assert len((folder / "calls.log").read_text().splitlines()) == 96 - 16 * kept
    assert json.loads(run(*command)[1])["calls"] == 0


def test_a_dry_run_says_what_it_would_take_and_makes_nothing(run, folder):
    names = {path.name for path in folder.iterdir()}
    command = ["index", "items.jsonl", "--out", "x", *SCORER, "--anchor-queries", "queries.txt", "--dry-run"]
    status, out, err = run(*command)
    assert (status, err) == (0, "")
    assert "x: nothing is written" in out and "pairs     120 to score" in out and "pairs/s" in out
    assert "time      about 1 second" in out and "calls of the scorer" in out
    cost = json.loads(run(*command, "--json", "--encoder", "python:my_scorers:model", "--store", "int8")[1])
    assert (cost["pairs"], cost["pairs_done"], cost["texts"]) == (120, 0, 43)
    assert cost["score_bytes"] == 120 + 3 * 8 and cost["vector_bytes"] == 43 * 3 * 2
    assert cost["calls"] > 0 and cost["seconds"] > 0 and cost["disk_bytes"] > cost["text_bytes"]
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == names


def test_a_dry_run_for_several_workers(run, folder):
    command = ["index", "items.jsonl", "--out", "x", *SCORER, "--anchor-queries", "queries.txt", "--dry-run"]
    command += ["--encoder", "none"]
    workers = ["--executor", "processes", "--workers", 4]
    assert ", with 4 workers " in run(*command, *workers)[1]
    cost = json.loads(run(*command, *workers, "--json")[1])
    assert cost["workers"] == 4
    assert cost["seconds"] == pytest.approx(120 / cost["pairs_per_second"] / 4)


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_what_the_workers_cannot_have_a_dry_run_refuses_too(run, folder, dry):
    (folder / "my_scorers.py").write_text("length = lambda query, texts: [float(len(text)) for text in texts]\n")
    command = ["index", "items.jsonl", "--out", "x", "--scorer", "python:my_scorers:length", *dry]
    status, out, err = run(*command, "--anchor-queries", "queries.txt", "--executor", "processes")
    assert (status, out) == (2, "")
    assert "cannot be sent to another process" in err and "tiles are done" not in err
    assert not (folder / "x").exists()


def test_a_dry_run_of_what_is_done_already(run, built, folder):
    before = sorted((folder / "x").rglob("*"))
    command = ["index", "few.jsonl", "--out", "x", *SCORER, "--anchor-queries", "queries.txt", "--dry-run"]
    out = run(*command)[1]
    assert "60 of them done already: 0 are left" in out and "nothing left to do" in out
    out = run("index", "all.jsonl", "--out", "x", *SCORER, "--add", "--dry-run")[1]
    assert "90 to score, 60 of them done already: 30 are left" in out
    assert sorted((folder / "x").rglob("*")) == before


def test_store_int8(run, folder):
    command = ["index", "items.jsonl", "--out", "x", *SCORER, "--anchor-queries", "queries.txt", "--store", "int8"]
    assert run(*command)[0] == 0
    assert json.loads((folder / "x" / "index.json").read_text())["dtype"] == "int8"
    assert run("search", "x", "policy 7", *SCORER)[0] == 0


@pytest.mark.models
def test_pairs_that_were_cut_are_told(run, folder):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = folder / "tiny"
    model.mkdir()
    (model / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "flood", "fire"]))
    transformers.BertTokenizerFast.from_pretrained(str(model)).save_pretrained(model)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=7, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, num_labels=1,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(model)
    (folder / "long.txt").write_text("flood " * 40 + "\nfire\n")
    (folder / "q.txt").write_text("flood\nfire\nflood fire\n")
    command = ["index", "long.txt", "--out", "x", "--scorer", "tiny", "--anchor-queries", "q.txt"]
    dry = json.loads(run(*command, "--dry-run", "--json")[1])
    assert 0 < dry["truncated"] < dry["calls"]
    status, out, err = run(*command, "--json")
    assert status == 0 and json.loads(out)["truncated"] == 3
    assert "hint: 3 of 6 pairs were cut to the limit of 16 tokens" in err
