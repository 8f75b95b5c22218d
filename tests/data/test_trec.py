"""Runs and judgements: what is written is read back, what is broken is named."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.data import read_qrels, read_run, write_qrels, write_run
from crosscut.errors import CrosscutError

WORD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda word: word.split() == [word] and not word.startswith("\ufeff")
)
SCORE = st.floats(allow_nan=False)


def per_query(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.dictionaries(WORD, st.dictionaries(WORD, values, min_size=1, max_size=5), min_size=1, max_size=5)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@given(run=per_query(SCORE))
@settings(deadline=None)  # a slow disk is no failure
def test_run_round_trip(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, run: dict[str, dict[str, float]]
) -> None:
    path = tmp_path_factory.getbasetemp() / f"a.run{suffix}"
    ranked = {query: sorted(hits.items(), key=lambda hit: -hit[1]) for query, hits in run.items()}
    write_run(path, ranked)
    assert read_run(path) == run
    assert [list(hits) for hits in read_run(path).values()] == [[id for id, _ in hits] for hits in ranked.values()]


@given(qrels=per_query(st.integers(-5, 5)))
@settings(deadline=None)  # a slow disk is no failure
def test_qrels_round_trip(tmp_path_factory: pytest.TempPathFactory, qrels: dict[str, dict[str, int]]) -> None:
    path = tmp_path_factory.getbasetemp() / "a.qrels"
    write_qrels(path, qrels)
    assert read_qrels(path) == qrels


def test_run_lines() -> None:
    file = io.StringIO()
    write_run(
        file,
        {"q2": iter([("b", np.float32(0.5)), ("a", 0.5)]), "q1": [("a", -math.inf)], "q0": []},
        tag="mine",
    )
    assert file.getvalue() == "q2 Q0 b 1 0.5 mine\nq2 Q0 a 2 0.5 mine\nq1 Q0 a 1 -inf mine\n"


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({"q 1": [("a", 1.0)]}, "query id 'q 1' is empty or has white space"),
        ({"q": [("a\u2028b", 1.0)]}, "item id"),
        ({"q": [("", 1.0)]}, "item id"),
        ({"q": [("a", 1.0), ("b", 2.0)]}, "query 'q', item 'b' at rank 2: score 2.0 after 1.0"),
        ({"q": [("a", math.nan)]}, "score nan"),
        ({"q": [("a", 1.0), ("a", 0.0)]}, "item 'a' more than once"),
        ({"q": [("\ud800", 1.0)]}, "surrogate"),
    ],
)
def test_run_refuses(tmp_path: Path, results: dict[str, list[tuple[str, float]]], message: str) -> None:
    with pytest.raises(CrosscutError, match=message):
        write_run(tmp_path / "a.run", results)
    assert list(tmp_path.iterdir()) == []


def test_tag_must_be_a_word() -> None:
    with pytest.raises(CrosscutError, match="tag 'my run'"):
        write_run(io.StringIO(), {}, tag="my run")


@pytest.mark.parametrize(
    "content",
    [
        "query-id\tcorpus-id\tscore\nq 1\ta1\t1\nq 1\ta2\t0\n",
        "\ufeffquery-id\tcorpus-id\tscore\r\nq 1\ta1\t1\r\n\r\nq 1\ta2\t0\r\n",
        "q 1\ta1\t1.0\nq 1\ta2\t0\n",
    ],
)
def test_beir_qrels(tmp_path: Path, content: str) -> None:
    (tmp_path / "test.tsv").write_bytes(content.encode())
    assert read_qrels(tmp_path / "test.tsv") == {"q 1": {"a1": 1, "a2": 0}}


@pytest.mark.parametrize("content", ["q1 0 a1 1\nq1 0 a2 -1\n", "q1\t0\ta1\t1\r\n\nq1  Q0  a2  -1"])
def test_trec_qrels(tmp_path: Path, content: str) -> None:
    (tmp_path / "test.qrels").write_bytes(content.encode())
    assert read_qrels(tmp_path / "test.qrels") == {"q1": {"a1": 1, "a2": -1}}


BAD_QRELS = [
    ("", "a is empty: expected at least one judgement"),
    ("query-id\tcorpus-id\tscore\n", "a is empty"),
    ("q1 0 a1\n", "a:1: expected query 0 item relevance"),
    ("q1 0 a1 1\nq1 a2 1\n", "a:2: expected query 0 item relevance"),
    ("q1 0 a1 high\n", "a:1: relevance must be a whole number, not 'high'"),
    ("q1\ta1\t0.5\n", "a:1: relevance must be a whole number"),
    ("query-id\tcorpus-id\tscore\nq1\ta1\n", "a:2: expected query-id<TAB>corpus-id<TAB>score"),
    ("query-id\tcorpus-id\tscore\nq1\t\t1\n", "a:2: expected"),
    ("q1 0 a1 1\nq1 0 a1 0\n", "pairs must be unique, but ('q1', 'a1') is on lines 1, 2"),
]


@pytest.mark.parametrize(("content", "message"), BAD_QRELS)
def test_broken_qrels(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a").write_text(content)
    with pytest.raises(CrosscutError) as caught:
        read_qrels(tmp_path / "a")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n", "a is empty"),
        ("q1 Q0 a1 1 3.5\n", "a:1: expected query Q0 item rank score tag"),
        ("q1 Q0 a1 1 best tag\n", "a:1: the score must be a number, not 'best'"),
        ("q1 Q0 a1 1 nan tag\n", "a:1: the score must be a number, not 'nan'"),
        ("q1 Q0 a1 1 2 t\nq1 Q0 a2 1 2 t\nq1 Q0 a1 1 2 t\n", "('q1', 'a1') is on lines 1, 3"),
    ],
)
def test_broken_runs(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a").write_text(content)
    with pytest.raises(CrosscutError) as caught:
        read_run(tmp_path / "a")
    assert message in str(caught.value)


def test_written_qrels_are_checked(tmp_path: Path) -> None:
    with pytest.raises(CrosscutError, match="item id 'a 1'"):
        write_qrels(tmp_path / "a", {"q": {"a 1": 1}})
    with pytest.raises(
        CrosscutError, match=r"relevance of item 'a' for query 'q' must be a whole number, not 0.5"
    ):
        write_qrels(tmp_path / "a", {"q": {"a": 0.5}})  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []
