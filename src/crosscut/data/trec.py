"""TREC runs, and relevance judgements (qrels) in TREC's and in BEIR's form."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import SupportsFloat, SupportsIndex, TextIO

from crosscut.data.lines import error_at, read_lines, source_name, write_text
from crosscut.data.records import refuse_duplicates
from crosscut.errors import CrosscutError

BEIR_HEADER = ("query-id", "corpus-id", "score")

_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]+)(\.0+)?")  # some tools write 1.0


def read_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    r"""Judgements as {query id: {item id: relevance}}, from BEIR's tsv or TREC's four columns.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "test.qrels"
    >>> _ = path.write_text("q1 0 a1 1\nq1 0 a2 0\n")
    >>> read_qrels(path)
    {'q1': {'a1': 1, 'a2': 0}}
    """
    source = source_name(path)
    qrels: dict[str, dict[str, int]] = {}
    pairs: list[tuple[str, str]] = []
    lines: list[int] = []
    for line, query, item, relevance in _judgements(source, read_lines(path)):
        match = _WHOLE_NUMBER.fullmatch(relevance)
        if not match:
            raise error_at(source, line, f"relevance must be a whole number, not {relevance!r:.80}")
        qrels.setdefault(query, {})[item] = int(match[1])
        pairs.append((query, item))
        lines.append(line)
    if not qrels:
        raise CrosscutError(f"{source} is empty: expected at least one judgement")
    refuse_duplicates(source, pairs, lines, "(query, item) pairs")
    return qrels


def _judgements(source: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, str, str]]:
    """The first line decides: three columns between tabs are BEIR's, whose ids may hold spaces."""
    is_beir: bool | None = None
    for number, line in lines:
        if not line.strip():
            continue
        by_tab, by_space = line.split("\t"), line.split()
        if is_beir is None:
            is_beir = len(by_tab) == 3
            if is_beir and tuple(field.strip().lower() for field in by_tab) == BEIR_HEADER:
                continue
        if is_beir and len(by_tab) == 3 and all(by_tab):
            yield number, by_tab[0], by_tab[1], by_tab[2].strip()
        elif not is_beir and len(by_space) == 4:
            yield number, by_space[0], by_space[2], by_space[3]
        else:
            form = "query-id<TAB>corpus-id<TAB>score" if is_beir else "query 0 item relevance"
            raise error_at(source, number, f"expected {form}, found {line!r:.80}")


def write_qrels(path: str | Path, qrels: Mapping[str, Mapping[str, SupportsIndex]]) -> None:
    """Write judgements in TREC's form.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "test.qrels"
    >>> write_qrels(path, {"q1": {"a1": 1}})
    >>> path.read_text()
    'q1 0 a1 1\\n'
    """
    with write_text(path) as file:
        for query, items in qrels.items():
            for item, relevance in items.items():
                file.write(
                    f"{_word(query, 'query id')} 0 {_word(item, 'item id')} {whole(relevance, query, item)}\n"
                )


def whole(relevance: SupportsIndex, query: str, item: str) -> int:
    """Relevance as a plain whole number.

    >>> whole(True, "q1", "a1")
    1
    """
    try:
        return operator.index(relevance)
    except TypeError as error:
        what = f"relevance of item {item!r} for query {query!r} must be a whole number, not {relevance!r}"
        raise CrosscutError(what) from error


def read_run(path: str | Path) -> dict[str, dict[str, float]]:
    r"""A run as {query id: {item id: score}}, in the order of the file; its ranks and tag are not used.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.run"
    >>> _ = path.write_text("q1 Q0 a7 1 3.5 crosscut\n")
    >>> read_run(path)
    {'q1': {'a7': 3.5}}
    """
    source = source_name(path)
    run: dict[str, dict[str, float]] = {}
    pairs: list[tuple[str, str]] = []
    lines: list[int] = []
    for number, line in read_lines(path):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 6:
            raise error_at(source, number, f"expected query Q0 item rank score tag, found {line!r:.80}")
        query, _, item, _, score, _ = fields
        run.setdefault(query, {})[item] = _parse_score(score, source, number)
        pairs.append((query, item))
        lines.append(number)
    if not run:
        raise CrosscutError(f"{source} is empty: expected at least one line of a run")
    refuse_duplicates(source, pairs, lines, "(query, item) pairs")
    return run


def _parse_score(text: str, source: str, line: int) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if math.isnan(score):
        raise error_at(source, line, f"the score must be a number, not {text!r:.80}")
    return score


def write_run(
    path_or_file: str | Path | TextIO,
    results: Mapping[str, Iterable[tuple[str, SupportsFloat]]],
    tag: str = "crosscut",
) -> None:
    """Write {query id: (item id, score) pairs, best first} as a TREC run; ranks start at 1.

    Evaluation tools sort by score and ignore the rank, so scores that contradict the order are refused.

    >>> import sys
    >>> write_run(sys.stdout, {"q1": [("a7", 3.5), ("a2", -1.25)]})
    q1 Q0 a7 1 3.5 crosscut
    q1 Q0 a2 2 -1.25 crosscut
    """
    if isinstance(path_or_file, (str, Path)):
        with write_text(path_or_file) as file:
            file.writelines(_run_lines(results, tag))
    else:
        path_or_file.writelines(_run_lines(results, tag))


def _run_lines(results: Mapping[str, Iterable[tuple[str, SupportsFloat]]], tag: str) -> Iterator[str]:
    _word(tag, "tag")
    for query, hits in results.items():
        _word(query, "query id")
        seen: set[str] = set()
        last = math.inf
        for rank, (item, raw_score) in enumerate(hits, start=1):
            score = float(raw_score)
            if item in seen:
                raise CrosscutError(f"query {query!r} has item {item!r} more than once in its results")
            if math.isnan(score) or score > last:
                where = f"query {query!r}, item {item!r} at rank {rank}"
                raise CrosscutError(f"{where}: score {score} after {last}; results must be sorted, best first")
            yield f"{query} Q0 {_word(item, 'item id')} {rank} {score!r} {tag}\n"
            seen.add(item)
            last = score


def _word(value: str, what: str) -> str:
    """TREC columns are parted by white space, and a byte-order mark would be lost at the file's start."""
    if value.split() != [value] or value.startswith("\ufeff"):
        raise CrosscutError(f"{what} {value!r} is empty or has white space, which a TREC file cannot hold")
    return value
