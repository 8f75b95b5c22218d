"""The texts that crosscut-tiny is trained on, as a BEIR folder: passages, and queries made from them.

    python recipes/tiny/texts.py --out texts/ --debian Translation-en[.xz|.lz4] --packages site-packages/ \
        --manuals sdists/ --wordnet entities/ --replies train.jsonl

Only texts whose licence lets weights trained on them ship under Apache-2.0: descriptions of Debian's packages
(the file dists/bookworm/main/i18n/Translation-en.xz of a Debian mirror), docstrings of Python's standard library
and of the packages in packages.txt, with what these say of themselves, manuals in the source distributions of the
packages in manuals.txt (each of an MIT, BSD, Apache or PSF licence; others are passed over), WordNet's
definitions, and replies to questions about Ubuntu (irc-disentanglement, CC BY 4.0). Each source may be left out.
Most of these are short: neighbours are also put together to pages, so that a model learns to find an answer within
a long passage.

A query is a title, a question or a claim made of a passage, some of its words, or a question about two of them.
Its passage is its positive; what relevance the two really have, the teacher says later. The same seed gives the
same folder.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import lzma
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

import manuals
import numpy as np

from crosscut.data import write_beir
from crosscut.types import Item, Query

SHORTEST, LONGEST = 60, 1400  # characters of a passage
LICENCES = re.compile(r"\b(mit|bsd|apache|psf|python software foundation|hpnd|isc)\b", re.I)
PAGE = 600, 1500  # characters of neighbours that are put together
DEV = 500  # queries kept for choosing
OPENINGS = {
    "topic": [
        "what is {}",
        "what are {}",
        "{}",
        "tell me about {}",
        "{} explained",
        "is there {}",
        "where can I find {}",
    ],
    "task": ["how do I {}", "how to {}", "how can I {}", "what do I need to {}", "can I {}", "{}"],
}
# About two words of a passage: many passages have something to say to such a question, and few answer it.
ABOUT = [
    "does {} need {}?",
    "can I use {} for {}?",
    "what is the difference between {} and {}?",
    "do I need {} for {}?",
    "how much {} do I need for {}?",
    "what happens to {} without {}?",
    "why does {} have {}?",
    "what is the best {} for {}?",
    "which {} has {}?",
    "is {} a kind of {}?",
    "how do I get {} with {}?",
    "how does {} change {}?",
    "when should I use {} and {}?",
    "who has {} and {}?",
    "is {} better than {}?",
    "how long does {} take with {}?",
    "where do I find {} of {}?",
    "{} and {}",
]
STOP = """
    a an and are as at be been by can could do does for from had has have he her his how i if in into is it
    its may might more most no not of on one only or other our she should so some such than that the their
    them then there these they this those to was we were what when where which while who will with would you
    your
"""
VERBS = """
    add apply build calculate change check clear close compare compile compute convert copy count create
    decode delete detect display download draw edit encode estimate evaluate execute export extract fetch fill
    filter find fit format generate get group handle import insert install iterate join list load make manage
    measure merge move open parse plot print process provide put read receive register remove rename render
    replace reset resolve return run sample save scale search select send set show sort split start stop store
    test train transform translate update use validate view wait watch write
"""
STOP_WORDS, TASKS = frozenset(STOP.split()), frozenset(VERBS.split())


@dataclass(frozen=True)
class Passage:
    source: str
    title: str
    text: str


def main() -> None:
    args = arguments()
    rng = np.random.default_rng(args.seed)
    passages = unique(read_all(args))
    passages += pages(passages, rng)
    items, queries, positives = [], [], {}
    for number, passage in enumerate(passages):
        # A title is half of what a query says: it stands in the passage only now and then.
        titled = passage.source == "wordnet" or rng.random() < 0.3
        items.append(Item(f"{passage.source}-{number}", passage.text, passage.title if titled else ""))
        # Definitions are many, and short.
        count = int(rng.random() < 0.2) if passage.source == "wordnet" else args.per_passage
        for text in queries_of(passage, count, rng):
            queries.append(Query(str(len(queries)), text))
            positives[queries[-1].id] = {items[-1].id: 1}
    kept = rng.permutation(len(queries))[: args.queries]
    queries = [queries[at] for at in kept]
    dev = {query.id for query in queries[:DEV]}
    asked = {id for query in queries for id in positives[query.id]}
    items = [item for item in items if item.id in asked]
    splits = {
        "dev": {query.id: positives[query.id] for query in queries if query.id in dev},
        "train": {query.id: positives[query.id] for query in queries if query.id not in dev},
    }
    write_beir(args.out, items, queries, splits)
    for source in sorted({passage.source for passage in passages}):
        print(f"{sum(passage.source == source for passage in passages):,} passages from {source}")
    print(f"{len(items):,} passages and {len(queries):,} queries in {args.out}")


def read_all(args: argparse.Namespace) -> Iterator[Passage]:
    if args.debian:
        yield from debian(args.debian)
    yield from docstrings("python", Path(sysconfig.get_path("stdlib")))
    for package, folders in permissive(args.packages) if args.packages else ():
        yield from description(package)
        for folder in folders:
            yield from docstrings("packages", folder)
    for said, texts in manuals.archives(args.manuals) if args.manuals else ():
        if is_permissive(said):
            for title, text in (section for manual in texts for section in manuals.sections(manual)):
                yield Passage("manuals", title, text[:LONGEST])
    if args.wordnet:
        for path in sorted(args.wordnet.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                record = json.loads(line)
                yield Passage("wordnet", record["title"], record["text"])
    if args.replies:
        for line in args.replies.read_text().splitlines():
            record = json.loads(line)
            yield Passage("replies", record["context"], record["reply"])


def unique(passages: Iterable[Passage]) -> list[Passage]:
    """Without those that begin like another, and those that are no English prose."""
    seen: set[str] = set()
    kept = []
    for passage in passages:
        start = re.sub(r"\W+", "", passage.text.lower())[:60]
        letters = sum(character.isascii() and character.isalpha() for character in passage.text)
        if start in seen or letters < 0.6 * len(passage.text) or len(passage.text.split()) < 4:
            continue
        seen.add(start)
        kept.append(passage)
    return kept


def debian(path: Path) -> Iterator[Passage]:
    """Package descriptions: the first line is the title; " ." parts paragraphs."""
    title, lines = "", []
    for line in [*opened(path).splitlines(), "Package: end"]:
        if line.startswith("Description-en:"):
            title, lines = line.partition(":")[2].strip(), []
        elif line.startswith(" ") and title:
            lines.append("" if line.strip() == "." else line.strip())
        elif line.startswith("Package:") and title:
            text = " ".join(line for line in lines if line)
            if len(text) >= SHORTEST:
                yield Passage("debian", title, text[:LONGEST])
            title = ""


def pages(passages: list[Passage], rng: np.random.Generator) -> list[Passage]:
    """Neighbours of one source put together, about one page for every four passages; the title is that of one."""
    made: list[Passage] = []
    for source in dict.fromkeys(passage.source for passage in passages):
        own = [passage for passage in passages if passage.source == source]
        part: list[Passage] = []
        wanted = rng.integers(*PAGE)
        for passage in own:
            part.append(passage)
            if sum(len(one.text) for one in part) >= wanted:
                if len(part) > 1 and rng.random() < 0.6:
                    named = [f"{one.title}: {one.text}" if source == "wordnet" else one.text for one in part]
                    title = part[int(rng.integers(len(part)))].title
                    made.append(Passage(f"{source}-page", title, " ".join(named)[:LONGEST]))
                part, wanted = [], rng.integers(*PAGE)
    return made


def description(package: Distribution) -> Iterator[Passage]:
    """What a package says of itself, paragraph by paragraph."""
    text = package.metadata.get_payload() or package.metadata.get("Description") or ""
    title = package.metadata["Name"]
    for paragraph in re.split(r"\n\s*\n", str(text)):
        if re.match(r"\s*(#|=|-{3}|\.\.|<|\||!?\[|```|>>>)", paragraph):
            continue
        plain = prose(re.sub(r"!?\[([^\]]*)\]\([^)]*\)|<[^>]+>", r"\1", paragraph))
        if len(plain) >= SHORTEST:
            yield Passage("packages", title, plain[:LONGEST])


def opened(path: Path) -> str:
    if path.suffix == ".xz":
        return lzma.open(path, "rt").read()
    return gzip.open(path, "rt").read() if path.suffix == ".gz" else path.read_text()


def docstrings(source: str, folder: Path) -> Iterator[Passage]:
    """Of modules, classes and functions, without importing them; the title is the name in words."""
    for path in sorted(folder.rglob("*.py")):
        if {"site-packages", "test", "tests", "idlelib", "lib2to3"} & set(path.parts[len(folder.parts) :]):
            continue
        try:
            tree = ast.parse(path.read_text())
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = prose(ast.get_docstring(node) or "")
                if len(text) >= SHORTEST:
                    yield Passage(source, in_words(getattr(node, "name", path.stem)), text[:LONGEST])


def prose(docstring: str) -> str:
    """The part of a docstring before its examples, without markup."""
    lines = []
    for line in docstring.splitlines():
        if re.match(r"\s*(>>>|Examples?:?\s*$|\.\. )", line):
            break
        if not re.match(r"\s*[-=~]{3,}\s*$", line):
            lines.append(line.strip())
    return re.sub(r"\s+", " ", re.sub(r":\w+:|[`*]+", "", " ".join(lines))).strip()


def in_words(name: str) -> str:
    return re.sub(r"[_\W]+|(?<=[a-z])(?=[A-Z])", " ", name).strip().lower()


def permissive(folder: Path) -> Iterator[tuple[Distribution, list[Path]]]:
    """The packages in a site-packages folder whose metadata names a permissive licence, with their folders."""
    for one in sorted(distributions(path=[str(folder)]), key=lambda one: one.metadata["Name"].lower()):
        said = manuals.licence(one.metadata)
        if is_permissive(said):
            roots = {file.parts[0] for file in one.files or () if file.suffix == ".py" and len(file.parts) > 1}
            yield one, [folder / root for root in sorted(roots) if (folder / root).is_dir()]
        else:
            print(f"passed over: {one.metadata['Name']} ({said or 'no licence named'})")


def is_permissive(said: str) -> bool:
    return bool(LICENCES.search(said)) and not re.search(r"\b[LA]?GPL", said)


def queries_of(passage: Passage, count: int, rng: np.random.Generator) -> list[str]:
    """Up to `count` different queries that the passage may answer."""
    sentences = [s.strip() for s in re.split(r"(?<=[.!?;:])\s+", passage.text) if 4 <= len(s.split()) <= 40]
    ways = [
        lambda: question(passage.title, rng) if passage.title else "",
        lambda: question(rng.choice(sentences), rng) if sentences else "",
        lambda: claim(str(rng.choice(sentences)), rng) if sentences else "",
        lambda: keywords(f"{passage.title} {passage.text}", rng),
        lambda: about_two(f"{passage.title} {passage.text}", rng),
    ]
    shares = [0.25, 0.15, 0.2, 0.1, 0.3]
    if passage.source == "replies":  # what was really asked; of a page of them, it was asked in one
        ways, shares = [lambda: last_words(passage.title, 48)], [1.0]
    made = (ways[rng.choice(len(ways), p=shares)]() for _ in range(3 * count))
    return list(dict.fromkeys(text for text in made if len(text.split()) >= 2))[:count]


def question(text: str, rng: np.random.Generator) -> str:
    """A title or a sentence as somebody would ask for it."""
    text = str(text).rstrip(" .;:!?")
    words = text.split()[:16]
    if not words:
        return ""
    if not (words[0].isupper() and len(words[0]) > 1):
        words[0] = words[0][0].lower() + words[0][1:]
    if re.fullmatch(r"(?!this|is|as|always|has|was)[a-z]{3,}s", words[0]) and len(words) > 2:
        words[0] = words[0].removesuffix("es" if words[0].endswith(("ches", "shes", "sses")) else "s")
        kind = "task"
    else:
        kind = "task" if len(words) > 2 and words[0] in TASKS else "topic"
    asked = str(rng.choice(OPENINGS[kind])).format(" ".join(words))
    return asked + ("?" if rng.random() < 0.6 else "")


def claim(sentence: str, rng: np.random.Generator) -> str:
    """A sentence, of which some words are lost."""
    words = sentence.split()[:32]
    lost = rng.random(len(words)) < rng.choice([0.0, 0.15, 0.3])
    return " ".join(word for word, gone in zip(words, lost, strict=True) if not gone)


def about_two(text: str, rng: np.random.Generator) -> str:
    """A question about two words of the text, one of them perhaps with the next."""
    words = telling(text)
    if len(words) < 4:
        return ""
    first, second = sorted(rng.permutation(len(words) - 1)[:2])
    long = rng.random(2) < 0.3
    pair = [" ".join(words[at : at + 1 + more]) for at, more in zip((first, second), long, strict=True)]
    return str(rng.choice(ABOUT)).format(*(pair if rng.random() < 0.5 else pair[::-1]))


def telling(text: str) -> list[str]:
    """The words of a text that say something, each once, in their order."""
    words = re.findall(r"[A-Za-z][\w-]+", text)
    return list(dict.fromkeys(word.lower() for word in words if word.lower() not in STOP_WORDS))


def keywords(text: str, rng: np.random.Generator) -> str:
    """Some words of the text that say something."""
    words = telling(text)
    chosen = rng.permutation(len(words))[: int(rng.integers(2, 6))]
    return " ".join(words[at] for at in sorted(chosen))


def last_words(text: str, count: int) -> str:
    return " ".join(text.split()[-count:])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--debian", type=Path)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--manuals", type=Path)
    parser.add_argument("--wordnet", type=Path)
    parser.add_argument("--replies", type=Path)
    parser.add_argument("--per-passage", type=int, default=3)
    parser.add_argument("--queries", type=int, default=140_000)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
