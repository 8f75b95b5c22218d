"""The settings that every kind of training shares: which queries, and how long, how fast, how exactly."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from crosscut.data.mentions import WINDOW
from crosscut.errors import CrosscutError
from crosscut.system import needs_extra

PRECISIONS = ("auto", "bf16", "fp32")
EVALUATIONS = 5  # in an epoch, unless `eval_every` says otherwise
LARGEST = 2**32 - 1  # of whole numbers, as the libraries draw with 32 bits


@dataclass(frozen=True)
class Settings:
    """How to train, whatever is trained.

    `epochs` passes over the training queries, or `steps` if given. A step takes `batch_size` queries per device,
    each with its candidates, `accumulate` times. The learning rate rises for the share `warmup` of the steps and
    then falls to 0. The model is evaluated, and a checkpoint written, every `eval_every` steps (default: five
    times in an epoch); the best one becomes the result. `precision` is bf16, fp32, or auto: bf16 on a GPU that
    has it; a CPU takes it if asked, which is faster where it computes with bf16 itself (AVX-512 BF16, AMX).
    `device` is "cpu" to leave a GPU alone. `compile` runs the model through torch.compile. With `freeze_words` the
    vectors of words, the table that the model begins with, stay as they are.

    The queries are those of `split`. Evaluated are at most `dev_queries` of the split `dev` (default: one that is
    called dev, valid, validation or val; where there is none, a tenth of the training queries is set apart).
    `items` is the file of the entities where the data is a file of mentions; `window` is how many words of context
    a mention keeps on each side.

    >>> Settings(epochs=2, batch_size=8).total_steps(queries=20)
    6
    """

    epochs: float = 1
    steps: int | None = None
    batch_size: int = 16
    accumulate: int = 1
    learning_rate: float = 2e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    seed: int = 0
    eval_every: int | None = None
    precision: str = "auto"
    device: str | None = None
    compile: bool = False
    freeze_words: bool = False
    split: str = "train"
    dev: str | None = None
    dev_queries: int = 1000
    items: str | Path | None = None
    window: int = WINDOW

    def __post_init__(self) -> None:
        least = {"batch_size": 1, "accumulate": 1, "dev_queries": 1, "window": 0, "seed": 0}
        least |= {name: 1 for name in ("steps", "eval_every") if getattr(self, name) is not None}
        for name, smallest in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
                raise CrosscutError(f"{name} must be a whole number of at least {smallest}, but is {value!r}")
            if value > LARGEST:
                raise CrosscutError(f"{name} must be at most {LARGEST}, but is {value}")
        for name in ("epochs", "learning_rate", "warmup", "weight_decay"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise CrosscutError(f"{name} must be a number of at least 0, but is {value!r}")
        if not self.epochs or not self.learning_rate or self.warmup >= 1:
            raise CrosscutError("epochs and learning_rate must be above 0, and warmup, a share, below 1")
        if self.precision not in PRECISIONS:
            raise CrosscutError(f"precision must be one of {', '.join(PRECISIONS)}, but is {self.precision!r}")
        if self.device not in (None, "cpu", "cuda"):
            raise CrosscutError(f"device must be cpu or cuda, but is {self.device!r}; leave it out to use a GPU")
        if self.dev is not None and self.dev == self.split:
            raise CrosscutError(
                f"dev and split are both {self.dev!r}, but a model is judged by queries that it has not seen: "
                "leave dev out, and some of them are set apart"
            )

    @classmethod
    def of(cls, given: dict[str, Any]) -> Settings:
        """Settings of keyword arguments; a name that is unknown is an error, None is as if not given.

        >>> Settings.of({"epoch": 3})
        Traceback (most recent call last):
        crosscut.errors.CrosscutError: there is no setting 'epoch': these are known: epochs, steps, batch_size, \
accumulate, learning_rate, warmup, weight_decay, seed, eval_every, precision, device, compile, \
freeze_words, split, dev, dev_queries, items, window
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise CrosscutError(f"there is no setting {name!r}: these are known: {', '.join(known)}")
        return cls(**{name: value for name, value in given.items() if value is not None})

    @property
    def own_device(self) -> str | None:
        """Where this process runs its models: "cpu", one of several GPUs, or wherever is best (None).

        >>> Settings(device="cpu").own_device
        'cpu'
        """
        place = os.environ.get("LOCAL_RANK")  # several processes were started, one for each GPU
        if self.device == "cpu" or place is None:
            return self.device
        with needs_extra("train", "training"):
            import torch
        return f"cuda:{place}" if torch.cuda.is_available() else None

    def record(self) -> dict[str, Any]:
        """What the result depends on.

        >>> Settings(seed=3).record()["seed"]
        3
        """
        kept = {name: value for name, value in asdict(self).items() if name not in ("device", "compile")}
        return kept | {"items": None if self.items is None else str(self.items)}

    def steps_per_epoch(self, queries: int, processes: int = 1) -> int:
        """Optimiser steps in a pass over so many queries.

        >>> Settings(batch_size=8, accumulate=2).steps_per_epoch(queries=20)
        2
        """
        batches = math.ceil(queries / (self.batch_size * processes))
        return math.ceil(batches / self.accumulate)

    def total_steps(self, queries: int, processes: int = 1) -> int:
        """Optimiser steps of the whole run.

        >>> Settings(steps=7).total_steps(queries=1000)
        7
        """
        return self.steps or max(1, math.ceil(self.epochs * self.steps_per_epoch(queries, processes)))

    def evaluation_steps(self, queries: int, processes: int = 1) -> int:
        """Steps between two evaluations.

        >>> Settings(batch_size=1).evaluation_steps(queries=100)
        20
        """
        return self.eval_every or max(1, self.steps_per_epoch(queries, processes) // EVALUATIONS)
