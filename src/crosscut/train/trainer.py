"""The one trainer: transformers' own, for a CPU, a GPU or several, around a task that says what to learn."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from accelerate.utils import gather_object
from safetensors.torch import load_model, save_model
from transformers import PrinterCallback, Trainer, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from crosscut.errors import CrosscutError
from crosscut.scorers.torch_models import any_shape
from crosscut.train import folder
from crosscut.train.attention import attend_by_rows
from crosscut.train.batches import Batch
from crosscut.train.callbacks import Flow, Progress
from crosscut.train.card import write_card
from crosscut.train.process import stopping, wait
from crosscut.train.settings import Settings

WEIGHTS = "model.safetensors"


class Rows(Protocol):
    """What is trained on, one row per query; a row may differ from epoch to epoch."""

    epoch: int

    def __len__(self) -> int: ...

    def __getitem__(self, query: int) -> Any: ...


class Spread(Protocol):
    """Divides work among the processes: `work` gets positions and gives as many rows; all get all of them."""

    def __call__(self, count: int, work: Callable[[np.ndarray], np.ndarray]) -> np.ndarray: ...


class Task(ABC):
    """What to learn. `module` gives, for the "inputs" of a batch, what `loss` is made of.

    `best` is the figure of `evaluate` that chooses the checkpoint to keep.
    """

    module: torch.nn.Module
    rows: Rows
    best: str
    lower_is_better = False

    @abstractmethod
    def collate(self, rows: Sequence[Any]) -> Batch:
        """A batch of rows; "inputs" in it are the arguments of `module`."""

    @abstractmethod
    def loss(self, output: Any, batch: Batch) -> torch.Tensor:
        """The mean over the batch."""

    @abstractmethod
    def evaluate(self, spread: Spread) -> dict[str, float]:
        """Figures on the queries that were set apart."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the model as an ordinary Hugging Face folder."""

    def inners(self) -> list[Any]:
        """The transformers models inside."""
        return [self.module.inner]

    def learning_rates(self) -> Iterable[tuple[float, list[torch.nn.Parameter]]]:
        """Weights that learn at another rate than `learning_rate`."""
        return []

    def begin_epoch(self, epoch: int, spread: Spread) -> None:
        """Choose new negatives, where they are drawn again."""
        self.rows.epoch = epoch


@dataclass(frozen=True)
class Order:
    """What a caller wants: `record` says what is trained from what, `kind` how the result is used (see `card`).

    `queries` counts the rows of an epoch. `keep_teacher`: see `folder.begin`.
    """

    out: Path
    kind: str
    record: dict[str, Any]
    settings: Settings
    queries: int
    licence: str | None = None
    overwrite: bool = False
    progress: bool = False
    keep_teacher: bool = False


def train(order: Order, task: type[Task], make: Callable[[Path, TrainingArguments], Task]) -> dict[str, Any]:
    """Train, or go on where the same run was stopped, and write the folder of the best checkpoint.

    `make` gives the task; it may keep what was hard to get in the folder that it is called with. Returns the
    figures of the checkpoint that was kept, and how it was found.
    """
    arguments = training_arguments(order, task)
    is_main = arguments.process_index == 0
    work = order.out.resolve() / folder.WORK
    if is_main:
        folder.begin(order.out.resolve(), order.record, order.overwrite, order.keep_teacher)
    wait()  # the others find the folder ready, and look at it before anything moves
    is_moving = folder.is_moving(work)
    wait()
    if is_moving:
        if is_main:
            folder.finish(order.out, lambda _: None)
        wait()
        return folder.read_json(order.out / folder.RECORD)
    try:
        made = make(work, arguments)
    except CrosscutError:
        if is_main:
            folder.abandon(order.out)
        raise
    for inner in made.inners():
        attend_by_rows(inner)
        if order.settings.freeze_words:
            inner.get_input_embeddings().requires_grad_(False)
        if order.settings.compile:
            inner.compile(dynamic=True)
    trainer = TaskTrainer(made, arguments, order.progress)
    with any_shape(), stopping(trainer):
        trainer.run(work)
    report = _report(trainer)
    if is_main:

        def save(to: Path) -> None:
            made.save(to)
            write_card(to, order.kind, order.record, report, order.licence)

        folder.finish(order.out, save)
    wait()
    return report


def _report(trainer: TaskTrainer) -> dict[str, Any]:
    history, best = trainer.state.log_history, f"eval_{trainer.task.best}"
    evaluated = [entry for entry in history if best in entry]
    chosen = next((e for e in evaluated if e["step"] == trainer.state.best_global_step), evaluated[-1])
    return {
        "figures": {name.removeprefix("eval_"): v for name, v in chosen.items() if name.startswith("eval_")},
        "best_step": chosen["step"],
        "steps": trainer.state.global_step,
        "losses": [[entry["step"], entry["loss"]] for entry in history if "loss" in entry],
        "evaluations": [[entry["step"], entry[best]] for entry in evaluated],
    }


def training_arguments(order: Order, task: type[Task]) -> TrainingArguments:
    """Our settings in transformers' words."""
    settings, work = order.settings, order.out.resolve() / folder.WORK
    use_cpu = settings.device == "cpu" or not torch.cuda.is_available()
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise CrosscutError("there is no GPU that torch can use: leave device out, or set it to cpu")
    bf16 = settings.precision == "bf16" or (settings.precision == "auto" and not use_cpu)
    if bf16 and not use_cpu and not torch.cuda.is_bf16_supported():
        if settings.precision == "bf16":
            raise CrosscutError("this GPU does not know bf16: use precision fp32, or leave it out")
        bf16 = False
    common: dict[str, Any] = {
        "output_dir": str(work),
        "per_device_train_batch_size": settings.batch_size,
        "gradient_accumulation_steps": settings.accumulate,
        "learning_rate": settings.learning_rate,
        "weight_decay": settings.weight_decay,
        "seed": settings.seed,
        "bf16": bf16,
        "use_cpu": use_cpu,
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "save_total_limit": 2,  # the best and the last
        "load_best_model_at_end": True,
        "metric_for_best_model": task.best,
        "greater_is_better": not task.lower_is_better,
        "remove_unused_columns": False,
        "logging_nan_inf_filter": False,  # it would wait for the GPU in every step
        "ddp_find_unused_parameters": False,
        # From pinned memory, and without waiting for it: while the GPU works, the next batch is on its way.
        "dataloader_pin_memory": not use_cpu,
        "accelerator_config": {"non_blocking": not use_cpu},
        "report_to": "none",
        "disable_tqdm": True,
        "log_level": "error",
    }
    processes = TrainingArguments(output_dir=str(work), use_cpu=use_cpu).world_size
    total, every = (
        settings.total_steps(order.queries, processes),
        settings.evaluation_steps(order.queries, processes),
    )
    arguments = TrainingArguments(
        **common,
        max_steps=total,
        warmup_steps=math.ceil(settings.warmup * total),
        eval_steps=every,
        save_steps=every,
        logging_steps=max(1, min(every, total // 20)),
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = (
            1  # a process has one GPU; transformers would cut batches into parts for all that it sees
        )
    return arguments


class TaskTrainer(Trainer):
    """transformers' trainer with a task's own loss, evaluation and folders."""

    def __init__(self, task: Task, arguments: TrainingArguments, progress: bool) -> None:
        self.task = task
        self.stop = False
        super().__init__(
            model=task.module,
            args=arguments,
            data_collator=task.collate,
            train_dataset=task.rows,
            eval_dataset=task.rows,  # transformers asks for one, and `evaluate` has its own
            callbacks=[Flow(self), Progress(progress and arguments.process_index == 0)],
        )
        self.remove_callback(PrinterCallback)

    def run(self, work: Path) -> None:
        """Train, from the last checkpoint in `work` if there is one."""
        checkpoint = folder.last_checkpoint(work)
        if checkpoint is None:
            self.train()
            return
        path = str(checkpoint / TRAINER_STATE_NAME)
        state = TrainerState.load_from_json(path)
        # Where it lay when it was written; the folder may have been moved since.
        state.best_model_checkpoint = str(work / f"checkpoint-{state.best_global_step}")
        if not Path(state.best_model_checkpoint).is_dir():
            state.best_model_checkpoint = state.best_metric = state.best_global_step = None
        with self.args.main_process_first(local=False):
            if self.args.process_index == 0:
                state.save_to_json(path)
        if state.global_step < self.args.max_steps or state.best_model_checkpoint is None:
            self.train(resume_from_checkpoint=str(checkpoint))
        else:  # the run had ended, and only its result was not written
            self.state = state
            self._load_best_model()

    def create_optimizer(self, *given: Any) -> Any:
        optimizer = super().create_optimizer(*given)
        for rate, weights in self.task.learning_rates():
            apart = {id(weight) for weight in weights}
            for group in list(optimizer.param_groups):
                moved = [weight for weight in group["params"] if id(weight) in apart]
                if moved:
                    group["params"] = [weight for weight in group["params"] if id(weight) not in apart]
                    optimizer.add_param_group({**group, "params": moved, "lr": rate})
        return optimizer

    def compute_loss(
        self, model: Any, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        output = model(**inputs["inputs"])
        loss = self.task.loss(output, inputs)
        return (loss, output) if return_outputs else loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        self.model.eval()
        with torch.no_grad(), self.accelerator.autocast():
            figures = self.task.evaluate(self.spread)
        metrics = {f"eval_{name}": float(value) for name, value in figures.items()}
        self.log(metrics)
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def spread(self, count: int, work: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        parts = np.array_split(np.arange(count), self.args.world_size)
        made = work(parts[self.args.process_index])
        if self.args.world_size == 1:
            return made
        return np.concatenate([part for part in gather_object([made]) if len(part)])

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        assert output_dir
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        save_model(self.model, str(Path(output_dir) / WEIGHTS), metadata={"format": "pt"})

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self._load(Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        self._load(Path(self.state.best_model_checkpoint))

    def _load(self, checkpoint: Path) -> None:
        try:
            load_model(self.model, str(checkpoint / WEIGHTS), strict=True)
        except Exception as error:
            raise CrosscutError(
                f"the checkpoint {checkpoint} is damaged, or of another architecture than the model that is "
                "trained: remove it, or set overwrite=True to begin anew"
            ) from error
