"""BEIR folders: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, each possibly with .gz."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsIndex

from crosscut.data.lines import find_file, need_file, write_text
from crosscut.data.plain import read_item_file, read_query_file
from crosscut.data.records import json_lines
from crosscut.data.trec import BEIR_HEADER, read_qrels, whole
from crosscut.errors import CrosscutError
from crosscut.types import Item, Query


@dataclass(frozen=True)
class Beir:
    """One split of a BEIR data set."""

    items: list[Item]
    queries: list[Query]
    qrels: dict[str, dict[str, int]]


def read_beir(folder: str | Path, split: str = "test") -> Beir:
    """All items, and the judgements of one split with the queries that they judge.

    >>> import tempfile
    >>> items, queries = [Item("a1", "covers floods")], [Query("q1", "floods?"), Query("q2", "fire?")]
    >>> folder = tempfile.mkdtemp()
    >>> write_beir(folder, items, queries, {"test": {"q1": {"a1": 1}}})
    >>> data = read_beir(folder)
    >>> data.items == items, data.queries, data.qrels
    (True, [Query(id='q1', text='floods?')], {'q1': {'a1': 1}})
    """
    folder = Path(folder)
    corpus, queries = need_file(folder, "corpus.jsonl"), need_file(folder, "queries.jsonl")
    qrels_path = find_file(folder / "qrels", f"{split}.tsv")
    if qrels_path is None:
        splits = ", ".join(_splits(folder)) or "none"
        raise CrosscutError(f"{folder} has no split {split!r}; its splits are: {splits}")
    qrels = read_qrels(qrels_path)
    judged = [query for query in read_query_file(queries) if query.id in qrels]
    if unknown := sorted(qrels.keys() - {query.id for query in judged}):
        named = ", ".join(map(repr, unknown[:5]))
        raise CrosscutError(f"{qrels_path} judges {len(unknown)} queries that are not in {queries}: {named}")
    return Beir(read_item_file(corpus), judged, qrels)


def _splits(folder: Path) -> list[str]:
    names = (path.name.removesuffix(".gz") for path in (folder / "qrels").glob("*.tsv*"))
    return sorted({name.removesuffix(".tsv") for name in names if name.endswith(".tsv")})


def write_beir(
    folder: str | Path,
    items: Iterable[Item],
    queries: Iterable[Query],
    qrels_by_split: Mapping[str, Mapping[str, Mapping[str, SupportsIndex]]],
    compress: bool = False,
) -> None:
    """Write a BEIR folder, with .gz files if `compress`; splits that are already there are kept.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_beir(folder, [Item("a1", "covers floods")], [Query("q1", "floods?")], {}, compress=True)
    >>> sorted(path.name for path in folder.iterdir())
    ['corpus.jsonl.gz', 'queries.jsonl.gz']
    """
    folder = Path(folder)
    corpus = [{"_id": item.id, "title": item.title, "text": item.text} for item in items]
    asked = [{"_id": query.id, "text": query.text} for query in queries]
    _write(folder / "corpus.jsonl", json_lines("items", "_id", corpus), compress)
    _write(folder / "queries.jsonl", json_lines("queries", "_id", asked), compress)
    for split, qrels in qrels_by_split.items():
        if not re.fullmatch(r"\w[\w.-]*", split):
            raise CrosscutError(f"a split is named by letters, digits, '_', '-' and '.', not {split!r}")
        _write(folder / "qrels" / f"{split}.tsv", _qrels_lines(qrels), compress)


def _write(path: Path, lines: list[str], compress: bool) -> None:
    packed = path.with_name(f"{path.name}.gz")
    target, other = (packed, path) if compress else (path, packed)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_text(target) as file:
            file.writelines(lines)
        other.unlink(missing_ok=True)  # or the folder would hold the old data beside the new
    except OSError as error:
        raise CrosscutError(f"cannot write {path.parent}: {error.strerror or error}") from error


def _qrels_lines(qrels: Mapping[str, Mapping[str, SupportsIndex]]) -> list[str]:
    rows = [
        (_cell(query), _cell(item), str(whole(relevance, query, item)))
        for query, items in qrels.items()
        for item, relevance in items.items()
    ]
    return ["\t".join(row) + "\n" for row in (BEIR_HEADER, *rows)]


def _cell(id: str) -> str:
    if not id or re.search(r"[\t\r\n]", id):
        raise CrosscutError(f"id {id!r} is empty or has a tab or a line end, which BEIR's qrels cannot hold")
    return id
