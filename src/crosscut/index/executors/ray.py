"""Tiles scored on a Ray cluster: actors hold the model, tiles are their tasks."""

from __future__ import annotations

import logging
import math
import os
import socket
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from crosscut.errors import CrosscutError
from crosscut.index.executors.base import Executor, Scored, Task, check_workers
from crosscut.index.executors.pool import Lost, share_out
from crosscut.index.executors.worker import Answer, Worker
from crosscut.system import needs_extra

if TYPE_CHECKING:
    from crosscut.scorers.base import Scorer

CONNECT_SECONDS = 10.0


class RayExecutor(Executor):
    """`workers` actors: by default one per GPU of the cluster, or one per node where there is none.

    `address` is host:port of the cluster's head, or "auto" on one of its machines; without it Ray looks at
    RAY_ADDRESS, then for a cluster on this machine, and else starts one here. A Ray that is connected already is
    used as it is. `patience`: seconds until no worker at all is an error; a growing cluster may need minutes.

    >>> RayExecutor(address="10.0.0.1:6379", workers=8).workers
    8
    """

    def __init__(self, address: str | None = None, workers: int | None = None, patience: float = 300.0) -> None:
        self.address, self.workers, self.patience = address, check_workers(workers), patience

    def device(self, scorer: Scorer) -> str:
        device = super().device(scorer)
        if device != "cpu":
            return device
        with _connected(self.address) as ray:  # its machines may have what this one has not
            return "cuda" if ray.cluster_resources().get("GPU") else device

    def run(self, scorer: Scorer, tasks: Iterable[Task]) -> Scored:
        with _connected(self.address) as ray:
            worker = Worker.of(scorer, ray.cloudpickle.dumps)
            yield from share_out(_Actors(ray, worker, *self._share(ray), self.patience), scorer, tasks)

    def check(self, scorer: Scorer) -> None:
        Worker.of(scorer, _ray().cloudpickle.dumps)

    def count(self, scorer: Scorer) -> int:
        with _connected(self.address) as ray:
            return self._share(ray)[0]

    def _share(self, ray: Any) -> tuple[int, dict[str, int]]:
        return _share([node["Resources"] for node in ray.nodes() if node["Alive"]], self.workers)


class _Actors:
    def __init__(self, ray: Any, worker: Worker, count: int, needs: dict[str, int], patience: float) -> None:
        self.count = count
        self.patience: float | None = patience
        self._ray = ray
        # Spread: a lost machine should take few of them along.
        self._actor = ray.remote(Worker).options(scheduling_strategy="SPREAD", max_restarts=0, **needs)
        self._worker = {**vars(worker), "packed": ray.put(worker.packed)}
        self._running: dict[int, tuple[Any, deque[Any]]] = {}

    def start(self, number: int) -> None:
        actor = self._actor.remote(**self._worker)
        self._running[number] = actor, deque([actor.greet.remote()])

    def give(self, number: int, task: Task) -> None:
        actor, answers = self._running[number]
        answers.append(actor.score.remote(task.queries, task.items))

    def wait(self, timeout: float | None) -> tuple[int, Answer | Lost] | None:
        # Only the first of each: the answers of a worker are expected in order.
        numbers = {answers[0]: number for number, (_, answers) in self._running.items() if answers}
        ready, _ = self._ray.wait(list(numbers), num_returns=1, timeout=timeout)
        if not ready:
            return None
        number = numbers[ready[0]]
        try:
            answer = self._ray.get(self._running[number][1].popleft())
        except self._ray.exceptions.RayError as error:
            self._ray.kill(self._running.pop(number)[0])  # it may only be out of reach
            lines = str(error).strip().splitlines()
            return number, Lost(f"{lines[0]} {lines[-1].strip()}" if lines else type(error).__name__)
        return number, answer

    def stop(self) -> None:
        for actor, _ in self._running.values():
            self._ray.kill(actor)


def _share(nodes: list[dict[str, float]], workers: int | None) -> tuple[int, dict[str, int]]:
    """How many workers, and what each of them needs.

    >>> _share([{"CPU": 8.0, "GPU": 4.0}, {"CPU": 8.0, "GPU": 4.0}], None)
    (8, {'num_cpus': 1, 'num_gpus': 1})
    >>> _share([{"CPU": 8.0}, {"CPU": 8.0}, {}], 3)
    (3, {'num_cpus': 4})
    """
    gpus = int(sum(node.get("GPU", 0) for node in nodes))
    if gpus:
        return workers or gpus, {"num_cpus": 1, "num_gpus": 1}
    cores = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1] or [1]
    count = workers or len(cores)
    return count, {"num_cpus": max(1, min(cores) // math.ceil(count / len(cores)))}


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with needs_extra("ray", "the executor ray"):
        import ray
    return ray


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Ray, connected for as long as it is needed."""
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    _check_reachable(address or os.environ.get("RAY_ADDRESS", ""))
    with redirect_stdout(sys.stderr):  # where Ray would print of lost machines, stdout is for results
        try:
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            where = f"the Ray cluster at {address}" if address else "Ray"
            raise CrosscutError(
                f"cannot connect to {where} ({error}): see `ray status`; if the cluster wants a token, as do "
                "those of newer versions, set the variable RAY_AUTH_MODE=token"
            ) from error
        try:
            yield ray
        finally:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes.

    >>> _check_reachable("localhost:1")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: nothing answers at localhost:1 (...): start Ray there ...
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit() or not host or "/" in host:
        return  # "auto", "local" or an address that only Ray understands
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise CrosscutError(
            f"nothing answers at {address} ({error}): start Ray there (`ray start --head`) or correct the address"
        ) from error
