"""Items that every Python brings along: the docstrings of its standard library."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from crosscut.types import Item

SHORTEST = 40  # characters; shorter docstrings say little more than the name

MODULES = """
    abc argparse array ast asyncio base64 bisect builtins calendar cmath cmd codecs collections colorsys
    concurrent.futures configparser contextlib copy csv ctypes datetime decimal difflib email.message enum
    fileinput fnmatch fractions functools getpass glob gzip hashlib heapq html http.client inspect io ipaddress
    itertools json locale logging math mimetypes multiprocessing operator os os.path pathlib pprint queue random
    re sched secrets shelve shlex shutil signal smtplib socket sqlite3 statistics string struct subprocess tarfile
    tempfile textwrap threading time timeit tokenize traceback types typing unicodedata unittest urllib.parse
    urllib.request uuid weakref webbrowser xml.etree.ElementTree zipfile zlib
"""


def read_docstrings(modules: str = MODULES) -> list[Item]:
    """Modules, classes, functions and methods with a docstring, by full name; `modules` are parted by space.

    >>> items = {item.id: item.text for item in read_docstrings("textwrap")}
    >>> items["textwrap.dedent"].splitlines()[0]
    'Remove any common leading whitespace from every line in `text`.'
    """
    items: dict[str, Item] = {}
    texts: set[str] = set()
    for name in modules.split():
        module = _import(name)
        if module is None:
            continue
        for full_name, thing in _members(name, module):
            text = _docstring(thing)
            # Aliases and overrides repeat a docstring; the first to have it stands for all.
            if len(text) >= SHORTEST and full_name not in items and text not in texts:
                items[full_name] = Item(full_name, text)
                texts.add(text)
    return list(items.values())


def _import(name: str) -> ModuleType | None:
    """A module, or None where it is missing or speaks up: some are left out of small builds of Python."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = importlib.import_module(name)
        except Exception:
            return None
    return None if said.getvalue() else module


def _members(name: str, module: ModuleType) -> Iterator[tuple[str, Any]]:
    yield name, module
    for attribute, thing in _public(module):
        if inspect.isclass(thing) or inspect.isroutine(thing):
            # Only what the module defines, be it in its C half (_csv for csv).
            home = str(getattr(thing, "__module__", None) or name).lstrip("_")
            if home.split(".")[0] != name.split(".")[0]:
                continue
            yield f"{name}.{attribute}", thing
            if inspect.isclass(thing):
                yield from ((f"{name}.{attribute}.{m}", f) for m, f in _public(thing) if inspect.isroutine(f))


def _public(thing: Any) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in vars(thing).items() if not name.startswith("_"))


def _docstring(thing: Any) -> str:
    try:
        return inspect.cleandoc(thing.__doc__ or "")
    except (AttributeError, TypeError):
        return ""
