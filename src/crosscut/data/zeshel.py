"""ZESHEL, zero-shot entity linking (Logeswaran et al. 2019): documents/WORLD.json and mentions/SPLIT.json."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from crosscut.data.lines import need_file
from crosscut.data.mentions import Mention
from crosscut.data.plain import read_item_file
from crosscut.data.records import Record, collect, read_json_records
from crosscut.errors import CrosscutError
from crosscut.types import Item


def read_zeshel_worlds(folder: str | Path) -> list[str]:
    """The worlds that have documents, sorted.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "documents").mkdir()
    >>> _ = (folder / "documents" / "lego.json").write_text("")
    >>> read_zeshel_worlds(folder)
    ['lego']
    """
    return _names(Path(folder), "documents")


def read_zeshel_items(folder: str | Path, world: str) -> list[Item]:
    """The documents of one world.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "documents").mkdir()
    >>> document = '{"document_id": "D1", "title": "Brick", "text": "a part"}'
    >>> _ = (folder / "documents" / "lego.json").write_text(document)
    >>> read_zeshel_items(folder, "lego")
    [Item(id='D1', text='a part', title='Brick')]
    """
    return read_item_file(_file(Path(folder), "documents", world, "world"))


def read_zeshel_mentions(folder: str | Path, split: str, world: str | None = None) -> list[Mention]:
    """The mentions of a split, or of one world in it, each with the whole of its document as context.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "documents").mkdir(), (folder / "mentions").mkdir()
    (None, None)
    >>> document = '{"document_id": "D1", "title": "Brick", "text": "a lego brick"}'
    >>> _ = (folder / "documents" / "lego.json").write_text(document)
    >>> _ = (folder / "mentions" / "val.json").write_text(
    ...     '{"mention_id": "M1", "context_document_id": "D1", "label_document_id": "D1", "corpus": "lego",'
    ...     ' "text": "lego brick", "start_index": 1, "end_index": 2, "category": "LOW_OVERLAP"}')
    >>> [(mention.id, mention.text()) for mention in read_zeshel_mentions(folder, "val")]
    [('M1', 'a [M_s] lego brick [M_e]')]
    """
    folder = Path(folder)
    path = _file(folder, "mentions", split, "split")

    @cache
    def texts(world: str) -> dict[str, str]:
        return {item.id: item.text for item in read_zeshel_items(folder, world)}

    def make(record: Record, id: str) -> Mention | None:
        corpus = record.string("corpus")
        return _mention(record, id, texts(corpus), corpus) if world in (None, corpus) else None

    found = [m for m in collect(path, read_json_records(path), "mention", ("mention_id",), make) if m]
    if not found:
        raise CrosscutError(f"{path} has no mention of world {world!r}; choose one that is in this split")
    return found


def _mention(record: Record, id: str, texts: dict[str, str], world: str) -> Mention:
    context_id = record.string("context_document_id")
    label_id = record.string("label_document_id")
    for document in (context_id, label_id):
        if document not in texts:
            raise record.error(f"document {document!r} is not among the documents of world {world!r}")
    words = texts[context_id].split()
    start, end = record.integer("start_index"), record.integer("end_index")
    mention = record.string("text")
    if not 0 <= start <= end < len(words) or words[start : end + 1] != mention.split():
        found = " ".join(words[max(start, 0) : end + 1])
        where = f"words {start} to {end} of document {context_id!r}"
        raise record.error(f"the mention is {mention!r}, but {where} are {found!r:.80}")
    return Mention(id, " ".join(words[:start]), mention, " ".join(words[end + 1 :]), label_id, world)


def _names(folder: Path, kind: str) -> list[str]:
    if not (folder / kind).is_dir():
        raise CrosscutError(f"{folder} is not a ZESHEL folder: it has no folder {kind}")
    names = (path.name.removesuffix(".gz") for path in (folder / kind).iterdir())
    return sorted({name.removesuffix(".json") for name in names if name.endswith(".json")})


def _file(folder: Path, kind: str, name: str, noun: str) -> Path:
    names = _names(folder, kind)
    if name not in names:
        raise CrosscutError(f"{folder} has no {noun} {name!r}; it has: {', '.join(names) or 'none'}")
    return need_file(folder / kind, f"{name}.json")
