"""Search results as a table, JSON, lines of JSON or a TREC run, on stdout or in a file."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from crosscut.errors import CrosscutError
from crosscut.types import Query, SearchResult

if TYPE_CHECKING:
    from crosscut.scorers import Scorer

NARROWEST_TEXT = 20


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """--format, --json, --out and --tag."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--format",
        choices=["table", "json", "jsonl", "trec"],
        default="table",
        help="table; json: one object for one query, an array for a file of queries; jsonl: one object a line; "
        "trec: a run file, in which a single query has the id 1 (default: %(default)s)",
    )
    form.add_argument("--json", dest="format", action="store_const", const="json", help="same as --format json")
    parser.add_argument("--out", metavar="FILE", help="write to FILE, whole or not at all (default: stdout)")
    parser.add_argument(
        "--tag", default="crosscut", help="the name of the run in a TREC file (default: %(default)s)"
    )


def check_text(query: str) -> str:
    """A query from the command line, refused if it is empty.

    >>> check_text(" ")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: the query is empty: give it some words
    """
    if not query.strip():
        raise CrosscutError("the query is empty: give it some words")
    try:
        query.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CrosscutError("the query is not valid UTF-8: check the encoding of your terminal") from error
    return query


def write_results(
    queries: Sequence[Query], results: Sequence[SearchResult], args: argparse.Namespace, single: bool
) -> None:
    """Print or write the results; `single` says that there is one query, which came without an id."""
    from crosscut.data.lines import write_text

    text = _render(queries, results, args, single)
    if args.out is None:
        if args.format != "table" and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # data is UTF-8 whatever the terminal is
        sys.stdout.write(text)
        return
    with write_text(args.out) as file:
        file.write(text)


def hint_at_cuts(scorer: Scorer) -> None:
    """Say on stderr if texts were too long for the scorer.

    >>> from crosscut.scorers import as_scorer
    >>> hint_at_cuts(as_scorer(lambda query, texts: [0.0 for _ in texts]))
    """
    if truncated := getattr(scorer, "truncated", 0):
        longest = getattr(scorer, "max_length", None)
        limits = [f"the limit of {longest} tokens"] if longest else []
        limits += [f"{key}={value}" for key, value in scorer.options().items() if key.endswith("_tokens")]
        cut = " and ".join(limits) or "what the scorer reads"
        print(
            f"hint: {truncated} of {scorer.calls} pairs were cut to {cut}: what came after counts for nothing",
            file=sys.stderr,
        )


def _render(
    queries: Sequence[Query], results: Sequence[SearchResult], args: argparse.Namespace, single: bool
) -> str:
    if args.format == "table":
        return "\n".join(
            ("" if single else f"{_one_line(query.id)}: {_one_line(query.text)}\n") + table(result)
            for query, result in zip(queries, results, strict=True)
        )
    if args.format == "trec":
        from crosscut.data import write_run

        ranked = {q.id: [(hit.id, hit.score) for hit in r] for q, r in zip(queries, results, strict=True)}
        file = io.StringIO()
        write_run(file, ranked, args.tag)
        return file.getvalue()
    objects = [
        ({} if single else {"id": query.id}) | as_object(result)
        for query, result in zip(queries, results, strict=True)
    ]
    if args.format == "jsonl":
        return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in objects)
    return json.dumps(objects[0] if single else objects, ensure_ascii=False, indent=1) + "\n"


def as_object(result: SearchResult) -> dict[str, Any]:
    """A result as JSON has it; trace and stages only if there are any.

    >>> from crosscut.types import Seconds
    >>> as_object(SearchResult("sky?", (), calls=2, rounds=1, seconds=Seconds(0.5, 0.0, 0.0)))["seconds"]
    {'scoring': 0.5, 'fitting': 0.0, 'selecting': 0.0}
    """
    made = asdict(result)
    return {key: value for key, value in made.items() if value is not None or key not in ("trace", "stages")}


def table(result: SearchResult) -> str:
    """Rank, score, id and as much of the text as fits; below, what it cost.

    >>> from crosscut.types import Hit, Seconds
    >>> result = SearchResult("sky?", (Hit(1, "a1", 3.5, "blue sky"),), 2, 1, Seconds(0.5, 0.0, 0.0))
    >>> print(table(result))
    rank     score  id  text
       1     3.500  a1  blue sky
    2 calls in 1 round, 0.500 s (scoring 0.500, fitting 0.000, selecting 0.000)
    <BLANKLINE>
    """
    ids = [_one_line(hit.id) for hit in result]
    width = max([2, *map(len, ids)])
    room = max(NARROWEST_TEXT, shutil.get_terminal_size().columns - width - 18)
    lines = [f"rank {'score':>9}  {'id':<{width}}  text"]
    for hit, id in zip(result, ids, strict=True):
        lines.append(f"{hit.rank:>4} {hit.score:>9.3f}  {id:<{width}}  {_shorten(hit.text, room)}")
    lines += [
        *_stage_lines(result),
        *_trace_lines(result),
        f"{_count(result.calls, 'call')} in {_count(result.rounds, 'round')}, ",
    ]
    lines[-1] += str(result.seconds)
    return "\n".join(lines) + "\n"


def _stage_lines(result: SearchResult) -> list[str]:
    """A line for each stage of a pipeline, if the trace was asked for."""
    return [
        f"stage {one.name}: {_count(one.items_in, 'item')} in, {one.items_out} out, {_count(one.calls, 'call')}, "
        f"{one.seconds:.3f} s; score: {one.scores}"
        for one in (result.stages if result.trace is not None and result.stages else ())
    ]


def _trace_lines(result: SearchResult) -> list[str]:
    """A line for each round, if they were kept: how many items, the best score, what was expected of it."""
    lines = []
    for number, one in enumerate(result.trace or (), start=1):
        best = max(range(len(one.scores)), key=one.scores.__getitem__)
        expected = "" if one.estimates is None else f" (expected {one.estimates[best]:.3f})"
        found = f"{_one_line(one.ids[best])} {one.scores[best]:.3f}{expected}"
        lines.append(f"round {number}: {_count(len(one.ids), 'item')}, best {found}")
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shorten(text: str, room: int) -> str:
    line = _one_line(text)
    return line if len(line) <= room else line[: room - 1] + "…"


def _one_line(text: str) -> str:
    """Without line ends, and without control characters that a terminal might obey."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))
