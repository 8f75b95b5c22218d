"""Nearest-neighbour search for cross-encoders, with a small budget of model calls."""

from typing import TYPE_CHECKING, Any

from crosscut.errors import CrosscutError
from crosscut.types import Hit, Item, Query, SearchResult

if TYPE_CHECKING:
    from crosscut.index.index import Index

__all__ = ["CrosscutError", "Hit", "Index", "Item", "Query", "SearchResult"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Index brings numpy and scipy: whoever only asks the command line for help need not wait for them.
    if name == "Index":
        from crosscut.index.index import Index

        return Index
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
