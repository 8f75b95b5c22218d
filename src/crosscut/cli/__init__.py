"""The command line: one file per verb, each with `add_parser(verbs)` and `run(args)`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

from crosscut.cli import bench, demo, eval, export, index, rerank, search, train
from crosscut.cli.arguments import new_parser
from crosscut.errors import CrosscutError

ABOUT = """\
Nearest-neighbour search for cross-encoders: find the items that the model itself would rank first,
with a small budget of model calls per query. `crosscut VERB --help` explains each verb.
"""
EXAMPLES = """\
examples:
  crosscut demo
  crosscut index faq.jsonl --out faq.index
  crosscut search faq.index "does my policy cover floods?" -k 10 --budget 200
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status.

    >>> main(["search", "no.index", "floods?"])
    2
    """
    args = _parser().parse_args(argv)
    # What a terminal's encoding lacks is written as an escape, instead of ending the program.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # read by transformers when it is imported
    try:
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except CrosscutError as error:
        print(f"crosscut: error: {_in_flags(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\ncrosscut: {args.when_stopped}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _give_up_stdout()  # the reader has had enough: crosscut search ... | head
        return 141
    except OSError as error:
        print(f"crosscut: error: {error}", file=sys.stderr)  # such as a full disk
        _give_up_stdout()
        return 2


def _parser() -> argparse.ArgumentParser:
    from crosscut import __version__

    parser = new_parser(None, "crosscut", ABOUT, EXAMPLES)
    parser.add_argument("--version", action="version", version=f"crosscut {__version__}")
    parser.set_defaults(when_stopped="stopped")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for verb in (index, search, rerank, train, eval, export, bench, demo):
        verb.add_parser(verbs)
    return parser


def _give_up_stdout() -> None:
    """Python flushes stdout once more at exit, which must not fail a second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _in_flags(message: str) -> str:
    """Errors speak Python (`overwrite=True`, `scorer=`); here the same things are flags."""
    return re.sub(
        r"\b([a-z][a-z0-9_]*)=(True\b|$)",
        lambda match: "--" + match[1].replace("_", "-"),
        message,
        flags=re.MULTILINE,
    )
