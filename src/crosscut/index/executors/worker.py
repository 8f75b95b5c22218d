"""The far side: a scorer made anew in another process, and its answers."""

from __future__ import annotations

import os
import pickle
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.index.tiles import score_tile

if TYPE_CHECKING:
    from crosscut.scorers.base import Scorer


@dataclass(frozen=True)
class Answer:
    """The scores of a tile and what they cost; or an error to end the build with; or neither: ready to work."""

    scores: np.ndarray | None = None
    error: str = ""
    calls: int = 0
    truncated: int = 0


@dataclass
class Worker:
    """Carries a scorer to another process as what it was made of: names and options, not weights.

    >>> from crosscut.scorers import as_scorer
    >>> worker = Worker.of(as_scorer("crosscut-tiny"))
    >>> worker.greet()
    Answer(scores=None, error='', calls=0, truncated=0)
    >>> worker.score(["fire"], ["fire", "flood"]).calls
    2
    """

    name: str
    digest: str
    packed: bytes
    paths: list[str]

    @classmethod
    def of(cls, scorer: Scorer, dumps: Callable[[Scorer], bytes] = pickle.dumps) -> Worker:
        try:
            packed = dumps(scorer)
        except Exception as error:
            raise CrosscutError(
                f"the scorer {scorer.name} cannot be sent to another process ({error}): make it of a function or "
                "a class at the top of a module, or use the executor 'local'"
            ) from error
        # A worker may start elsewhere than in the folder that a user's own module lies in.
        return cls(scorer.name, scorer.digest(), packed, [path or str(Path.cwd()) for path in sys.path])

    def greet(self) -> Answer:
        """Make the scorer, and see that it is the same as at home."""
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # the driver's bar is enough
        sys.path += [path for path in self.paths if path not in sys.path]
        host = platform.node()
        try:
            self._scorer: Scorer = pickle.loads(self.packed)
            digest = self._scorer.digest()
        except Exception as error:
            return Answer(
                error=f"a worker on {host} cannot make the scorer {self.name} ({_said(error)}): "
                "its model and its code must be there under the same names as here"
            )
        if digest != self.digest:
            return Answer(
                error=f"the scorer {self.name} on {host} has the digest {digest or 'unknown'}, but here it is "
                f"{self.digest or 'unknown'}: put the same model on all machines"
            )
        return Answer()

    def score(self, queries: Sequence[str], items: Sequence[str]) -> Answer:
        before = _spent(self._scorer)
        scores, error = None, ""
        try:
            scores = score_tile(self._scorer, queries, items)
        except Exception as failure:
            error = _said(failure)
        calls, truncated = (now - then for now, then in zip(_spent(self._scorer), before, strict=True))
        return Answer(scores, error, calls, truncated)


def _spent(scorer: Scorer) -> tuple[int, int]:
    return scorer.calls, getattr(scorer, "truncated", 0)


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, CrosscutError) else f"{type(error).__name__}: {error}"
