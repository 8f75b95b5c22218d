"""The folder of a run: while it lasts, `checkpoints` and no new model; at its end, the model and nothing else."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.data.atomic import atomic_write
from crosscut.errors import CrosscutError

WORK = "checkpoints"
RUN = "run.json"  # in `checkpoints`: what this run was asked to do
RECORD = "training.json"  # in a finished folder: the same, and how it went
FINISHED = "finished"  # in `checkpoints`: the whole model, about to be moved up
CANDIDATES = "candidates-"  # in `checkpoints`: what a teacher is asked about
TEACHER = "teacher-"  # in `checkpoints`: folders of what a teacher said, named for what they depend on


def begin(out: Path, arguments: dict[str, Any], overwrite: bool, keep_teacher: bool = False) -> Path:
    """The folder for checkpoints of a run: new, or that of the same run, which was stopped.

    What a teacher said in a run that is overwritten stays if `keep_teacher`: the new one may ask it the same.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp()) / "model"
    >>> work = begin(out, {"seed": 0}, overwrite=False)
    >>> (work / "checkpoint-10").mkdir()
    >>> _ = (work / "checkpoint-10" / "model.safetensors").write_text("")
    >>> begin(out, {"seed": 0}, overwrite=False) == work
    True
    >>> begin(out, {"seed": 1}, overwrite=False)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: ... holds an unfinished run that differs in: seed (0 there, 1 here). Use \
another folder, or overwrite=True to begin anew
    """
    work = out / WORK
    arguments = json.loads(json.dumps(arguments))
    if out.exists() or out.is_symlink():
        _check(out, arguments, overwrite, keep_teacher)
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CrosscutError(f"cannot make the folder {work}: {error.strerror}") from error
    if not (work / RUN).exists():
        write_json(work / RUN, arguments)
    return work


def _check(out: Path, arguments: dict[str, Any], overwrite: bool, keep_teacher: bool) -> None:
    work = out / WORK
    finished, unfinished = (out / RECORD).is_file(), (work / RUN).is_file()
    if not finished and not unfinished:
        names = [path.name for path in out.iterdir()] if out.is_dir() else ["a file"]
        if names and (names != [WORK] or any(work.iterdir())):
            raise CrosscutError(f"{out} holds something else than a trained model: choose another folder")
        return
    if overwrite or (unfinished and not _has_progress(work)):
        # A finished model stays until the new one takes its place.
        _clear(work, [path.name for path in work.glob(f"{TEACHER}*")] if keep_teacher else [])
        return
    if not unfinished:
        raise CrosscutError(f"{out} holds a finished model: choose another folder, or set overwrite=True")
    before = read_json(work / RUN)
    differs = [
        f"{name} ({before.get(name)} there, {arguments.get(name)} here)"
        for name in sorted({*before, *arguments})
        if before.get(name) != arguments.get(name)
    ]
    if differs:
        raise CrosscutError(
            f"{out} holds an unfinished run that differs in: {', '.join(differs)}. "
            "Use another folder, or overwrite=True to begin anew"
        )


def _clear(work: Path, names: list[str]) -> None:
    """Remove the folder, or all of it but some parts."""
    if not names:
        remove(work)
        return
    for path in list(work.iterdir()):
        if path.name not in names:
            remove(path)


def _has_progress(work: Path) -> bool:
    files = (path.name for path in work.rglob("*") if path.is_file())
    return any(name != RUN and not name.startswith(CANDIDATES) for name in files)


def abandon(out: Path) -> None:
    """Leave nothing behind of a run that failed before it had anything to keep.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp()) / "model"
    >>> _ = begin(out, {}, overwrite=False)
    >>> abandon(out)
    >>> out.exists()
    False
    """
    if (out / WORK).is_dir() and not _has_progress(out / WORK):
        shutil.rmtree(out / WORK, ignore_errors=True)
        with suppress(OSError):  # it holds something else
            out.rmdir()


def last_checkpoint(work: Path) -> Path | None:
    """The newest checkpoint that is complete; its state is written last.

    >>> import tempfile
    >>> work = Path(tempfile.mkdtemp())
    >>> (work / "checkpoint-10").mkdir(), (work / "checkpoint-20").mkdir()
    (None, None)
    >>> write_json(work / "checkpoint-10" / "trainer_state.json", {})
    >>> last_checkpoint(work).name
    'checkpoint-10'
    """
    found = [(int(match[1]), path) for path in work.iterdir() if (match := _checkpoint(path))]
    for _, path in sorted(found, reverse=True):
        state = path / "trainer_state.json"
        try:
            json.loads(state.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # the process was killed while it wrote this one
        return path
    return None


def _checkpoint(path: Path) -> re.Match[str] | None:
    return re.fullmatch(r"checkpoint-(\d+)", path.name)


def finish(out: Path, save: Callable[[Path], None]) -> None:
    """Write the model with `save`, then put it in the place of the checkpoints. Can be stopped and done again.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp()) / "model"
    >>> _ = begin(out, {}, overwrite=False)
    >>> finish(out, lambda folder: write_json(folder / RECORD, {}))
    >>> [path.name for path in out.iterdir()]
    ['training.json']
    """
    work = out / WORK
    whole, part = work / FINISHED, work / f".crosscut-{secrets.token_hex(8)}.tmp"
    try:
        if not whole.is_dir():
            part.mkdir()
            save(part)
            for path in out.iterdir():
                if path.name != WORK:
                    remove(path)  # the model that is overwritten
            part.rename(whole)
        for path in whole.iterdir():
            path.rename(out / path.name)
    except OSError as error:
        raise CrosscutError(f"cannot write {out}: {error.strerror or error}") from error
    remove(work)


def is_moving(work: Path) -> bool:
    """Whether a run had ended, and only its last move was stopped.

    >>> is_moving(Path("no/such/folder"))
    False
    """
    return (work / FINISHED).is_dir()


def remove(path: Path) -> None:
    """A file or folder gone at one stroke: by its name first, whatever time its content takes.

    >>> remove(Path("no/such/file"))
    """
    if not path.exists() and not path.is_symlink():
        return
    gone = path.parent / f".crosscut-{secrets.token_hex(8)}.tmp"
    os.rename(path, gone)
    if gone.is_dir() and not gone.is_symlink():
        shutil.rmtree(gone, ignore_errors=True)
    else:
        gone.unlink(missing_ok=True)


def kept(path: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """The array in the file `path`, which is made if it is not there.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "numbers.npy"
    >>> kept(path, lambda: np.arange(3)).tolist(), kept(path, lambda: np.arange(9)).tolist()
    ([0, 1, 2], [0, 1, 2])
    """
    if not path.exists():
        made = make()
        with atomic_write(path, "wb") as file:
            np.save(file, made, allow_pickle=False)
    return np.load(path, allow_pickle=False)


def read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CrosscutError(f"cannot read {path}: set overwrite=True to begin anew") from error


def write_json(path: Path, content: dict[str, Any]) -> None:
    with atomic_write(path) as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
