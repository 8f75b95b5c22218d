"""Nearest-neighbour search for cross-encoders, with a small budget of model calls."""

from crosscut.errors import CrosscutError
from crosscut.index.index import Index
from crosscut.types import Hit, Item, Query, SearchResult

__all__ = ["CrosscutError", "Hit", "Index", "Item", "Query", "SearchResult"]
__version__ = "0.1.0"
