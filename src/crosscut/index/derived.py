"""What an index works out from its own contents: the term index and the learned prior.

It lies in the folder `derived` and may be deleted at any time; it is then made anew. A stamp, written last,
says which contents it belongs to, so that what a change or a kill left behind is never used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from crosscut.data.atomic import atomic_write
from crosscut.errors import CrosscutError
from crosscut.first_stage import BM25, TFIDF, TermIndex
from crosscut.index.store import Parts, Store
from crosscut.search.learn import learn
from crosscut.search.prior import Prior
from crosscut.search.problem import Corpus, Queries

LEXICAL = {"bm25": BM25, "tfidf": TFIDF}
STAMP = "derived.json"


@dataclass(frozen=True)
class Derived:
    terms: TermIndex | None
    prior: Prior


def derive(store: Store, parts: Parts, lexical: str | None, seed: int) -> Derived:
    """Read what is there and still fits; else make it, and keep it if the index is on disk."""
    folder = store.folder / "derived" if store.folder else None
    stamp = {"contents": _fingerprint(store), "lexical": lexical}
    found = _read(folder, stamp) if folder else None
    if found:
        return found
    terms = LEXICAL[lexical]([item.content for item in parts.items]) if lexical else None
    derived = Derived(terms, learn(corpus_of(parts, terms), anchors_of(parts, terms), seed))
    if folder:
        _write(folder, stamp, derived)
    return derived


def corpus_of(parts: Parts, terms: TermIndex | None, prior: Prior | None = None) -> Corpus:
    """The item side of a search, as float32: the products of every round are made in that."""
    has_anchors = len(parts.anchor_queries) > 0
    return Corpus(
        size=len(parts.items),
        vectors=None if parts.vectors is None else np.asarray(parts.vectors, np.float32),
        words=terms.unit_rows() if terms else None,
        anchor_scores=np.asarray(parts.anchor_scores, np.float32) if has_anchors else None,
        anchor_vectors=parts.anchor_vectors if has_anchors else None,
        item_anchors=parts.item_anchors,
        item_scores=parts.item_scores,
        prior=prior,
    )


def anchors_of(parts: Parts, terms: TermIndex | None) -> Queries:
    return queries_of([query.text for query in parts.anchor_queries], parts.anchor_vectors, terms)


def queries_of(texts: Sequence[str], vectors: np.ndarray | None, terms: TermIndex | None) -> Queries:
    """Queries as a search sees them. Their texts seed their draws: alone or in a batch, they fall the same."""
    return Queries(
        keys=[int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") for text in texts],
        vectors=vectors,
        lexical=np.array([terms.scores(text) for text in texts]).reshape(-1, len(terms)) if terms else None,
        terms=[terms.term_scores(text) for text in texts] if terms else None,
    )


def _fingerprint(store: Store) -> str:
    manifest = store.manifest
    models = [str(manifest.scorer), str(manifest.encoder)]
    return hashlib.sha256(json.dumps([asdict(manifest.contents), models]).encode()).hexdigest()


def _read(folder: Path, stamp: dict[str, str | None]) -> Derived | None:
    try:
        keys = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        if {name: keys.get(name) for name in stamp} != stamp:
            return None
        terms = TermIndex.load(folder / "lexical") if stamp["lexical"] else None
        arrays: dict[str, np.ndarray | None] = {"item_mean": None, "residuals": None}
        if keys["learned"]:
            arrays = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in arrays}
        return Derived(terms, Prior.from_json(keys["prior"], **arrays))
    except (OSError, ValueError, KeyError, TypeError, CrosscutError):
        return None  # missing or damaged: it is made anew


def _write(folder: Path, stamp: dict[str, str | None], derived: Derived) -> None:
    folder.mkdir(exist_ok=True)
    (folder / STAMP).unlink(missing_ok=True)
    if derived.terms:
        derived.terms.save(folder / "lexical")
    prior = derived.prior
    for name in ("item_mean", "residuals"):
        if (array := getattr(prior, name)) is not None:
            with atomic_write(folder / f"{name}.npy", "wb") as file:
                np.save(file, array, allow_pickle=False)
    keys = {**stamp, "learned": prior.item_mean is not None, "prior": prior.to_json()}
    with atomic_write(folder / STAMP) as file:
        json.dump(keys, file, indent=1)
