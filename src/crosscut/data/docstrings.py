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
    abc argparse array ast asyncio base64 bdb binascii bisect builtins bz2 calendar cmath cmd code codecs
    collections colorsys compileall concurrent.futures configparser contextlib contextvars copy csv ctypes
    dataclasses datetime dbm decimal difflib dis doctest email email.generator email.header email.message
    email.parser email.policy email.utils enum errno faulthandler filecmp fileinput fnmatch fractions ftplib
    functools gc getopt getpass gettext glob graphlib gzip hashlib heapq hmac html html.parser http http.client
    http.cookiejar http.cookies http.server imaplib importlib importlib.abc importlib.machinery
    importlib.metadata importlib.resources importlib.util inspect io ipaddress itertools json json.decoder
    json.encoder keyword linecache locale logging logging.config logging.handlers lzma mailbox marshal math
    mimetypes mmap multiprocessing multiprocessing.connection multiprocessing.managers multiprocessing.pool
    netrc numbers operator optparse os os.path pathlib pdb pickle pkgutil platform plistlib poplib pprint
    profile pstats queue quopri random re reprlib runpy sched secrets select selectors shelve shlex shutil
    signal smtplib socket socketserver sqlite3 ssl stat statistics string struct subprocess symtable sys
    sysconfig tarfile tempfile textwrap threading time timeit token tokenize tomllib trace traceback tracemalloc
    types typing unicodedata unittest unittest.mock urllib.error urllib.parse urllib.request
    urllib.robotparser uuid venv warnings wave weakref webbrowser wsgiref.handlers wsgiref.headers
    wsgiref.simple_server wsgiref.util xml.dom.minidom xml.etree.ElementTree xml.sax xml.sax.handler
    xml.sax.saxutils xmlrpc.client xmlrpc.server zipapp zipfile zipimport zlib zoneinfo
"""
SYSTEMS = {"posix": "os", "nt": "os"}  # where `os` has its functions from


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
            home = str(getattr(thing, "__module__", None) or name).lstrip("_").split(".")[0]
            if SYSTEMS.get(home, home) != name.split(".")[0]:
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
