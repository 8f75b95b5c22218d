"""A user's mistake: status 2, one sentence on stderr that says what and where, nothing on stdout."""

import json

import pytest

SCORER = ("--scorer", "python:my_scorers:words")


@pytest.fixture
def fails(run):
    """Run, see that it fails as it should, and give the message."""

    def fails(*argv):
        status, out, err = run(*argv)
        assert (status, out) == (2, "")
        assert "error: " in err and "Traceback" not in err
        return err.split("error: ", 1)[1]

    return fails


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_corpus(fails, folder, content):
    (folder / "none.txt").write_text(content)
    assert "none.txt is empty" in fails("index", "none.txt", "--out", "x", *SCORER)


def test_a_broken_line(fails, folder):
    (folder / "broken.jsonl").write_text('{"id": "a", "text": "fine"}\n{"id": "b", "text"\n')
    assert "broken.jsonl:2: not valid JSON" in fails("index", "broken.jsonl", "--out", "x", *SCORER)
    assert not (folder / "x").exists()


@pytest.mark.parametrize("query", ["", "  "])
def test_an_empty_query(fails, index, query):
    assert "query is empty" in fails("search", index, query)
    assert "query is empty" in fails("rerank", query, "--items", "items.jsonl", *SCORER)


def test_an_empty_query_in_a_file(fails, index, folder):
    (folder / "q.jsonl").write_text('{"id": "q7", "text": " "}\n')
    assert "query 'q7' is empty" in fails("search", index, "--queries", "q.jsonl")


def test_no_query_or_two_sources(fails, index):
    assert "either one query" in fails("search", index)
    assert "either one query" in fails("search", index, "flood", "--queries", "queries.txt")


@pytest.mark.parametrize("flag", ["-k", "--budget", "--rounds"])
@pytest.mark.parametrize("value", ["0", "-3", "many", "1.5"])
def test_numbers_that_are_none(fails, index, flag, value):
    message = fails("search", index, "flood", flag, value)
    assert flag in message and "whole number of at least 1" in message and value in message


def test_more_rounds_than_calls(fails, index):
    assert "cannot be spent in 30 rounds" in fails("search", index, "flood", "--rounds", 30, "--budget", 20)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--method", "unknown method 'odd': choose from exact, rerank"),
        ("--first", "unknown first stage 'odd': choose from"),
        ("--selection", "unknown selection 'odd': choose from topk"),
    ],
)
def test_unknown_names(fails, index, flag, message):
    assert message in fails("search", index, "flood", flag, "odd")


def test_a_setting_that_the_method_lacks(fails, index):
    message = fails("search", index, "flood", "--method", "rerank", "--rounds", 2)
    assert "'rerank' has no setting 'rounds'" in message


def test_unknown_ids(fails, index):
    assert "no item with the id 'zz'" in fails("search", index, "flood", "--exclude", "zz")


def test_an_index_that_is_not_there_or_not_one(fails, folder):
    (folder / "empty").mkdir()
    assert "there is no folder none.index" in fails("search", "none.index", "flood")
    assert "empty is not an index" in fails("search", "empty", "flood")


def test_a_damaged_index(fails, index, folder):
    items = folder / index / "items" / "000000.jsonl"
    items.write_text(items.read_text().replace("flood", "flopd"))
    assert "000000.jsonl is damaged" in fails("search", index, "flood")
    (folder / index / "index.json").write_text('{"format": 1')
    assert "index.json" in fails("search", index, "flood")


def test_a_newer_index(fails, index, folder):
    manifest = folder / index / "index.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    assert "written by a newer crosscut" in fails("search", index, "flood")


def test_an_index_of_something_else_names_the_flag(fails, index, folder):
    (folder / "other.txt").write_text("one\n")
    assert "--overwrite to replace it" in fails("index", "other.txt", "--out", index, *SCORER)


def test_another_scorer_names_the_flag(fails, run, index):
    assert "--other-models" in fails("search", index, "flood", "--scorer", "crosscut-tiny")
    assert run("search", index, "flood", "--scorer", "crosscut-tiny", "--other-models")[0] == 0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("raises", "scorer python:my_scorers:raises failed: RuntimeError: out of memory"),
        ("too_few", "was asked for"),
        ("nan", "not a finite number, first nan to query 'flood damage' with item 'policy 0"),
    ],
)
def test_a_scorer_that_fails(fails, folder, function, message):
    scorer = f"python:my_scorers:{function}"
    assert message in fails("rerank", "flood damage", "--items", "items.jsonl", "--scorer", scorer)
    build = ["index", "items.jsonl", "--out", "x", "--scorer", scorer, "--anchor-queries", "queries.txt"]
    assert message in fails(*build)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("python:no_such_module:f", "cannot import the module 'no_such_module'"),
        ("python:my_scorers:no_such", "has no 'no_such'"),
        ("python:my_scorers", "not of the form python:module:attribute"),
        ("python:my_scorers:Model", "cannot score with"),
        ("./no/such/model", "there is no model folder"),
    ],
)
def test_a_scorer_that_cannot_be_found(fails, folder, name, message):
    assert message in fails("index", "items.jsonl", "--out", "x", "--scorer", name)


def test_a_module_that_is_gone_when_the_index_is_searched(fails, index, folder, monkeypatch):
    import sys

    (folder / "my_scorers.py").unlink()
    monkeypatch.delitem(sys.modules, "my_scorers")
    assert "cannot import the module 'my_scorers'" in fails("search", index, "flood")


def test_folders_that_cannot_be_written(fails, index, folder):
    assert "items.jsonl" in fails("index", "items.jsonl", "--out", "items.jsonl", *SCORER)
    assert "cannot write" in fails("index", "items.jsonl", "--out", "items.jsonl/x", *SCORER)
    assert "cannot write no/x.run" in fails("search", index, "flood", "--format", "trec", "--out", "no/x.run")


def test_anchors(fails, folder):
    index = ["index", "items.jsonl", "--out", "x", *SCORER]
    assert "add --anchor-queries" in fails(*index, "--anchors", 2)
    assert "has 3 queries, but --anchors asks for 9" in fails(
        *index, "--anchors", 9, "--anchor-queries", "queries.txt"
    )
    assert "both come from stdin" in fails("index", "-", "--out", "x", *SCORER, "--anchor-queries", "-")


def test_eval(fails, folder):
    (folder / "r").write_text("1 Q0 a7 1 2.0 x\n")
    (folder / "qrels").write_text("1 0 a7 1\n")
    assert "unknown measure 'wow@3'" in fails("eval", "r", "--qrels", "qrels", "--measures", "wow@3")
    (folder / "r").write_text("1 Q0 a7\n")
    assert "r:1: expected query Q0 item rank score tag" in fails("eval", "r", "--qrels", "qrels")


def test_bench(fails, folder):
    (folder / "m.npz").write_bytes(b"no zip")
    assert "not a readable .npz" in fails("bench", "matrix", "m.npz")
    assert "there is no file none.npz" in fails("bench", "matrix", "none.npz")
    assert "whole number of at least 1" in fails("bench", "matrix", "m.npz", "--budgets", "100,x")
