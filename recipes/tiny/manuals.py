"""Sections of the manuals that source distributions of Python packages bring along, as plain prose."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import Any

LONGEST = 800  # characters of the paragraphs that are put together
MANUAL = re.compile(
    r"(^|/)docs?/(?!.*(change|release|whats|news|history|api|generated|licen)).*\.(rst|txt|md)$", re.I
)
RULE = re.compile(r"\s*([=\-~^\"'#*+])\1{2,}\s*$")


def archives(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """What each source distribution in a folder says of its licence, and the texts of its manual."""
    for path in sorted(folder.glob("*.tar.gz")):
        with tarfile.open(path) as archive:
            about, texts = "", []
            for member in archive:
                name = member.name.partition("/")[2]
                if not member.isfile() or not (name == "PKG-INFO" or MANUAL.search(name)):
                    continue
                file = archive.extractfile(member)
                text = file.read().decode("utf-8", "replace") if file else ""
                if name == "PKG-INFO":
                    about = licence(Parser().parsestr(text, headersonly=True))
                else:
                    texts.append(text)
        yield about, texts


def licence(metadata: Any) -> str:
    """What a package's metadata says of it.

    >>> licence(Parser().parsestr("Name: x\\nLicense: MIT\\nClassifier: Topic :: Text\\n\\nAll of the rest."))
    'MIT'
    """
    named = [metadata.get("License-Expression"), (metadata.get("License") or "")[:200]]
    named += [line for line in metadata.get_all("Classifier") or () if line.startswith("License")]
    return " ".join(part for part in named if part)


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Headings and some paragraphs below them, of reStructuredText or Markdown; without code, lists and tables.

    >>> text = "Cats\\n====\\n\\nA :term:`cat` has `four <u>`_ legs.\\n\\n.. note::\\n\\n   No.\\n\\nIt\\nsleeps."
    >>> list(sections(text))
    [('Cats', 'A cat has four legs. It sleeps.')]
    """
    title, parts, is_code = "", [], False
    blocks = re.split(r"\n\s*\n", text.replace("\r", ""))
    for block in [*blocks, "# end"]:
        lines = block.strip("\n").splitlines()
        if block.count("```") % 2:
            is_code = not is_code
            continue
        head = heading(lines)
        if head or sum(map(len, parts)) > LONGEST:
            if title and parts:
                yield title, " ".join(parts)
            title, parts = head or title, []
        elif not is_code and lines and is_prose(lines):
            parts.append(plain(" ".join(lines)))


def heading(lines: list[str]) -> str:
    if len(lines) == 3 and RULE.match(lines[0]) and RULE.match(lines[2]):
        return plain(lines[1])
    if len(lines) == 2 and RULE.match(lines[1]) and not RULE.match(lines[0]):
        return plain(lines[0])
    return plain(lines[0].lstrip("#")) if len(lines) == 1 and re.match(r"#+ ", lines[0]) else ""


def is_prose(lines: list[str]) -> bool:
    return not re.match(r"\s|\.\.|[*+|>\-:=~#<!\[]|\d+[.)]|`{3}", lines[0]) and not any(map(RULE.match, lines))


def plain(text: str) -> str:
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)|\[([^\]]*)\]\[[^\]]*\]", r"\1\2", text)
    text = re.sub(r":[\w:+-]+:`~?([^`<]*?)\s*(<[^`]*>)?`", r"\1", text)
    text = re.sub(r"`([^`<]+?)\s*<[^`]*>`_*", r"\1", text)
    text = re.sub(r"[`*]+|\|(\w+)\||(?<=\w)_\b(?=\W|$)|::$", r"\1", text)
    return re.sub(r"\s+", " ", text).strip()
