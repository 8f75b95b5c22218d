"""Dialogues: what was said, and what was replied."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crosscut.data.records import Record, collect, read_json_records


@dataclass(frozen=True)
class Reply:
    """A context, and the reply that it got."""

    id: str
    context: str
    reply: str


def read_replies(path: str | Path) -> list[Reply]:
    r"""Replies from jsonl with "context" and "reply" on each line, plain or gzip.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "train.jsonl"
    >>> _ = path.write_text('{"id": "r1", "context": "it does not boot", "reply": "which version?"}')
    >>> read_replies(path)
    [Reply(id='r1', context='it does not boot', reply='which version?')]
    """
    return collect(path, read_json_records(path), "reply", ("id",), _reply)


def _reply(record: Record, id: str) -> Reply:
    return Reply(id, record.string("context"), record.string("reply"))
