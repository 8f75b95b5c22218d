"""Writing a file so that a reader never sees half of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal, overload

from crosscut.errors import CrosscutError


@overload
def atomic_write(path: str | Path, mode: Literal["w"] = "w") -> AbstractContextManager[IO[str]]: ...


@overload
def atomic_write(path: str | Path, mode: Literal["wb"]) -> AbstractContextManager[IO[bytes]]: ...


def atomic_write(path: str | Path, mode: str = "w") -> AbstractContextManager[IO[Any]]:
    """Open `path` for writing ("w": UTF-8 text, "wb": bytes); the file appears when the block ends well.

    Until then `path` keeps what it held, and an exception leaves it so, with no temporary file behind. A
    process killed in the block may leave a `.crosscut-*.tmp` in the folder, which is safe to delete.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with atomic_write(folder / "note.txt") as file:
    ...     _ = file.write("complete")
    >>> (folder / "note.txt").read_text(), len(list(folder.iterdir()))
    ('complete', 1)
    """
    if mode not in ("w", "wb"):
        raise ValueError(f"mode must be 'w' or 'wb', not {mode!r}")
    return _replace_when_done(Path(path), mode)


@contextmanager
def _replace_when_done(path: Path, mode: str) -> Iterator[IO[Any]]:
    target = Path(os.path.realpath(path))  # write through a link instead of replacing it
    temporary = target.parent / f".crosscut-{secrets.token_hex(8)}.tmp"
    text_settings = {} if mode == "wb" else {"encoding": "utf-8", "newline": "\n"}
    try:
        # A plain exclusive open, not tempfile: the file gets the permissions that the user's umask gives.
        with open(temporary, mode.replace("w", "x"), **text_settings) as file:  # type: ignore[call-overload]
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise CrosscutError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def _sync_folder(folder: Path) -> None:
    """Bring the new name to disk too, so that a power cut does not lose it; the file is there in any case."""
    with suppress(OSError):  # not every system can open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
