"""Where the pieces of an index lie: files in a folder, or the same names in memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

import numpy as np

from crosscut.data.atomic import atomic_write
from crosscut.errors import CrosscutError
from crosscut.index.int8 import is_int8
from crosscut.index.manifest import ITEM_ANCHORS, MANIFEST, looks_like_manifest

# Its presence also marks a folder as ours, even when a kill came before the first index.json.
LOCK = "crosscut.lock"
FOLDERS = ("items", "anchors", "vectors", "scores", "compare/*")


class Damaged(CrosscutError):
    """A piece of the index is missing or is not what was written."""


class Files(Protocol):
    """Named pieces of an index. A name appears with its whole content or not at all."""

    @property
    def folder(self) -> Path | None: ...

    def lock(self) -> AbstractContextManager[None]:
        """Keep other writers out."""

    def read_bytes(self, name: str) -> bytes:
        """The content of a text piece; Damaged when it is not there."""

    def write_bytes(self, name: str, content: bytes) -> None: ...

    def read_array(self, name: str) -> np.ndarray:
        """A table of floats, int8 records, or a list of int64, memory-mapped; Damaged when missing or broken."""

    def write_array(self, name: str, shape: tuple[int, ...], dtype: np.dtype, bands: Iterable[np.ndarray]) -> None:
        """Write an array band of rows by band of rows, so that it need not fit into memory."""

    def remove(self, name: str) -> None:
        """Remove a piece, or all pieces below a folder; no error when there is none."""

    def names(self) -> list[str]:
        """All pieces but index.json, a folder of tiles as one, and temporary files that a kill left."""


class MemoryFiles:
    """
    >>> files = MemoryFiles()
    >>> files.write_bytes("items/000000.jsonl", b"{}")
    >>> files.names(), files.read_bytes("items/000000.jsonl")
    (['items/000000.jsonl'], b'{}')
    """

    folder: None = None

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}
        self._arrays: dict[str, np.ndarray] = {}

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def read_bytes(self, name: str) -> bytes:
        if name not in self._texts:
            raise Damaged(f"{name} is missing from the index in memory")
        return self._texts[name]

    def write_bytes(self, name: str, content: bytes) -> None:
        self._texts[name] = content

    def read_array(self, name: str) -> np.ndarray:
        if name not in self._arrays:
            raise Damaged(f"{name} is missing from the index in memory")
        return self._arrays[name]

    def write_array(self, name: str, shape: tuple[int, ...], dtype: np.dtype, bands: Iterable[np.ndarray]) -> None:
        array = np.concatenate([band.astype(dtype, copy=False) for band in bands])
        array.flags.writeable = False
        self._arrays[name] = array

    def remove(self, name: str) -> None:
        for pieces in (self._texts, self._arrays):
            for key in [key for key in pieces if key == name or key.startswith(f"{name}/")]:
                del pieces[key]

    def names(self) -> list[str]:
        depths = {top.split("/")[0]: top.count("/") + 2 for top in FOLDERS}
        parts = [name.split("/") for name in (*self._texts, *self._arrays)]
        names = {"/".join(part[: depths.get(part[0], 1)]) for part in parts}
        return sorted(names - {MANIFEST})


class DiskFiles:
    """
    >>> import tempfile
    >>> files = DiskFiles(Path(tempfile.mkdtemp()))
    >>> files.write_array("scores/a.npy", (2, 1), np.dtype("<f2"), [np.zeros((1, 1)), np.ones((1, 1))])
    >>> files.read_array("scores/a.npy").tolist(), files.names()
    ([[0.0], [1.0]], ['scores/a.npy'])
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def lock(self) -> Iterator[None]:
        with _os_errors("write", self.folder / LOCK):
            handle = open(self.folder / LOCK, "ab")  # noqa: SIM115 (closed below; errors inside are the caller's)
        with handle:
            try:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CrosscutError(
                    f"another process is writing to {self.folder}: wait until it ends, or use another folder"
                ) from None
            except (ImportError, OSError):
                pass  # Windows, or a file system without locks: nothing guards against a second writer
            yield

    def read_bytes(self, name: str) -> bytes:
        path = self.folder / name
        with _os_errors("read", path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                raise Damaged(f"{path} is missing") from None

    def write_bytes(self, name: str, content: bytes) -> None:
        with atomic_write(self._place(name), "wb") as file:
            file.write(content)

    def read_array(self, name: str) -> np.ndarray:
        path = self.folder / name
        with _os_errors("read", path):
            try:
                # Unlike np.load this reads nothing but plain .npy: no zip, no pickle.
                array = np.lib.format.open_memmap(path, mode="r")
                whole = path.stat().st_size == array.offset + array.nbytes
            except FileNotFoundError:
                raise Damaged(f"{path} is missing") from None
            except (ValueError, EOFError, TypeError, OverflowError) as error:
                raise Damaged(f"{path} is damaged ({error})") from error
        is_table = array.ndim == 2 and array.dtype in ("<f2", "<f4")
        is_list = array.ndim == 1 and (array.dtype == "<i8" or is_int8(array))
        if not whole or not (is_table or is_list):
            raise Damaged(f"{path} is damaged (it is not a whole table of floats or of int8)")
        return array

    def write_array(self, name: str, shape: tuple[int, ...], dtype: np.dtype, bands: Iterable[np.ndarray]) -> None:
        header = {"shape": shape, "fortran_order": False, "descr": np.lib.format.dtype_to_descr(dtype)}
        with atomic_write(self._place(name), "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for band in bands:
                file.write(np.ascontiguousarray(band, dtype).data)

    def remove(self, name: str) -> None:
        path = self.folder / name
        with _os_errors("remove", path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def names(self) -> list[str]:
        patterns = (".crosscut-*.tmp", ITEM_ANCHORS, *(f"{top}/*" for top in FOLDERS))
        paths = [path for pattern in patterns for path in self.folder.glob(pattern)]
        return sorted(path.relative_to(self.folder).as_posix() for path in paths)

    def _place(self, name: str) -> Path:
        path = self.folder / name
        with _os_errors("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path


def prepare_folder(folder: Path) -> None:
    """Make `folder`, or see that it is empty or an index of ours; never touch anything else.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> prepare_folder(folder / "new.index")
    >>> _ = (folder / "thesis.tex").write_text("...")
    >>> prepare_folder(folder)
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: ... is not empty and is not an index: choose another folder
    """
    check_folder(folder)
    with _os_errors("write", folder):
        folder.mkdir(parents=True, exist_ok=True)


def check_folder(folder: Path) -> None:
    """See that an index may be made in `folder`, and write nothing.

    >>> check_folder(Path("no.index"))
    """
    with _os_errors("write", folder):
        if folder.exists() and not folder.is_dir():
            raise CrosscutError(f"{folder} is a file, not a folder: choose another folder for the index")
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if names and LOCK not in names and not _has_our_manifest(folder):
        raise CrosscutError(f"{folder} is not empty and is not an index: choose another folder")


def _has_our_manifest(folder: Path) -> bool:
    """A folder copied without its lock file is still known by its index.json; any other index.json is not."""
    try:
        return looks_like_manifest((folder / MANIFEST).read_bytes())
    except OSError:
        return False


@contextmanager
def _os_errors(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CrosscutError(f"cannot {verb} {path}: {error.strerror or error}") from error
