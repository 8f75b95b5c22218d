"""Training examples from files: those of a split, and others to evaluate on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from crosscut.data import (
    Beir,
    Mention,
    read_beir,
    read_blink,
    read_items,
    read_qrels,
    read_queries,
    read_replies,
    read_zeshel_items,
    read_zeshel_mentions,
)
from crosscut.data.lines import find_file
from crosscut.data.mentions import WINDOW
from crosscut.errors import CrosscutError
from crosscut.train.data import Examples
from crosscut.train.settings import Settings
from crosscut.types import Item, Query

DEV_SPLITS = ("dev", "valid", "validation", "val")
HELD_OUT = 0.1  # of the training queries, where there is no split for evaluation


def read_examples(
    data: str | Path,
    split: str,
    *,
    items: str | Path | None = None,
    window: int = WINDOW,
    labelled: bool = True,
) -> Examples:
    """The examples of one split of a folder.

    The folder is BEIR's, or ZESHEL's (documents/ and mentions/), or has entities/WORLD.jsonl and, in BLINK's form,
    mentions/SPLIT.jsonl, or, for dialogues, SPLIT.jsonl with a context and a reply on each line: see
    `read_replies`. A single file of mentions in BLINK's form needs `items`, the file of its entities, and
    has no splits. Unless `labelled`, queries that no item answers are there, too; and where there is no
    qrels/train.tsv, the split train has all queries that no other split names.

    >>> read_examples("no/such/folder", "train")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no folder or file no/such/folder
    """
    data = Path(data)
    if data.is_file():
        if items is None:
            raise CrosscutError(f"{data} is a file of mentions: name the file of their entities, too, with items=")
        mentions = read_blink(data)
        return Examples.of_mentions(mentions, _shared_world(mentions, read_items(items)), window)
    if not data.is_dir():
        raise CrosscutError(f"there is no folder or file {data}")
    if (data / "documents").is_dir():
        mentions = read_zeshel_mentions(data, split)
        worlds = {world: read_zeshel_items(data, world) for world in sorted({m.world for m in mentions})}
        return Examples.of_mentions(mentions, worlds, window)
    if (data / "entities").is_dir():
        return _read_worlds(data, split, window)
    if (replies := find_file(data, f"{split}.jsonl")) and not (data / "qrels").is_dir():
        return _read_replies(replies)
    is_judged = labelled or split != Settings.split or _has_split(data, split)
    beir = read_beir(data, split) if is_judged else _unjudged(data)
    return Examples.of(beir.queries, beir.items, beir.qrels, labelled)


def read_splits(data: str | Path, settings: Settings, labelled: bool = True) -> tuple[Examples, Examples]:
    """Examples to train on, and others to evaluate on: see `Settings`, and `read_examples` for `labelled`.

    >>> import tempfile
    >>> from crosscut.data import write_beir
    >>> from crosscut.types import Query
    >>> folder, queries = tempfile.mkdtemp(), [Query(str(n), "water?") for n in range(20)]
    >>> write_beir(folder, [Item("a", "flood")], queries, {"train": {str(n): {"a": 1} for n in range(20)}})
    >>> [len(part) for part in read_splits(folder, Settings())]
    [18, 2]
    """
    split, dev = settings.split, settings.dev
    if Path(data).is_file() and (dev is not None or split != Settings.split):
        raise CrosscutError(
            f"{data} is one file, without splits: leave split and dev out, and some of its mentions are set apart "
            "for evaluation"
        )
    read = partial(read_examples, data, items=settings.items, window=settings.window, labelled=labelled)
    train = read(split)
    if dev is None:
        dev = next((name for name in DEV_SPLITS if name != split and _has_split(Path(data), name)), None)
    if dev is None:
        return hold_out(train, settings)
    found = read(dev)
    drawn = np.random.default_rng(settings.seed).permutation(len(found))[: settings.dev_queries]
    return train, found.take(np.sort(drawn).tolist())


def hold_out(examples: Examples, settings: Settings) -> tuple[Examples, Examples]:
    """Examples to train on, and the tenth of them that is set apart for evaluation.

    >>> from crosscut.types import Query
    >>> items, qrels = [Item("a", "flood")], {str(n): {"a": 1} for n in range(20)}
    >>> examples = Examples.of([Query(str(n), "water?") for n in range(20)], items, qrels)
    >>> [len(part) for part in hold_out(examples, Settings())]
    [18, 2]
    """
    count = min(settings.dev_queries, max(1, round(HELD_OUT * len(examples))))
    if count >= len(examples):
        raise CrosscutError(f"there are {len(examples)} training queries: too few to set one apart for evaluation")
    order = np.random.default_rng(settings.seed).permutation(len(examples))
    return examples.take(np.sort(order[count:]).tolist()), examples.take(np.sort(order[:count]).tolist())


def _shared_world(mentions: Sequence[Mention], entities: Sequence[Item]) -> dict[str, Sequence[Item]]:
    worlds = {mention.world for mention in mentions}
    if len(worlds) > 1:
        named = ", ".join(sorted(worlds)[:3])
        raise CrosscutError(
            f"the mentions are of {len(worlds)} worlds ({named}, ...): give a folder with entities/WORLD.jsonl "
            "for each, and mentions/SPLIT.jsonl"
        )
    return {worlds.pop(): entities}


def _read_worlds(data: Path, split: str, window: int) -> Examples:
    path = find_file(data / "mentions", f"{split}.jsonl")
    if path is None:
        raise CrosscutError(f"{data / 'mentions'} has no {split}.jsonl: name one of its files as the split")
    mentions = read_blink(path)
    worlds: dict[str, list[Item]] = {}
    for world in sorted({mention.world for mention in mentions}):
        file = find_file(data / "entities", f"{world}.jsonl")
        if file is None:
            raise CrosscutError(
                f"{path} has mentions of world {world!r}, but {data / 'entities'} has no {world}.jsonl"
            )
        worlds[world] = read_items(file)
    return Examples.of_mentions(mentions, worlds, window)


def _read_replies(path: Path) -> Examples:
    """Contexts as queries; each is answered by its own reply alone."""
    replies = read_replies(path)
    queries, items = [Query(r.id, r.context) for r in replies], [Item(r.id, r.reply) for r in replies]
    return Examples.of(queries, items, {reply.id: {reply.id: 1} for reply in replies})


def _unjudged(data: Path) -> Beir:
    """The queries that no split names."""
    named = {id for path in sorted((data / "qrels").glob("*.tsv*")) for id in read_qrels(path)}
    return Beir(read_items(data), [query for query in read_queries(data) if query.id not in named], {})


def _has_split(data: Path, name: str) -> bool:
    places = [("qrels", f"{name}.tsv"), ("mentions", f"{name}.json"), ("mentions", f"{name}.jsonl")]
    if not (data / "qrels").is_dir():
        places.append((".", f"{name}.jsonl"))
    return any(find_file(data / folder, file) for folder, file in places)
