"""What the verbs' parsers share: help that keeps its lines, and numbers that say what is wrong with them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeAlias

Verbs: TypeAlias = Any  # what `add_subparsers` returns; argparse has no public name for it

ITEMS = "a .jsonl, .csv, .tsv or .txt file (each also with .gz), a BEIR or ZESHEL folder, or - for stdin"
ENCODER = (
    "crosscut-tiny, a name on the Hugging Face hub, a folder (a model's, or one that `crosscut export` wrote), or "
    "python:module:attribute (an object of yours)"
)
COMPARE = (
    "the folder of a compare model that `crosscut train compare` wrote, bi:MODEL (a bi-encoder), or "
    "python:module:attribute (an object of yours); NAME=MODEL gives it a name"
)
SCORER = (
    "crosscut-tiny, a name on the Hugging Face hub, a folder (a model's, or one that `crosscut export` wrote), "
    "tei:URL or cohere:MODEL (a rerank server), or python:module:function (a function or an object of yours)"
)


def new_parser(
    verbs: Verbs | None, name: str, about: str, examples: str, help: str = ""
) -> argparse.ArgumentParser:
    """A parser, under `verbs` if there are any, that prints `about` and `examples` as they are.

    >>> print(new_parser(None, "crosscut", "Finds.", "example: crosscut demo").format_usage().strip())
    usage: crosscut [-h]
    """
    settings: dict[str, Any] = {
        "description": about,
        "epilog": examples,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,  # a script that abbreviates would break when a flag is added
    }
    if verbs is None:
        return argparse.ArgumentParser(prog=name, **settings)
    return verbs.add_parser(name, help=help, **settings)


def at_least(smallest: int) -> Callable[[str], int]:
    """A whole number, not less than `smallest`.

    >>> at_least(1)("20")
    20
    """

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = smallest - 1
        if value < smallest:
            raise argparse.ArgumentTypeError(
                f"must be a whole number of at least {smallest}, but is {text!r}"
            ) from None
        return value

    return parse


def numbers(smallest: int) -> Callable[[str], list[int]]:
    """Whole numbers between commas.

    >>> numbers(1)("100,200")
    [100, 200]
    """
    one = at_least(smallest)
    return lambda text: [one(part) for part in text.split(",")]


def words(text: str) -> list[str]:
    """Words between commas.

    >>> words("rerank, crosscut")
    ['rerank', 'crosscut']
    """
    return [word.strip() for word in text.split(",")]


def add_scorer_option(parser: argparse.ArgumentParser) -> None:
    """--scorer-option, which may be given more than once."""
    parser.add_argument(
        "--scorer-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the scorer, and more with more of these; a model has query_tokens, item_tokens, "
        "max_length, label (an index keeps those that it was built with), device, dtype and batch_tokens; an "
        "exported one has the first three, and threads",
    )


def add_search_settings(parser: argparse.ArgumentParser) -> None:
    """The settings that `search` hands on to a method; their defaults are the method's own."""
    parser.add_argument(
        "--rounds",
        type=at_least(1),
        metavar="R",
        help="rounds that the budget is spent in (default: the method's own; crosscut 20 or fewer, adacur 5)",
    )
    parser.add_argument(
        "--first",
        metavar="NAME",
        help="what picks the first batch, and what `rerank` reranks: random, encoder, lexical, rrf, or a compare "
        "model of the index by name (default: the method's own)",
    )
