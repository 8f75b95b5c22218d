"""`crosscut demo` on a small part of the standard library."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from crosscut.cli import demo
from crosscut.cli.plots import svg_plot, terminal_plot
from crosscut.data.docstrings import read_docstrings
from crosscut.scorers import ExportedScorer

ITEMS = 60  # more than that are in these modules


@pytest.fixture
def small(folder, monkeypatch):
    monkeypatch.setattr(read_docstrings, "__defaults__", ("csv json subprocess shutil threading",))
    monkeypatch.setattr(demo, "ANCHORS", "read a file\ncopy a folder")
    monkeypatch.setattr(demo, "HELD_OUT", "wait for a process\nwrite rows of a table\nlock something")
    return folder


def test_it_builds_answers_and_compares(run, small):
    status, out, err = run("demo")
    assert (status, err) == (0, "")
    items = int(re.search(r"demo\.index: (\d+) docstrings", out)[1])
    assert items > ITEMS
    assert f"{2 * items} calls made" in out
    for question in demo.QUESTIONS:
        assert f"\n{question}?\nrank " in out
    found = {line.split()[0]: re.findall(r"([\d.]+) %", line) for line in out.splitlines() if line.endswith(" %")}
    assert list(found) == ["rerank", "crosscut"]
    for percents in found.values():
        assert len(percents) == len(demo.BUDGETS) and float(percents[-1]) == 100.0  # more calls than items
    assert "c crosscut, r rerank" in out
    assert ElementTree.parse(small / "demo.svg").getroot().tag.endswith("svg")
    assert out.splitlines()[-2:] == [
        "  crosscut index FILE --out my.index",
        '  crosscut search my.index "QUESTION"',
    ]


def test_a_second_run_starts_from_what_is_there(run, small):
    first = run("demo")[1]
    status, out, _ = run("demo")
    assert status == 0
    assert "all of it was there from an earlier run" in out and "known from an earlier run" in out
    assert out.splitlines()[-3].startswith("300 calls in all")  # those of the three questions
    assert out.partition("Found of")[2].split("calls in all")[0].rpartition("\n")[0] in first
    assert run("search", "demo.index", "wait for a thread to end", "--budget", 20)[0] == 0


def test_the_truth_of_other_items_is_not_taken(run, small, monkeypatch):
    run("demo")
    monkeypatch.setattr(read_docstrings, "__defaults__", ("csv json subprocess",))
    status, _, err = run("demo")
    assert status == 2 and "holds an index of something else" in err and "--overwrite" in err
    for content in (None, b"not a matrix"):
        if content:
            (small / "demo.truth.npz").write_bytes(content)
        status, out, _ = run("demo", "--overwrite")
        assert status == 0 and "known from an earlier run" not in out


def test_ctrl_c_keeps_what_was_done(run, small, monkeypatch):
    score = ExportedScorer._score
    with monkeypatch.context() as patch:
        patch.setattr(ExportedScorer, "_score", lambda self, pairs: (_ for _ in ()).throw(KeyboardInterrupt))
        status, _, err = run("demo")
    assert status == 130
    assert err.strip() == "crosscut: stopped; finished work is kept, and the same command continues"

    def once_more(self, pairs):
        if len(pairs) > ITEMS and any(query == "lock something" for query, _ in pairs):
            raise KeyboardInterrupt
        return score(self, pairs)

    with monkeypatch.context() as patch:
        patch.setattr(ExportedScorer, "_score", once_more)
        assert run("demo")[0] == 130
    status, out, _ = run("demo")
    assert status == 0 and "all of it was there from an earlier run" in out  # the index, not yet the truth
    assert "known from an earlier run" not in out


def test_plots_of_odd_curves():
    assert terminal_plot({"a": [(5, 0.0)], "b": [(5, 0.0)]}, 10, 2).splitlines()[2] == "  0 %|a---------"
    assert "&lt;a&gt;" in svg_plot({"<a>": [(5, 1.0)]}, "one & two")
