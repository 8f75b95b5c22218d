"""The worlds of the entity-linking experiment: mentions, and the entities that they may mean."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from crosscut.data import Mention, read_blink, read_items, write_blink
from crosscut.train.data import Examples

WINDOW = 32  # words of context on each side of a mention


@dataclass(frozen=True)
class World:
    """A world's mentions and entities as the models read them."""

    name: str
    examples: Examples

    @cached_property
    def gold(self) -> np.ndarray:
        """The position of the entity that each mention means."""
        return np.array([positions[0] for positions in self.examples.positives])

    def is_right(self, linked: np.ndarray) -> np.ndarray:
        """Whether each mention was linked to its entity, or to one with the very same text."""
        return self.examples.kinds[linked] == self.examples.kinds[self.gold]


def read_worlds(data: Path, split: str = "test") -> list[World]:
    """The worlds of a split, the smallest first."""
    mentions = read_blink(data / "mentions" / f"{split}.jsonl")
    worlds = []
    for name in sorted({mention.world for mention in mentions}):
        entities = read_items(data / "entities" / f"{name}.jsonl")
        own = [mention for mention in mentions if mention.world == name]
        worlds.append(World(name, Examples.of_mentions(own, {name: entities}, WINDOW)))
    return sorted(worlds, key=lambda world: len(world.examples.items))


def prepare(
    source: Path, target: Path, easy: bool, most: int | None = None, names: bool = False, seed: int = 0
) -> None:
    """The same worlds, with titles of entities or without.

    To train on: at most so many mentions of each entity, and, with `names`, one of each that has none.
    """
    part = target.with_name("data.part")
    shutil.rmtree(part, ignore_errors=True)
    (part / "entities").mkdir(parents=True)
    for file in sorted((source / "entities").glob("*.jsonl")):
        entities = [
            {"_id": entity.id, "title": entity.title if easy else "", "text": entity.text}
            for entity in read_items(file)
        ]
        (part / "entities" / file.name).write_text("".join(json.dumps(entity) + "\n" for entity in entities))
    shutil.copytree(source / "mentions", part / "mentions")
    path = part / "mentions" / "train.jsonl"
    mentions = read_blink(path)
    by_name = mentions_by_name(source / "entities", mentions, seed) if names else []
    write_blink(path, (drawn(mentions, most, seed) if most else mentions) + by_name)
    part.rename(target)


def drawn(mentions: list[Mention], most: int, seed: int) -> list[Mention]:
    """At most so many mentions of each entity, by chance."""
    seen: Counter[tuple[str, str]] = Counter()
    kept = []
    for place in np.random.default_rng(seed).permutation(len(mentions)):
        named = mentions[place].world, mentions[place].label_id
        seen[named] += 1
        if seen[named] <= most:
            kept.append(place)
    return [mentions[place] for place in sorted(kept)]


def mentions_by_name(entities: Path, mentions: list[Mention], seed: int) -> list[Mention]:
    """One of its names, without context, for each entity of the same worlds that is not mentioned."""
    rng = np.random.default_rng(seed)
    seen = {(mention.world, mention.label_id) for mention in mentions}
    made = []
    for world in sorted({mention.world for mention in mentions}):
        for entity in read_items(entities / f"{world}.jsonl"):
            if (world, entity.id) not in seen:
                name = str(rng.choice(entity.title.split(", ")))
                made.append(Mention(f"name-{entity.id}", "", name, "", label_id=entity.id, world=world))
    return made


def count_mentions(data: Path) -> int:
    return len(read_blink(data / "mentions" / "train.jsonl"))


def probe_data(data: Path, target: Path) -> Path:
    """The world with most mentions alone: quick to read, and as hard to train on."""
    mentions = read_blink(data / "mentions" / "train.jsonl")
    names = [mention.world for mention in mentions]
    world = max(sorted(set(names)), key=names.count)
    shutil.rmtree(target, ignore_errors=True)
    for folder in ("entities", "mentions"):
        (target / folder).mkdir(parents=True)
    shutil.copy(data / "entities" / f"{world}.jsonl", target / "entities")
    write_blink(target / "mentions" / "train.jsonl", [mention for mention in mentions if mention.world == world])
    return target
