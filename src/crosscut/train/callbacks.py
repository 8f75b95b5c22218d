"""What happens along the way: new negatives, a bar, and an end before the end."""

from __future__ import annotations

import math
from typing import Any

import torch
from tqdm import tqdm
from transformers import TrainerCallback

from crosscut.errors import CrosscutError


class Flow(TrainerCallback):
    """New negatives when an epoch begins; a checkpoint at the end, also when someone asks for an end."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.model.eval()
        with torch.no_grad(), self.trainer.accelerator.autocast():
            self.trainer.task.begin_epoch(int(state.epoch or 0), self.trainer.spread)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.trainer.stop:
            control.should_save = control.should_training_stop = True
        if state.global_step >= state.max_steps:  # not every version of the library judges the last step
            control.should_evaluate = control.should_save = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        if not math.isfinite(logs.get("loss", 0.0)):
            raise CrosscutError(
                f"the loss is {logs['loss']} at step {state.global_step}: "
                "try a lower learning_rate, or precision fp32"
            )


class Progress(TrainerCallback):
    """A bar with the last loss and the last figures, where stderr is a terminal."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._last: dict[str, str] = {}
        self._bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar = tqdm(
            total=state.max_steps, initial=state.global_step, unit="step", disable=None if self._shown else True
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.update(state.global_step - self._bar.n)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        if self._bar is None:
            return
        shown = {name: value for name, value in logs.items() if name == "loss" or name.startswith("eval_")}
        self._last |= {name.removeprefix("eval_"): f"{value:.4g}" for name, value in shown.items()}
        self._bar.set_postfix(self._last)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.close()
