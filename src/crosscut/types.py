"""The data model: small frozen dataclasses, the same in Python, on the command line and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """What is found.

    >>> Item("a1", "covers floods", title="Policy").content
    'Policy covers floods'
    """

    id: str
    text: str
    title: str = ""

    @property
    def content(self) -> str:
        """The text that models read: title, space, text."""
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True)
class Query:
    """What is asked."""

    id: str
    text: str


@dataclass(frozen=True)
class Hit:
    """One found item; `score` is the scorer's raw score, never an estimate.

    After a pipeline it is what its last stage gave: `StageReport.scores` says what that is.
    """

    rank: int
    id: str
    score: float
    text: str


@dataclass(frozen=True)
class Round:
    """What one round did: which items it paid for, what was expected of them, what the scorer said.

    `estimates` is None in a round that had nothing to go by (a random first batch).
    """

    ids: tuple[str, ...]
    estimates: tuple[float, ...] | None
    scores: tuple[float, ...]


@dataclass(frozen=True)
class Seconds:
    """Where the time of a search went. Queries that are searched together share it equally."""

    scoring: float
    fitting: float
    selecting: float

    @property
    def total(self) -> float:
        return self.scoring + self.fitting + self.selecting

    def __str__(self) -> str:
        return (
            f"{self.total:.3f} s (scoring {self.scoring:.3f}, fitting {self.fitting:.3f}, "
            f"selecting {self.selecting:.3f})"
        )


@dataclass(frozen=True)
class StageReport:
    """What one stage of a pipeline did for a query; queries that are searched together share the time equally.

    `calls` are those of the scorer; `scores` says what the scores of the stage are. The time of the first stage
    includes the encoding of the query, which is done once for all stages.
    """

    name: str
    items_in: int
    items_out: int
    calls: int
    seconds: float
    scores: str


@dataclass(frozen=True)
class SearchResult:
    """The hits for one query, best first, and what they cost.

    >>> hit = Hit(rank=1, id="a1", score=3.5, text="covers floods")
    >>> result = SearchResult("floods?", (hit,), calls=20, rounds=2, seconds=Seconds(0.1, 0.0, 0.0))
    >>> [hit.id for hit in result], result[0].score, len(result)
    (['a1'], 3.5, 1)
    """

    query: str
    hits: tuple[Hit, ...]
    calls: int
    rounds: int
    seconds: Seconds
    trace: tuple[Round, ...] | None = None
    stages: tuple[StageReport, ...] | None = None  # of a pipeline

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, position: int) -> Hit:
        return self.hits[position]
