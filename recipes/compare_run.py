"""A run of the experiment with compare models: its data, and its models, each trained when it is first needed."""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from compare_data import DEPTH, TASKS, VARIANTS, Part, drawn_candidates, gold_ranks, read_parts
from entity_linking_data import WINDOW, prepare, probe_data
from experiment import Clock, encoding, is_trained, note, save, seconds_per_step

from crosscut.encoders import Encoder, as_encoder
from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.train.nearest import by_vectors
from crosscut.train.settings import Settings
from crosscut.train.splits import read_splits

# What a step of training, or a cross-encoder's, takes of CMC's; only to see what fits into the time.
COST = {"cmc": 1.0, "bi": 1.0, "poly": 1.0, "mix": 1.1, "sum-of-max": 1.3, "deformer": 2.0, "cross": 1.0}
AROUND = 15  # seconds of a training beside its steps: to find candidates, evaluate, write, test
MEASURING = 25  # seconds of any other unit


class Remembered(Encoder):
    """An encoder that does not encode the same texts twice: all trainings of a run have one first stage."""

    def __init__(self, inner: Encoder, folder: Path, precision: str | None = None) -> None:
        self.inner, self.name, self.folder, self.precision = inner, inner.name, folder, precision

    def digest(self) -> str:
        return self.inner.digest()

    def _encode(self, texts: Sequence[str], role: Role) -> np.ndarray:
        about = json.dumps([self.digest(), role, *texts]).encode()
        path = self.folder / f"{hashlib.sha256(about).hexdigest()[:16]}.npy"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            with encoding(self.precision):
                save(path, self.inner.encode(texts, role))
        return np.load(path, allow_pickle=False)


class Run:
    """The folder of a run: models in `out`, what comes of them in `out/results`."""

    def __init__(self, args: argparse.Namespace, clock: Clock) -> None:
        self.args, self.clock, self.task = args, clock, TASKS[args.task]
        self.out, self.results = args.out, args.out / "results"
        self.results.mkdir(parents=True, exist_ok=True)
        self.data: Path = args.data
        if args.task == "linking":
            self.data = args.out / "data"
            if not self.data.exists():
                with clock.step("data"):
                    prepare(args.data, self.data, args.easy, args.most, args.names, args.seed)

    @cached_property
    def parts(self) -> list[Part]:
        """What is tested on."""
        whole = read_parts(self.args.task, self.data)
        return [part.drawn(self.args.tested, self.args.seed) for part in whole] if self.args.tested else whole

    @cached_property
    def queries(self) -> int:
        """Of the training."""
        return len(read_splits(self.data, Settings(window=WINDOW))[0])

    # The models that others stand on.

    @cached_property
    def encoder(self) -> Path:
        """The first stage: the bi-encoder of the domain."""
        args, out = self.args, self.out / "encoder"
        if args.encoder is not None:
            return Path(args.encoder)
        if not is_trained(out):
            from crosscut.train import train_encoder

            batch = args.encoder_batch
            steps = args.encoder_steps or math.ceil(args.encoder_epochs * self.queries / batch)
            settings = self._common(steps) | {"batch_size": batch, "learning_rate": args.encoder_rate}
            with self.clock.step("encoder: training"):
                train_encoder(
                    self.data,
                    base=args.base,
                    out=out,
                    negative_count=args.encoder_negatives,
                    depth=64,
                    max_length=self.task.max_length,
                    **settings,
                )
        return out

    @cached_property
    def cross(self) -> Path:
        """The cross-encoder, with negatives of the first stage."""
        args, out = self.args, self.out / "cross"
        if args.cross_encoder is not None:
            return Path(args.cross_encoder)
        if not is_trained(out):
            from crosscut.train import train_cross_encoder

            steps = args.cross_steps or math.ceil(args.cross_epochs * self.queries / self.batch_size)
            settings = self._common(steps) | {"batch_size": self.batch_size, "learning_rate": args.cross_rate}
            source = f"encoder:{self.encoder}" if self.task.has_stage else "random"
            with self.clock.step("cross: training"):
                train_cross_encoder(
                    self.data,
                    base=args.cross_base or args.base,
                    out=out,
                    negatives=source,
                    negative_count=args.negative_count,
                    depth=63,
                    **self.task.limits,
                    **settings,
                )
        return out

    @cached_property
    def stage(self) -> Remembered:
        return Remembered(as_encoder(str(self.encoder)), self.out / "vectors", self.args.precision)

    @property
    def batch_size(self) -> int:
        return self.args.batch_size or self.task.batch_size

    def _common(self, steps: int) -> dict[str, Any]:
        """No evaluation before the end: time is for training."""
        args = self.args
        more = {"eval_every": steps, "dev_queries": args.dev_queries, "window": WINDOW, "seed": args.seed}
        return {"steps": steps, "precision": args.precision, **more}

    # Compare models.

    def model(self, name: str) -> Path:
        """The folder of a trained compare model."""
        out: Path = self.out / "models" / name
        if not is_trained(out):
            steps = self.steps
            with self.clock.step(f"{name}: training"):
                self.train(name, steps, out=out)
            took = self.clock.times[f"{name}: training"]
            note(self.results / "plan.json", each=took / steps / COST[VARIANTS[name].kind])
        shutil.copy(out / "training.json", self.results / f"{name}.json")
        return out

    def train(self, name: str, steps: int, *, out: Path, data: Path | None = None, **more: Any) -> None:
        from crosscut.train import train_compare

        args, variant = self.args, VARIANTS[name]
        given = {
            "model": variant.kind,
            "model_settings": dict(variant.model),
            "fixed_items": args.fixed_items,
            "first_stage": self.stage if self.task.has_stage else None,
            "candidates": args.candidates or self.task.candidates,
            "depth": args.depth,
            "max_length": None
            if args.fixed_items
            else self.task.max_length,  # items stay as their encoder reads them
            "batch_size": self.batch_size,
            "learning_rate": args.learning_rate,
            "layer_rate": args.layer_rate,
            "regularise_weight": args.regularise_weight,
        }
        given |= self._common(steps) | self.task.training() | dict(variant.training) | more
        train_compare(data or self.data, base=self.start(variant.start), out=out, **given)
        _free()

    def start(self, name: str | None) -> str:
        """What an encoder begins as."""
        name = self.args.start if name is None else name
        places = {"base": self.args.base, "vanilla": self.args.vanilla}
        if name == "encoder" and not self.task.has_stage:
            raise CrosscutError(f"{self.args.task} have no first stage to begin with: use --start base")
        found = str(self.encoder) if name == "encoder" else places[name]
        if found is None:
            raise CrosscutError("no plain encoder is given to begin with: name one with --vanilla")
        return found

    @cached_property
    def steps(self) -> int:
        """Of every compare model, for the comparison to be fair: as given, or as many as fit into the time."""
        path = self.results / "plan.json"
        if not path.exists() or "steps" not in json.loads(path.read_text()):
            args = self.args
            note(path, steps=args.steps or self._planned(math.ceil(args.epochs * self.queries / self.batch_size)))
        return int(json.loads(path.read_text())["steps"])

    def _planned(self, steps: int) -> int:
        if self.args.minutes is None:
            return steps
        data = probe_data(self.data, self.out / "probe") if self.args.task == "linking" else self.data
        with self.clock.step("probe"):
            quick = {"overwrite": True, "dev_queries": 16, "data": data, "out": self.out / "probes"}
            each = seconds_per_step(partial(self.train, "cmc", **quick))
        pending = [unit for unit in self.args.units if not self.is_done(unit)]
        costs = [COST[VARIANTS[unit].kind] for unit in pending if unit in VARIANTS]
        seconds = self.clock.left() - AROUND * len(costs) - MEASURING * (len(pending) - len(costs))
        if "cross" in pending and self.args.cross_encoder is None:
            wanted = self.args.cross_steps or math.ceil(self.args.cross_epochs * self.queries / self.batch_size)
            seconds -= wanted * each * COST["cross"]
        fitting = int(seconds / each / max(sum(costs), 1))
        self.clock.say(f"{each:.3f} s a step, {seconds:.0f} s for {len(costs)} models: {fitting} of {steps} steps")
        note(self.results / "plan.json", each=each)
        return max(min(100, steps), min(steps, fitting))

    def is_done(self, unit: str) -> bool:
        return any((self.results / f"{unit}{end}").exists() for end in (".npz", ".done.json"))

    def expected(self, unit: str) -> float:
        """Seconds of a training, as far as is known."""
        path = self.results / "plan.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        kind = VARIANTS[unit].kind if unit in VARIANTS else unit
        return float(known.get("each", 0)) * known.get("steps", 0) * COST.get(kind, 0.0)

    # What is tested on.

    @cached_property
    def candidates(self) -> dict[str, np.ndarray]:
        """Positions of the items that test queries are tested on, best first where a first stage found them."""
        path, ranked = self.out / "candidates.npz", self.results / "first.npz"
        if not path.exists() or (self.task.has_stage and not ranked.exists()):
            found, ranks = {}, {}
            for part in self.parts:
                if not self.task.has_stage:
                    found[part.name] = drawn_candidates(part, self.task.reranked, self.args.seed)
                    continue
                queries, items = self.vectors(part)
                rows = by_vectors(queries, items, DEPTH, [np.zeros(0, np.int64)] * len(queries))
                order = np.broadcast_to(-np.arange(rows.shape[1]), rows.shape)
                found[part.name], ranks[f"{part.name}/{DEPTH}"] = rows, gold_ranks(order, part.right(rows))
            save(path, **found)
            if ranks:
                save(ranked, **ranks)
        with np.load(path) as file:
            return {name: file[name] for name in file.files}

    def vectors(self, part: Part) -> tuple[np.ndarray, np.ndarray]:
        """Of a part's queries and items, by the first stage."""
        return self.stage.encode(part.examples.queries, "query"), self.stage.encode(part.examples.items, "item")


def _free() -> None:
    """What a training held of a GPU is there for the next."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
