"""Text files as numbered lines: gzip, UTF-8, byte-order marks and line ends are dealt with here, once."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO

from crosscut.data.atomic import atomic_write
from crosscut.errors import CrosscutError

STDIN = "-"


def source_name(path: str | Path) -> str:
    """What error messages call `path`.

    >>> source_name("-"), source_name("corpus.jsonl")
    ('<stdin>', 'corpus.jsonl')
    """
    return "<stdin>" if str(path) == STDIN else str(path)


def error_at(source: str, line: int, what: str) -> CrosscutError:
    """An error that points at a line.

    >>> str(error_at("corpus.jsonl", 7, "no text"))
    'corpus.jsonl:7: no text'
    """
    return CrosscutError(f"{source}:{line}: {what}")


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    r"""Yield (number from 1, line without its end); "-" is stdin, gzip is recognised by its content.

    Only a newline ends a line: JSON strings may hold other separators, such as U+2028, as they are.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.txt"
    >>> _ = path.write_bytes(b"one\r\ntwo")
    >>> list(read_lines(path))
    [(1, 'one'), (2, 'two')]
    """
    source, number = source_name(path), 0
    try:
        with _open_bytes(path) as raw, _unpacked(raw) as file:
            for number, line in enumerate(file, start=1):
                yield number, _decode(line, source, number)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CrosscutError(
            f"{source}: the gzip data is damaged or cut off after line {number}; get the file again"
        ) from error
    except FileNotFoundError as error:
        raise CrosscutError(f"there is no file {source}; check the path") from error
    except OSError as error:
        raise CrosscutError(f"cannot read {source}: {error.strerror or error}") from error


def _open_bytes(path: str | Path) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(sys.stdin.buffer) if str(path) == STDIN else open(path, "rb")


def _unpacked(file: IO[bytes]) -> AbstractContextManager[Iterable[bytes]]:
    is_gzip = isinstance(file, io.BufferedReader) and file.peek(2)[:2] == b"\x1f\x8b"
    return gzip.open(file, "rb") if is_gzip else nullcontext(file)


def _decode(raw: bytes, source: str, number: int) -> str:
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"byte {error.start + 1} of the line is not valid UTF-8; save the file as UTF-8"
        raise error_at(source, number, what) from error
    if number == 1:
        line = line.removeprefix("\ufeff")
    return line[:-1].removesuffix("\r") if line.endswith("\n") else line


def find_file(folder: Path, name: str) -> Path | None:
    """`folder/name` or `folder/name.gz`, whichever is there.

    >>> find_file(Path("nowhere"), "corpus.jsonl") is None
    True
    """
    found = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if len(found) > 1:
        raise CrosscutError(f"{folder} has both {name} and {name}.gz; remove one of them")
    return found[0] if found else None


def need_file(folder: Path, name: str) -> Path:
    """`find_file`, or an error.

    >>> need_file(Path("nowhere"), "corpus.jsonl")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no folder nowhere; check the path
    """
    if not folder.is_dir():
        raise CrosscutError(f"there is no folder {folder}; check the path")
    if path := find_file(folder, name):
        return path
    raise CrosscutError(f"{folder} has no {name} (nor {name}.gz)")


@contextmanager
def write_text(path: str | Path) -> Iterator[IO[str]]:
    """Write UTF-8 text to `path` atomically, compressed if its name ends in .gz.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt.gz"
    >>> with write_text(path) as file:
    ...     _ = file.write("hello")
    >>> list(read_lines(path))
    [(1, 'hello')]
    """
    try:
        if not str(path).endswith(".gz"):
            with atomic_write(path) as plain:
                yield plain
        else:
            with (
                atomic_write(path, "wb") as raw,
                # No time and no name in the gzip header: the same data gives the same bytes.
                gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
                io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text,
            ):
                yield text
    except UnicodeEncodeError as error:
        raise CrosscutError(
            f"cannot write {path}: {error.object!r:.80} holds half of a surrogate pair, "
            "which UTF-8 cannot hold; mend the text"
        ) from error
