"""`crosscut demo`: see it work on something that every Python has, with nothing to download."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING
from zipfile import BadZipFile

from crosscut.cli.arguments import Verbs, new_parser
from crosscut.cli.output import table
from crosscut.cli.plots import Curves, svg_plot, terminal_plot

if TYPE_CHECKING:
    import numpy as np

    from crosscut.index.index import Index
    from crosscut.types import Item

ABOUT = """\
Index the docstrings of Python's standard library in ./demo.index with crosscut-tiny, the models that
come with crosscut; ask three questions; and compare, at equal numbers of model calls, how much of the
model's own top 10 reranking finds and how much crosscut does (a picture of it is ./demo.svg, and what
it took to know the truth is kept in ./demo.truth.npz). Takes two to three minutes on two cores, a few
seconds when run again, and downloads nothing.
"""
EXAMPLES = """\
examples:
  crosscut demo
  crosscut search demo.index "wait for a thread to end" --budget 50
"""
FOLDER, TRUTH, PICTURE = "demo.index", "demo.truth.npz", "demo.svg"
SHORTEST = 60  # characters of an item, unless its docstring is shorter
ITEM_TOKENS = 40
QUESTIONS = [
    "how do I delete a directory and everything in it",
    "run a command and capture its output",
    "wait for a thread to end",
]
METHODS = ("crosscut", "rerank")
BUDGETS = (10, 20, 50, 100, 200)
K = 10

# Scored against every item when the index is built.
ANCHORS = """
    how do I read a text file line by line
    parse a date from a string
    convert a dictionary to a json string
    sort a list by a key function
    remove duplicates from a list
    replace all matches of a regular expression
    find files whose name matches a pattern
    copy a folder and all that is in it
    run functions in parallel in several processes
    download the content of a url
    compute the sha256 hash of a file
    generate a random number between two values
    log a message with a time stamp
    parse arguments of the command line
    unpack a zip archive into a folder
    wait until something happens in another thread
"""

# Scored against every item to know the truth; the index has not seen them.
HELD_OUT = """
    choose a random element from a sequence
    how long does a piece of code take to run
    join two paths together
    all permutations of a list of elements
    send an email message with an attachment
    compare two sequences of lines and show the differences
    make a deep copy of a nested object
    wrap a long paragraph of text to a given width
    store objects in a sqlite database
    a queue that several threads can use
    read a csv file into dictionaries
    count how often each element occurs
    turn a string into bytes
    open a page in the web browser
    round a number to two digits
    find out the current working directory
    run a function at a later time
    check whether a string is a number
    list the methods of an object
    translate a domain name into an address
"""


def add_parser(verbs: Verbs) -> None:
    parser = new_parser(verbs, "demo", ABOUT, EXAMPLES, help="see it work, with nothing to download")
    parser.add_argument(
        "--overwrite", action="store_true", help=f"build {FOLDER} anew (default: use what is there)"
    )
    parser.set_defaults(run=run, when_stopped="stopped; finished work is kept, and the same command continues")


def run(args: argparse.Namespace) -> int:
    from crosscut.index.index import Index
    from crosscut.scorers import as_scorer

    items, anchors, queries = _items(), _lines(ANCHORS), _lines(HELD_OUT)
    print(f"{FOLDER}: {len(items)} docstrings of Python's standard library, {len(anchors)} anchor queries")
    sys.stdout.flush()
    scorer = as_scorer(item_tokens=ITEM_TOKENS)
    index = Index.build(
        items, scorer=scorer, anchor_queries=anchors, path=FOLDER, overwrite=args.overwrite, progress=True
    )
    print(f"{scorer.calls} calls made" if scorer.calls else "all of it was there from an earlier run")
    for question in QUESTIONS:
        print(f"\n{question}?\n{table(index.search(question, k=5, budget=100))}", end="")
    print(f"\nThe true top {K} of {len(queries)} other questions, by {len(items)} calls each:")
    sys.stdout.flush()
    curves = _compare(index, queries, items, _truth(index, queries, items))
    _show(curves)
    print(
        f"\n{scorer.calls} calls in all. Your own file, a text per line or jsonl with id and text:\n"
        "  crosscut index FILE --out my.index\n"
        '  crosscut search my.index "QUESTION"'
    )
    return 0


def _items() -> list[Item]:
    """Docstrings in brief: their first paragraph, or more where that is hardly a sentence."""
    from crosscut.data.docstrings import read_docstrings
    from crosscut.types import Item

    brief: dict[str, str] = {}
    for item in read_docstrings():
        text = ""
        for paragraph in item.text.split("\n\n"):
            text = " ".join([text, *paragraph.split()]).strip()
            if len(text) >= SHORTEST:
                break
        brief.setdefault(text, item.id)
    return [Item(id, text) for text, id in brief.items()]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _truth(index: Index, queries: list[str], items: list[Item]) -> np.ndarray:
    """The scores of all items for each query, kept in a file for the next run."""
    import numpy as np
    from tqdm import tqdm

    from crosscut.data.atomic import atomic_write

    asked = [index.scorer.digest(), queries, [(item.id, item.content) for item in items]]
    key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
    # Whatever is wrong with the file, it can be made again.
    with suppress(OSError, ValueError, KeyError, BadZipFile), np.load(TRUTH, allow_pickle=False) as kept:
        if str(kept["key"]) == key:
            print(f"known from an earlier run, see {TRUTH}")
            return kept["scores"]
    rows = []
    with tqdm(total=len(queries) * len(items), unit=" pairs", unit_scale=True, disable=None) as bar:
        for query in queries:
            scores = {hit.id: hit.score for hit in index.search(query, k=len(items), method="exact")}
            rows.append([scores[item.id] for item in items])
            bar.update(len(items))
    truth = np.array(rows, np.float32)
    with atomic_write(TRUTH, "wb") as file:
        np.savez(file, key=np.array(key), scores=truth)
    return truth


def _compare(index: Index, queries: list[str], items: list[Item], truth: np.ndarray) -> Curves:
    """How much of the true top each method finds with how many calls.

    A pair has one score, and all of these are known: the searches take theirs from there.
    """
    import numpy as np

    from crosscut.index.index import Index

    scores = {
        query: {item.content: float(score) for item, score in zip(items, row, strict=True)}
        for query, row in zip(queries, truth, strict=True)
    }

    def known(query: str, texts: list[str]) -> list[float]:
        return [scores[query][text] for text in texts]

    again = Index.load(FOLDER, scorer=known, encoder=index.encoder, other_models=True)
    tenth = np.sort(truth, axis=1)[:, -min(K, len(items))]
    curves: Curves = {}
    for method in METHODS:
        curve = []
        for budget in BUDGETS:
            results = again.search(queries, k=K, budget=budget, method=method)
            found = sum(hit.score >= least for result, least in zip(results, tenth, strict=True) for hit in result)
            curve.append((budget, found / (len(queries) * min(K, len(items)))))
        curves[method] = curve
    return curves


def _show(curves: Curves) -> None:
    from crosscut.data.atomic import atomic_write

    print(f"\nFound of the true top {K}:\n\n{'':<9}" + "".join(f"{budget:>5} calls" for budget in BUDGETS))
    for method in reversed(METHODS):
        print(f"{method:<9}" + "".join(f"{100 * recall:>9.1f} %" for _, recall in curves[method]))
    print("\n" + terminal_plot(curves))
    with atomic_write(PICTURE) as file:
        file.write(svg_plot(curves, f"Found of the model's own top {K}, docstrings of Python"))
    print(f"\nThe same as a picture: {PICTURE}")
