"""What every encoder is: texts in, checked vectors of unit length out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, final

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.scorers.base import as_array, unreadable

Role: TypeAlias = Literal["query", "item"]


class Encoder(ABC):
    """A bi-encoder. A backend implements `_encode`, and `name` and `digest` if it can.

    >>> class Letters(Encoder):
    ...     name = "letters"
    ...
    ...     def _encode(self, texts, role):
    ...         return [[text.count("a"), text.count("b")] for text in texts]
    >>> print(Letters().encode(["aaabbbb", "b", ""]))
    [[0.6 0.8]
     [0.  1. ]
     [0.  0. ]]
    """

    name: str = "encoder"
    _width: int = 0

    def digest(self) -> str:
        """A short hex that is the same for the same model; "" when that cannot be known.

        >>> from crosscut.encoders import GivenVectors
        >>> len(GivenVectors(["sky"], [[1.0, 2.0]]).digest())
        16
        """
        return ""

    @final
    def encode(self, texts: Sequence[str], role: Role = "item") -> np.ndarray:
        """One row per text, float32, scaled to unit length; a row of zeros stays as it is.

        >>> from crosscut.encoders import GivenVectors
        >>> print(GivenVectors(["sky"], [[3.0, 4.0]]).encode(["sky", "sky"], role="query"))
        [[0.6 0.8]
         [0.6 0.8]]
        """
        if isinstance(texts, str):
            raise CrosscutError("an encoder takes a list of texts, but got one string: put it in a list")
        if role not in ("query", "item"):
            raise CrosscutError(f"the role of a text is 'query' or 'item', not {role!r}")
        if len(texts) == 0:
            return np.zeros((0, self._width), dtype=np.float32)
        try:
            values = self._encode(texts, role)
        except CrosscutError:
            raise
        except Exception as error:
            bad = (f"text {n} {problem}" for n, text in enumerate(texts) if (problem := unreadable(text)))
            problem = next(bad, f"encoder {self.name} failed: {type(error).__name__}: {error}")
            raise CrosscutError(problem) from error
        vectors = self._checked(as_array(values), texts)
        self._width = vectors.shape[1]
        return to_unit_length(vectors)

    @abstractmethod
    def _encode(self, texts: Sequence[str], role: Role) -> Any:
        """Vectors of at least one text, of any length, as anything numpy or torch can hold."""

    def _checked(self, vectors: np.ndarray, texts: Sequence[str]) -> np.ndarray:
        is_real = np.issubdtype(vectors.dtype, np.floating) or np.issubdtype(vectors.dtype, np.integer)
        if not is_real or vectors.ndim != 2 or len(vectors) != len(texts):
            raise CrosscutError(
                f"encoder {self.name} must return a table of numbers with {len(texts)} rows, "
                f"but returned {vectors.dtype} values of shape {vectors.shape}"
            )
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise CrosscutError(
                f"encoder {self.name} gave {len(bad)} of {len(texts)} texts a vector that is not finite, "
                f"the first of them to {texts[bad[0]][:80]!r}"
            )
        return vectors


def to_unit_length(vectors: np.ndarray) -> np.ndarray:
    """Rows scaled to length one, float32; a row of zeros stays as it is.

    >>> import numpy as np
    >>> print(to_unit_length(np.array([[0.0, 2.0], [0.0, 0.0]])))
    [[0. 1.]
     [0. 0.]]
    """
    wide = np.asarray(vectors, dtype=np.float64)
    # Divided by its largest entry first, so that no square overflows or vanishes.
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    wide = wide / np.where(largest > 0, largest, 1.0)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
