"""Tiles scored in processes of this machine: one per GPU, or a few that share the cores."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from crosscut.index.executors.base import Executor, Scored, Task, check_workers
from crosscut.index.executors.pool import Lost, share_out
from crosscut.index.executors.worker import Answer, Worker
from crosscut.system import cores

if TYPE_CHECKING:
    from crosscut.scorers.base import Scorer

MOST = 8  # by default, on CPU: each holds a copy of the model


class ProcessExecutor(Executor):
    """`workers` processes: by default one per GPU, or one per core, up to eight, where there is none.

    Each GPU is one worker's own, and so is its share of the cores. A script that builds with it must do so under
    `if __name__ == "__main__":`, as with all of Python's multiprocessing.

    >>> ProcessExecutor(workers=4).workers
    4
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = check_workers(workers)

    def run(self, scorer: Scorer, tasks: Iterable[Task]) -> Scored:
        crew = _Processes(Worker.of(scorer), self.count(scorer), self._gpus(scorer))
        return share_out(crew, scorer, tasks)

    def check(self, scorer: Scorer) -> None:
        Worker.of(scorer)

    def count(self, scorer: Scorer) -> int:
        return self.workers or len(self._gpus(scorer)) or min(len(cores()), MOST)

    def _gpus(self, scorer: Scorer) -> list[str]:
        """The GPUs that the scorer may use, as CUDA_VISIBLE_DEVICES names them."""
        torch = sys.modules.get("torch")  # a scorer that uses a GPU has imported it
        if torch is None or self.device(scorer) not in ("cuda", ""):
            return []
        count = torch.cuda.device_count()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return (visible.split(",") if visible else [str(number) for number in range(count)])[:count]


@dataclass(frozen=True)
class _Place:
    """What of the machine is a worker's own."""

    gpu: str | None
    cores: list[int]

    def take(self) -> None:
        if self.gpu is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.gpu
        os.environ["OMP_NUM_THREADS"] = str(len(self.cores))
        if "torch" in sys.modules:  # imported by the user's own script, and so too early to have read that
            sys.modules["torch"].set_num_threads(len(self.cores))
        if hasattr(os, "sched_setaffinity"):  # obeyed also by libraries that never heard of OpenMP
            os.sched_setaffinity(0, self.cores)


class _Processes:
    patience: float | None = None  # a process gets ready or dies

    def __init__(self, worker: Worker, count: int, gpus: list[str]) -> None:
        self.count = count
        self._worker = worker
        all = cores()
        share = max(1, len(all) // count)
        self._places = [
            _Place(
                gpu=gpus[number % len(gpus)] if gpus else None,
                cores=[all[(number * share + n) % len(all)] for n in range(share)],
            )
            for number in range(count)
        ]
        # Not fork: it would copy a CUDA context and threads that do not survive it.
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[int, tuple[Any, Connection]] = {}

    def start(self, number: int) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_work, args=(theirs, self._worker, self._places[number]), daemon=True
        )
        with _interrupts_ignored():
            process.start()
        theirs.close()  # so that its end is noticed here
        self._running[number] = process, ours

    def give(self, number: int, task: Task) -> None:
        with suppress(OSError):  # it has died, which `wait` will tell
            self._running[number][1].send((task.queries, task.items))

    def wait(self, timeout: float | None) -> tuple[int, Answer | Lost] | None:
        numbers: dict[Any, int] = {connection: number for number, (_, connection) in self._running.items()}
        for connection in wait(list(numbers), timeout):
            number = numbers[connection]
            try:
                return number, self._running[number][1].recv()
            except (EOFError, OSError):
                return number, Lost(self._end(number))
        return None

    def stop(self) -> None:
        for process, _ in self._running.values():
            process.kill()
        for number in list(self._running):
            self._end(number)

    def _end(self, number: int) -> str:
        process, connection = self._running.pop(number)
        connection.close()
        process.join()
        status = process.exitcode
        killed = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"a worker process {killed}"


def _work(connection: Connection, worker: Worker, place: _Place) -> None:
    place.take()
    tasks: queue.SimpleQueue[tuple[list[str], list[str]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, tasks), daemon=True).start()
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.send(worker.greet())
        while True:
            connection.send(worker.score(*tasks.get()))


def _listen(connection: Connection, tasks: queue.SimpleQueue) -> None:
    """Take tasks in while one is in work, so that the driver never waits to be heard; end when it ends."""
    while True:
        try:
            tasks.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """For processes started inside: Ctrl-C reaches them too, but the driver is the one to end them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # where signals cannot be set
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
