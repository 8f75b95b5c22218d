"""`crosscut demo`: see it work on something that every Python has, with nothing to download."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from crosscut.cli.arguments import Verbs, new_parser
from crosscut.cli.output import table

if TYPE_CHECKING:
    from crosscut.index.index import Index

ABOUT = """\
Index the docstrings of Python's standard library in ./demo.index, ask three questions, and compare at
equal budgets with reranking what words alone find. Takes less than a minute and downloads nothing. A
model will come with a later release; until then a simple stand-in counts words in common.
"""
EXAMPLES = """\
examples:
  crosscut demo
  crosscut search demo.index "wait for a thread to end" --budget 50
"""
FOLDER = "demo.index"
SCORER = "overlap"
QUESTIONS = [
    "how do I merge two dictionaries",
    "read a csv file with a header",
    "run a command and capture its output",
]
BUDGETS = (20, 50, 100)
K = 10

ANCHORS = """
    how do I read a text file line by line
    write a list of rows to a csv file
    parse a date from a string
    add a number of days to a date
    convert a dictionary to a json string
    load json from a file
    sort a list by a key function
    remove duplicates from a list
    count how often each word occurs
    split a string on white space
    replace all matches of a regular expression
    find files whose name matches a pattern
    copy a folder and all that is in it
    delete a temporary file when done
    create a folder if it does not exist
    get the size of a file in bytes
    start a thread and wait for it to finish
    run functions in parallel in several processes
    wait for several coroutines at once
    open a connection to a server with a timeout
    download the content of a url
    encode bytes as base64 text
    compute the sha256 hash of a file
    generate a random number between two values
    round a decimal number to two places
    compute the mean and the median of numbers
    log a message with a time stamp
    parse arguments of the command line
    unpack a zip archive into a folder
    cache the result of a function
""".strip().splitlines()

HELD_OUT = """
    choose a random element from a sequence
    check if a path is a file or a folder
    how long does a piece of code take to run
    join two paths together
    iterate over two lists at the same time
    all permutations of a list of elements
    keep a list sorted when inserting an element
    send an email message with an attachment
    escape special characters in html text
    compare two sequences of lines and show the differences
    make a deep copy of a nested object
    wrap a long paragraph of text to a given width
    read and write compressed gzip files
    split a url into its parts
    catch a signal and handle it
    store objects in a sqlite database
    print a data structure nicely
    get the current working directory
    a queue that several threads can use
    greatest common divisor of two integers
""".strip().splitlines()


def add_parser(verbs: Verbs) -> None:
    parser = new_parser(verbs, "demo", ABOUT, EXAMPLES, help="see it work, with nothing to download")
    parser.add_argument(
        "--overwrite", action="store_true", help=f"build {FOLDER} anew (default: use what is there)"
    )
    parser.set_defaults(run=run, when_stopped="stopped; finished work is kept, and the same command continues")


def run(args: argparse.Namespace) -> int:
    from crosscut.cli.models import load_scorer
    from crosscut.data.docstrings import read_docstrings
    from crosscut.index.index import Index

    print("A model will come with a later release. This demo scores with a simple stand-in, words in common.\n")
    items, scorer = read_docstrings(), load_scorer(SCORER)
    anchors = [question.strip() for question in ANCHORS]
    print(f"{FOLDER}: {len(items)} docstrings of Python's standard library, {len(anchors)} anchor queries")
    sys.stdout.flush()
    index = Index.build(
        items, scorer=scorer, anchor_queries=anchors, path=FOLDER, overwrite=args.overwrite, progress=True
    )
    print(f"{scorer.calls} calls made" if scorer.calls else "all of it was there from an earlier run")
    for question in QUESTIONS:
        print(f"\n{question}?\n{table(index.search(question, k=5, budget=100))}", end="")
    _compare(index)
    print(
        "\nYour own file, a text per line or jsonl with id and text:\n"
        "  crosscut index FILE --out my.index --scorer cross-encoder/ms-marco-MiniLM-L6-v2\n"
        '  crosscut search my.index "QUESTION"'
    )
    return 0


def _compare(index: Index) -> None:
    """How much of the true top 10 each method finds, on questions that the index has not seen."""
    queries = [question.strip() for question in HELD_OUT]
    exact = index.search(queries, k=K, method="exact")
    print(f"\nOf the true top {K}, on {len(queries)} other questions ({exact[0].calls} calls each to know it):\n")
    print("method   " + "".join(f"{budget:>5} calls" for budget in BUDGETS))
    for method in ("rerank", "crosscut"):
        found = []
        for budget in BUDGETS:
            results = index.search(queries, k=K, budget=budget, method=method)
            # Many items tie under so simple a scorer: one as good as the true tenth is as good a find.
            good = [
                sum(hit.score >= true[-1].score for hit in one) for one, true in zip(results, exact, strict=True)
            ]
            found.append(100 * sum(good) / (K * len(queries)))
        print(f"{method:<9}" + "".join(f"{percent:>9.1f} %" for percent in found))
