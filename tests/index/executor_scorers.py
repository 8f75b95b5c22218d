"""Scorers that other processes can make again: slow, deadly, failing, and different on every machine."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from index_fakes import numbers

from crosscut.errors import CrosscutError
from crosscut.scorers import Scorer


class Paced(Scorer):
    """Scores by hash, slowly. Logs pid, query and item of every pair; dies or fails at the query `at`."""

    name = "paced"

    def __init__(self, folder: Path, seconds: float = 0.0, at: str = "", deaths: int = 0, fails: bool = False):
        self.folder, self.seconds, self.at, self.deaths, self.fails = folder, seconds, at, deaths, fails
        self.truncated = 0

    def digest(self) -> str:
        return "0123456789abcdef"

    def _score(self, pairs):
        for query, item in pairs:
            time.sleep(self.seconds)
            if query == self.at and self.fails:
                raise CrosscutError("boom")
            if query == self.at and len(list(self.folder.glob("death*"))) < self.deaths:
                (self.folder / f"death{os.getpid()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            with open(self.folder / "log", "a") as file:
                file.write(f"{os.getpid()}\t{query}\t{item}\n")
        self.truncated += 1
        return [numbers(query + "|" + item, 1)[0] for query, item in pairs]


def logged(folder: Path) -> list[list[str]]:
    """(pid, query, item) of every pair that any process has scored."""
    log = folder / "log"
    return [line.split("\t") for line in log.read_text().splitlines()] if log.exists() else []


def pids(folder: Path) -> list[int]:
    return sorted({int(line[0]) for line in logged(folder)})


def is_running(pid: int) -> bool:
    """Whether the process lives; a zombie that nobody has waited for does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


class Elsewhere(Scorer):
    """Another model in every process, as a folder may hold on another machine."""

    name = "elsewhere"

    def digest(self) -> str:
        return f"{os.getpid():016d}"

    def _score(self, pairs):
        return [0.0] * len(pairs)


class Homebound(Scorer):
    """Can be made in one process only; in another the making fails, or ends it."""

    name = "homebound"

    def __init__(self, home: int, deadly: bool):
        if os.getpid() != home:
            if deadly:
                os._exit(7)
            raise ImportError("no such library here")

    def _score(self, pairs):
        return [0.0] * len(pairs)


def words(query, texts):
    """A plain function."""
    return [numbers(query + "|" + text, 1)[0] for text in texts]


class Placed(Scorer):
    """Scores by the number of the GPU that its process may use, once `workers` processes have come together."""

    name, device = "placed", "cuda"

    def __init__(self, folder: Path, workers: int):
        self.folder, self.workers = folder, workers

    def _score(self, pairs):
        (self.folder / f"here{os.getpid()}").touch()
        deadline = time.monotonic() + 60
        while len(list(self.folder.glob("here*"))) < self.workers and time.monotonic() < deadline:
            time.sleep(0.01)
        return [float(os.environ["CUDA_VISIBLE_DEVICES"])] * len(pairs)
