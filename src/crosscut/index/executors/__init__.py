"""Where tiles are scored: in this process, in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import inspect
from typing import Any

from crosscut.errors import CrosscutError
from crosscut.index.executors.base import Executor, Task
from crosscut.index.executors.local import LocalExecutor
from crosscut.index.executors.processes import ProcessExecutor
from crosscut.index.executors.ray import RayExecutor

__all__ = ["Executor", "LocalExecutor", "ProcessExecutor", "RayExecutor", "Task", "as_executor"]

EXECUTORS: dict[str, type[Executor]] = {
    "local": LocalExecutor,
    "processes": ProcessExecutor,
    "ray": RayExecutor,
}


def as_executor(executor: str | Executor, **options: Any) -> Executor:
    """An executor by its name, with its options; one that is made already stays as it is.

    >>> as_executor("processes", workers=2)  # doctest: +ELLIPSIS
    <crosscut.index.executors.processes.ProcessExecutor object at ...>
    >>> as_executor("local", workers=2)
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: the executor 'local' has no option workers
    """
    if isinstance(executor, Executor):
        return executor
    if not isinstance(executor, str) or executor not in EXECUTORS:
        raise CrosscutError(f"unknown executor {executor!r}: choose from {', '.join(EXECUTORS)}")
    kind = EXECUTORS[executor]
    unknown = options.keys() - inspect.signature(kind).parameters.keys()
    if unknown:
        raise CrosscutError(f"the executor {executor!r} has no option {', '.join(sorted(unknown))}")
    return kind(**options)
