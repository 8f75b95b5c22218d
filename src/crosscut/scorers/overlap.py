"""A stand-in for a model: words in common."""

from __future__ import annotations

import math
import re

_WORD = re.compile(r"[^\W_]+")


def overlap(query: str, texts: list[str]) -> list[float]:
    """How many of the query's words each text has, a little less for longer texts.

    No model: a stand-in for trying things out without one. It knows neither which words matter nor synonyms.

    >>> [round(score, 2) for score in overlap("reading files", ["Read a file.", "Write a file.", "Sleep."])]
    [1.76, 0.88, 0.0]
    """
    wanted = set(_stems(query))
    scores = []
    for text in texts:
        words = _stems(text)
        scores.append(len(wanted & set(words)) / (1 + 0.1 * math.log1p(len(words))))
    return scores


def _stems(text: str) -> list[str]:
    """Lower-case words without the commonest endings of English."""
    return [re.sub(r"(?<=\w{3})(ing|ed|es|s|e)$", "", word) for word in _WORD.findall(text.lower())]
