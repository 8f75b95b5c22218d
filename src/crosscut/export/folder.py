"""A folder that appears complete or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crosscut.errors import CrosscutError
from crosscut.scorers.exported import MANIFEST

# All that an export may hold: a folder with anything else in it is not deleted.
FILES = {MANIFEST, "tokenizer.json", "config.json", "model.onnx", "model.onnx.data", "model.xml", "model.bin"}


def check_free(out: Path, overwrite: bool) -> None:
    """Refuse a place where something is, unless it is an export that may be overwritten.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> check_free(folder / "new", overwrite=False)
    >>> _ = (folder / "thesis.tex").write_text("")
    >>> check_free(folder, overwrite=True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: ... is not an exported model, so it is not overwritten: choose another folder
    """
    if not out.exists() and not out.is_symlink():
        return
    if not (out / MANIFEST).is_file():
        raise CrosscutError(f"{out} is not an exported model, so it is not overwritten: choose another folder")
    if others := sorted({path.name for path in out.iterdir()} - FILES):
        raise CrosscutError(
            f"{out} holds {others[0]}, which no export wrote, so it is not overwritten: choose another folder"
        )
    if not overwrite:
        raise CrosscutError(f"{out} already exists: choose another folder, or set overwrite=True")


@contextmanager
def new_folder(out: Path, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill, which becomes `out` when the block ends well and vanishes when it does not.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp()) / "model"
    >>> with new_folder(out) as folder:
    ...     _ = (folder / "part").write_text("complete")
    ...     out.exists()
    False
    >>> (out / "part").read_text()
    'complete'
    """
    out = Path(os.path.realpath(out))
    temporary, old = (out.parent / f".crosscut-{secrets.token_hex(8)}.tmp" for _ in range(2))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        for path in temporary.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        check_free(out, overwrite)
        if out.exists():
            out.rename(old)  # a folder that holds files cannot be replaced in one step
        temporary.rename(out)
    except OSError as error:
        raise CrosscutError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        if old.exists() and not out.exists():  # stopped between the two steps
            old.rename(out)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
