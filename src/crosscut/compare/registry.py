"""The kinds of compare models, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from crosscut.errors import CrosscutError

if TYPE_CHECKING:
    from crosscut.compare.model import CompareModel

KINDS = {
    "cmc": "cmc.CMC",
    "poly": "poly.PolyEncoder",
    "sum-of-max": "sum_of_max.SumOfMax",
    "deformer": "deformer.DeFormer",
    "mix": "mix.MixEncoder",
    "bi": "bi.BiEncoder",
}


def model_class(kind: str) -> type[CompareModel]:
    """The class of a kind of model.

    >>> model_class("cnc")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no compare model 'cnc': use cmc, poly, sum-of-max, deformer, mix or bi
    """
    if kind not in KINDS:
        *most, last = KINDS
        raise CrosscutError(f"there is no compare model {kind!r}: use {', '.join(most)} or {last}")
    module, name = KINDS[kind].split(".")
    found: type[CompareModel] = getattr(import_module(f"crosscut.compare.{module}"), name)
    return found
