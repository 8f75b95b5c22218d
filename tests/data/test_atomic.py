"""A file is there whole or not at all."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from crosscut.data.atomic import atomic_write
from crosscut.errors import CrosscutError


def test_text_is_utf8_with_plain_newlines(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a.txt") as file:
        file.write("é\n")
    assert (tmp_path / "a.txt").read_bytes() == b"\xc3\xa9\n"


def test_bytes_replace_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with atomic_write(path, "wb") as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("error", [ValueError("bug"), KeyboardInterrupt(), CrosscutError("bad input")])
def test_exception_leaves_nothing_behind(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(type(error)), atomic_write(path) as file:  # noqa: PT012
        file.write("half")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_full_disk_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(CrosscutError, match=r"cannot write .*a\.txt: No space left"), atomic_write(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_failing_sync_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CrosscutError, match="Input/output error"), atomic_write(tmp_path / "a.txt") as file:
        file.write("text")
    assert os.listdir(tmp_path) == []


def test_missing_folder_and_folder_as_target(tmp_path: Path) -> None:
    with pytest.raises(CrosscutError, match="No such file"), atomic_write(tmp_path / "nowhere" / "a.txt"):
        pass
    (tmp_path / "folder").mkdir()
    with pytest.raises(CrosscutError, match="folder"), atomic_write(tmp_path / "folder"):
        pass
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions and links")
def test_permissions_and_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    before = os.umask(0o022)
    try:
        with atomic_write(tmp_path / "link") as file:
            file.write("text")
    finally:
        os.umask(before)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o644


def test_other_modes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mode"):
        atomic_write(tmp_path / "a.txt", "a")  # type: ignore[call-overload]
