"""Training: cross-encoders, bi-encoders, compare models, students of cross-encoders. Needs the extra `train`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crosscut.train.compare import train_compare
    from crosscut.train.cross_encoder import train_cross_encoder
    from crosscut.train.distillation import distil
    from crosscut.train.encoder import train_encoder

__all__ = ["distil", "train_compare", "train_cross_encoder", "train_encoder"]
MODULES = {
    "distil": "distillation",
    "train_compare": "compare",
    "train_cross_encoder": "cross_encoder",
    "train_encoder": "encoder",
}


def __getattr__(name: str) -> Any:
    # The command line asks for the settings alone, and need not wait for the rest.
    if name in MODULES:
        return getattr(import_module(f"crosscut.train.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
