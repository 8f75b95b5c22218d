"""The results of a run of the experiment with compare models, as its reports read them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from compare_data import DEPTH, TASKS

FIRST = "first"  # the first stage, where other models have their names


@dataclass(frozen=True)
class Results:
    """The folder `results` of one run."""

    folder: Path

    @cached_property
    def settings(self) -> dict[str, Any]:
        return self._json("settings")

    @cached_property
    def reranked(self) -> int:
        """Candidates of a last stage."""
        return TASKS[self.settings["task"]].reranked

    @cached_property
    def pipelines(self) -> dict[str, dict[str, float]]:
        """Median seconds of a search, by machine."""
        return {
            machine: {name: float(np.median(entry["seconds"])) for name, entry in one["pipelines"].items()}
            for machine, one in self._machines("time").items()
        }

    @cached_property
    def bytes(self) -> dict[str, float]:
        """Of an item's vectors in an index, by model; those of the first stage are one vector."""
        return self._json("bytes")

    def curves(self) -> dict[str, dict[str, Any]]:
        """Times against candidates, by machine."""
        return self._machines("curve")

    def has(self, name: str) -> bool:
        return (self.folder / f"{name}.npz").exists()

    def ranks(self, name: str, count: int) -> list[np.ndarray] | None:
        """For each part the ranks of what is right among so many candidates, 0 where it is not among them."""
        if not self.has(name):
            return None
        found = self._arrays(name)
        wanted = DEPTH if name == FIRST else count
        rows = [found.get(f"{part}/{wanted}") for part in self.parts(name)]
        if any(row is None for row in rows):
            return None
        # The first stage's own order, cut.
        return [np.where(row <= count, row, 0) if name == FIRST else row for row in rows if row is not None]

    def parts(self, name: str = "cmc") -> list[str]:
        """Names of the worlds, the smallest first."""
        return list(dict.fromkeys(key.split("/")[0] for key in self._arrays(name)))

    def final(self, source: str, calls: int) -> tuple[list[np.ndarray], list[np.ndarray]] | None:
        """Whether the cross-encoder's best is right, and whether any of its candidates is; both for each part."""
        if not self.has("final"):
            return None
        found = [self._arrays("final").get(f"{part}/{source}/{calls}") for part in self.parts("final")]
        if not found or any(row is None for row in found):
            return None
        rows = [row for row in found if row is not None]
        return [(row & 1).astype(float) for row in rows], [(row >> 1).astype(float) for row in rows]

    def _machines(self, unit: str) -> dict[str, dict[str, Any]]:
        """What a unit has measured, with a GPU and without."""
        found = [self._json(f"{unit}.done"), self._json(f"{unit}-cpu.done")]
        return {
            f"{one['machine']}, {one['cores']} cores" if one["device"] == "cpu" else one["machine"]: one
            for one in found
            if one
        }

    def _arrays(self, name: str) -> dict[str, np.ndarray]:
        with np.load(self.folder / f"{name}.npz") as file:
            return {key: file[key] for key in file.files}

    def _json(self, name: str) -> dict[str, Any]:
        path = self.folder / f"{name}.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def recall(ranks: list[np.ndarray], k: int) -> list[np.ndarray]:
    """Whether what is right is among the first k; a list of parts.

    >>> [part.tolist() for part in recall([np.array([0, 1, 5])], 4)]
    [[0.0, 1.0, 0.0]]
    """
    return [((part > 0) & (part <= k)).astype(float) for part in ranks]


def reciprocal(ranks: list[np.ndarray], k: int = 10) -> list[np.ndarray]:
    """1 over the rank of what is right, if that is among the first k: their mean is MRR@k.

    >>> [part.tolist() for part in reciprocal([np.array([0, 2, 11])])]
    [[0.0, 0.5, 0.0]]
    """
    return [np.where((part > 0) & (part <= k), 1 / part.clip(1), 0) for part in ranks]


def found_only(values: list[np.ndarray], ranks: list[np.ndarray]) -> list[np.ndarray]:
    """Values of those queries alone whose answer is among the candidates: for what the paper calls normalised."""
    return [value[part > 0] for value, part in zip(values, ranks, strict=True)]


def mean(values: list[np.ndarray]) -> float:
    """The mean of the means of the parts: worlds count alike; one without any value does not.

    >>> mean([np.array([1.0, 0.0]), np.array([1.0]), np.array([])])
    0.75
    """
    there = [part.mean() for part in values if len(part)]
    return float(np.mean(there)) if there else 0.0
