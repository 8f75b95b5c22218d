"""What every scorer is: pairs of texts in, checked raw scores out, calls counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from crosscut.errors import CrosscutError

if TYPE_CHECKING:
    from typing_extensions import Self

Pair: TypeAlias = tuple[str, str]


class Scorer(ABC):
    """A relevance model f(query, item). A backend implements `_score`, and `name` and `digest` if it can.

    `calls` is the number of pairs that the model has scored, ever. To another process a scorer is sent as the
    arguments that it was made with, and is made of them again there.

    >>> class Length(Scorer):
    ...     name = "length"
    ...
    ...     def _score(self, pairs):
    ...         return [len(item) for _, item in pairs]
    >>> scorer = Length()
    >>> scorer.score([("q", "one"), ("q", "three")]).tolist(), scorer.calls
    ([3.0, 5.0], 2)
    """

    name: str = "scorer"
    calls: int = 0
    _made_of: Callable[[], Scorer]

    def __new__(cls, *args: Any, **options: Any) -> Self:
        scorer = super().__new__(cls)
        scorer._made_of = partial(cls, *args, **options)
        return scorer

    def __reduce__(self) -> tuple[Callable[[], Scorer], tuple[()]]:
        return self._made_of, ()

    def digest(self) -> str:
        """A short hex that is the same for the same model; "" when that cannot be known.

        >>> from crosscut.scorers import as_scorer
        >>> as_scorer(lambda query, texts: [0.0 for _ in texts]).digest()
        ''
        """
        return ""

    def options(self) -> dict[str, Any]:
        """The options that its scores depend on, beside its name: an index keeps them to make it again.

        >>> from crosscut.scorers import as_scorer
        >>> as_scorer(lambda query, texts: [0.0 for _ in texts]).options()
        {}
        """
        return {}

    @final
    def score(self, pairs: Sequence[Pair]) -> np.ndarray:
        """Raw scores of (query, item) pairs, float32; refused unless there is one finite number per pair.

        >>> from crosscut.scorers import as_scorer
        >>> as_scorer(lambda query, texts: [1.0]).score([("q", "a"), ("q", "b")])
        Traceback (most recent call last):
        crosscut.errors.CrosscutError: scorer <lambda> was asked for 2 scores but returned 1
        """
        if len(pairs) == 0:
            return np.zeros(0, dtype=np.float32)
        try:
            scores = self._score(pairs)
        except CrosscutError:
            raise
        except Exception as error:
            problem = bad_text(pairs) or f"scorer {self.name} failed: {type(error).__name__}: {error}"
            raise CrosscutError(problem) from error
        scores = as_scores(scores, len(pairs), self.name)
        self.calls += len(pairs)
        self._check_finite(scores, pairs)
        return scores

    @abstractmethod
    def _score(self, pairs: Sequence[Pair]) -> Any:
        """Raw scores of at least one pair, in order, as anything numpy or torch can hold."""

    def _check_finite(self, scores: np.ndarray, pairs: Sequence[Pair]) -> None:
        bad = np.flatnonzero(~np.isfinite(scores))
        if len(bad):
            query, item = pairs[bad[0]]
            raise CrosscutError(
                f"scorer {self.name} gave {len(bad)} of {len(pairs)} pairs a score that is not a finite "
                f"number, first {scores[bad[0]]} to query {_shorten(query)} with item {_shorten(item)}"
            )


def as_scores(values: Any, n: int, name: str) -> np.ndarray:
    """`values` (array, list or torch tensor) as a float32 array of length `n`; `name` is for the message.

    >>> as_scores([1, 2.5], 2, "demo").tolist()
    [1.0, 2.5]
    """
    array = as_array(values)
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise CrosscutError(f"scorer {name} must return numbers, but returned {array.dtype} values")
    if array.ndim != 1:
        raise CrosscutError(
            f"scorer {name} must return one number per pair, but returned an array of shape {array.shape}"
        )
    if len(array) != n:
        raise CrosscutError(f"scorer {name} was asked for {n} scores but returned {len(array)}")
    with np.errstate(over="ignore"):  # too large for float32 becomes inf, which the caller refuses
        return array.astype(np.float32)


def as_array(values: Any) -> np.ndarray:
    """A numpy array of what a model returned, which may be a torch tensor on any device.

    >>> as_array([[1, 2]]).shape
    (1, 2)
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if values.is_floating_point():
            values = values.float()  # numpy has no bfloat16
    try:
        return np.asarray(values)
    except ValueError as error:
        raise CrosscutError(
            f"a model must return an array of numbers, but returned {type(values).__name__}: {error}"
        ) from error


def bad_text(pairs: Sequence[Pair]) -> str | None:
    """What is wrong with the first text that no model can read; looked for when one has failed.

    >>> bad_text([("flood", "covered"), ("flood", None)])
    'pair 1: its item is of type NoneType, not a string'
    """
    for position, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            return f"pair {position} is not a pair: give (query, item), two strings"
        for side, text in zip(("query", "item"), pair, strict=True):
            if problem := unreadable(text):
                return f"pair {position}: its {side} {problem}"
    return None


def unreadable(text: Any) -> str | None:
    """What is wrong with a text that no model can read.

    >>> unreadable("covered"), unreadable(3)
    (None, 'is of type int, not a string')
    """
    if not isinstance(text, str):
        return f"is of type {type(text).__name__}, not a string"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            f"{_shorten(text)} has half a character (a lone surrogate, at place {error.start}): "
            "read the text with the right encoding"
        )
    return None


def _shorten(text: str, limit: int = 80) -> str:
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")
