"""Training: cross-encoders, bi-encoders, and students of cross-encoders. Needs the extra `train`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crosscut.train.cross_encoder import train_cross_encoder

__all__ = ["train_cross_encoder"]


def __getattr__(name: str) -> Any:
    # The command line asks for the settings alone, and need not wait for the rest.
    if name == "train_cross_encoder":
        from crosscut.train.cross_encoder import train_cross_encoder

        return train_cross_encoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
