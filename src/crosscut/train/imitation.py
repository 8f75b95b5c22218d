"""A bi-encoder that learns the vectors of another."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AutoConfig

from crosscut.encoders import Encoder, as_encoder
from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.scorers.exported import is_exported
from crosscut.scorers.model_files import loading, model_location
from crosscut.train.batches import Batch
from crosscut.train.data import Examples
from crosscut.train.folder import kept
from crosscut.train.mining import mine, vector_finder
from crosscut.train.students import top_recalls
from crosscut.train.trainer import Spread
from crosscut.train.vectors import KS, VectorTask, dimensions


def encoder_teacher(teacher: Any, device: str | None) -> Encoder:
    """The one encoder to learn from; a cross-encoder is refused, from which the library would make one up."""
    if isinstance(teacher, list | tuple):
        if len(teacher) != 1:
            raise CrosscutError(f"the loss vectors learns from one teacher, but there are {len(teacher)}")
        teacher = teacher[0]
    if isinstance(teacher, str | Path) and not is_exported(teacher):
        location = model_location(teacher)
        with loading(location):
            config = AutoConfig.from_pretrained(location)
        kinds = config.architectures or []
        if hasattr(config, "crosscut") or any(kind.endswith("ForSequenceClassification") for kind in kinds):
            raise CrosscutError(
                f"the teacher {teacher} is a cross-encoder, but the loss vectors learns from an encoder: "
                "use match, pair or mse, or another teacher"
            )
    return as_encoder(teacher, device)


def check_dimensions(teacher: Encoder, student: Any) -> None:
    """Refuse vectors that cannot be compared."""
    wide, own = teacher.encode(["a"]).shape[1], dimensions(student)
    if wide != own:
        raise CrosscutError(
            f"the vectors of {teacher.name} have {wide} dimensions and those of the student {own}: "
            "begin with a model that has as many"
        )


def vectors_of(
    teacher: Encoder, examples: Examples, cache: Path, items: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """What the teacher makes of queries and items (unless `items` has that), kept in half precision.

    It is kept in a folder next to `cache`, named for what it depends on.
    """
    key = hashlib.sha256(repr([teacher.digest() or teacher.name, examples.digest()]).encode()).hexdigest()[:16]
    folder = cache.with_name(f"{cache.name}-{key}")
    folder.mkdir(exist_ok=True)

    def made(texts: list[str], role: Role) -> np.ndarray:
        return kept(folder / f"{role}.npy", lambda: teacher.encode(texts, role).astype(np.float16))

    return made(examples.queries, "query"), made(examples.items, "item") if items is None else items


class TextRows:
    """Training rows: all texts, queries and items alike, by their positions."""

    def __init__(self, count: int) -> None:
        self.epoch, self._count = 0, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> int:
        return place


class ImitationTask(VectorTask):
    """The vectors of a teacher that is an encoder itself: 1 - cosine.

    `taught` and `dev_taught` are the teacher's vectors of queries and items.
    """

    def __init__(
        self,
        encoder: Any,
        train: Examples,
        dev: Examples,
        *,
        taught: tuple[np.ndarray, np.ndarray],
        dev_taught: tuple[np.ndarray, np.ndarray],
        progress: bool = False,
    ) -> None:
        rows = TextRows(len(train.queries) + len(train.items))
        super().__init__(encoder, rows, train, dev, scale=1.0, progress=progress)
        self._texts, self._taught = np.concatenate(self.known[id(train)]), taught
        self._dev_queries = dev_taught[0].astype(np.float32)
        self._dev_first = mine(dev, vector_finder(*dev_taught, "cpu"), max(KS), answers_too=True)

    def collate(self, rows: Sequence[int]) -> Batch:
        places, queries = np.array(rows), len(self.train.queries)
        of_query = places < queries
        target = np.empty((len(rows), self._taught[0].shape[1]), np.float32)
        target[of_query] = self._taught[0][places[of_query]]
        target[~of_query] = self._taught[1][places[~of_query] - queries]
        return {"inputs": self.inputs(self._texts[places]), "target": torch.as_tensor(target)}

    def loss(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        return (1 - F.cosine_similarity(output, batch["target"])).mean()

    def evaluate(self, spread: Spread) -> dict[str, float]:
        """How like the teacher's the vectors of queries are, and how many of its first k items are found."""
        vectors = self.all_vectors(self.known[id(self.dev)][0], spread)
        cosine = float((vectors * self._dev_queries).sum(axis=1).mean())
        return top_recalls(self._dev_first, self.nearest(self.dev, max(KS), spread), self.dev) | {"cosine": cosine}
