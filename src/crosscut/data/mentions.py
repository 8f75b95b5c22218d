"""Mentions of entities in context, and BLINK's jsonl of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from crosscut.data.lines import write_text
from crosscut.data.records import Record, collect, json_lines, read_json_records
from crosscut.errors import CrosscutError
from crosscut.types import Item

MENTION_MARKERS = ("[M_s]", "[M_e]")  # around a mention
ITEM_MARKER = "[ENT]"  # between an entity's title and its description
WINDOW = 32  # words of context that a mention keeps on each side


@dataclass(frozen=True)
class Mention:
    """A mention to be linked: `label_id` is the id of the item that it means, among the items of `world`."""

    id: str
    context_left: str
    mention: str
    context_right: str
    label_id: str
    world: str = ""

    def text(self, window: int = WINDOW, start: str = MENTION_MARKERS[0], end: str = MENTION_MARKERS[1]) -> str:
        """The marked mention with at most `window` words of context on each side.

        >>> Mention("m1", "we sat on the", "bank", "of the river", label_id="7").text(window=2)
        'on the [M_s] bank [M_e] of the'
        """
        if window < 0:
            raise CrosscutError(f"window must be 0 or more, not {window}")
        left, right = self.context_left.split(), self.context_right.split()
        return " ".join([*left[max(len(left) - window, 0) :], start, self.mention, end, *right[:window]])


def as_entity(item: Item) -> Item:
    """An entity in the form that models of entity linking read: `title [ENT] description`.

    >>> as_entity(Item("7", "the side of a river", title="Bank"))
    Item(id='7', text='Bank [ENT] the side of a river', title='')
    """
    return Item(item.id, f"{item.title} {ITEM_MARKER} {item.text}".strip())


def item_as_query(text: str) -> str:
    """An item's text in the query's place, to compare it with other items (ANNCUR A.2).

    An entity becomes a mention of its title, with its description as the context; any other text stays as it is.

    >>> item_as_query("Bank [ENT] the side of a river"), item_as_query("does it cover floods?")
    ('[M_s] Bank [M_e] the side of a river', 'does it cover floods?')
    """
    title, marker, description = text.partition(ITEM_MARKER)
    if not marker:
        return text
    start, end = MENTION_MARKERS
    return " ".join(part for part in (start, title.strip(), end, description.strip()) if part)


def read_blink(path: str | Path) -> list[Mention]:
    r"""Mentions from BLINK's jsonl, plain or gzip; the label is "label_id" or, without it, "label".

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "dev.jsonl"
    >>> _ = path.write_text('{"context_left": "a", "mention": "bank", "context_right": "", "label_id": 7}')
    >>> read_blink(path)
    [Mention(id='1', context_left='a', mention='bank', context_right='', label_id='7', world='')]
    """
    return collect(path, read_json_records(path), "mention", ("id", "mention_id"), _mention)


def _mention(record: Record, id: str) -> Mention:
    label_id = record.id("label_id", "label")
    if label_id is None:
        raise record.error('no "label_id" or "label"')
    return Mention(
        id,
        record.string("context_left"),
        record.string("mention"),
        record.string("context_right"),
        label_id,
        record.string("world", default=""),
    )


def write_blink(path: str | Path, mentions: Iterable[Mention]) -> None:
    """Write mentions as BLINK's jsonl, compressed if the name ends in .gz.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "dev.jsonl.gz"
    >>> mention = Mention("m1", "the", "bank", "of the river", "7", "nature")
    >>> write_blink(path, [mention])
    >>> read_blink(path) == [mention]
    True
    """
    with write_text(path) as file:
        file.writelines(json_lines("mentions", "id", [asdict(mention) for mention in mentions]))
