"""Models that `crosscut export` wrote: scorers, and what they share with encoders (see `encoders.exported`).

No torch and no transformers: a runtime, the `tokenizers` package and the folder are all that is needed.
"""

from __future__ import annotations

from crosscut.scorers.exported.manifest import BACKENDS, MANIFEST, TINY, Kind, Manifest, file_digest, is_exported
from crosscut.scorers.exported.model import ExportedModel, Rows
from crosscut.scorers.exported.scorer import ExportedScorer

__all__ = [
    "BACKENDS",
    "MANIFEST",
    "TINY",
    "ExportedModel",
    "ExportedScorer",
    "Kind",
    "Manifest",
    "Rows",
    "file_digest",
    "is_exported",
]
