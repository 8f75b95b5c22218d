"""The process around a training: its end before the end, its fellow processes, its silence."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate import PartialState
from transformers.utils import logging


@contextmanager
def stopping(trainer: Any) -> Iterator[None]:
    """The first Ctrl-C, or a request to end, is obeyed after the step, with a checkpoint; the second at once.

    Several processes would not stop after the same step: there a run loses the steps since its last checkpoint.
    """

    def stop(number: int, frame: Any) -> None:
        if trainer.stop:
            raise KeyboardInterrupt
        trainer.stop = True

    signals = (signal.SIGINT, signal.SIGTERM) if trainer.args.world_size == 1 else ()
    try:
        before = {number: signal.signal(number, stop) for number in signals}
    except ValueError:  # not in the main thread, where no signal arrives
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if trainer.stop and trainer.state.global_step < trainer.state.max_steps:
        raise KeyboardInterrupt


def wait() -> None:
    """Until all processes have come here."""
    PartialState().wait_for_everyone()


@contextmanager
def quiet() -> Iterator[None]:
    """transformers without its bars, and without its remark that a new head is new."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
