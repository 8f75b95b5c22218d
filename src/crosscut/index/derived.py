"""What an index works out from its own contents: the term index and the learned prior.

It lies in the folder `derived` and may be deleted at any time; it is then made anew. A stamp, written last,
says which contents it belongs to and what its files hold, so that what a change, a kill or a bad disk left
behind is never used.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.data.atomic import atomic_write
from crosscut.errors import CrosscutError
from crosscut.first_stage import BM25, TFIDF, TermIndex
from crosscut.index.store import Parts, Store
from crosscut.search.learn import FEWEST, learn
from crosscut.search.prior import Prior
from crosscut.search.problem import Corpus, Problem, Queries

LEXICAL = {"bm25": BM25, "tfidf": TFIDF}
STAMP = "derived.json"
PRIOR = "prior.json"  # and these of its arrays, if there are any:
ARRAYS = ("item_mean", "residuals")
FORMAT = 1  # to be raised when what is learned, or how it is written, changes

Stamp = dict[str, Any]
# The anchor queries as a batch, to their scores (k_q, N) by the compare models, by name.
CompareAnchors = Callable[[Problem], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Derived:
    terms: TermIndex | None
    prior: Prior


def derive(
    store: Store, parts: Parts, lexical: str | None, seed: int, compare: CompareAnchors | None = None
) -> Derived:
    """Read what is there and still fits; else make it, and keep it if the index is on disk.

    `compare` gives the scores of the compare models whose scores are signals, and is asked only to learn.
    """
    folder = store.folder / "derived" if store.folder else None
    stamp = {"format": FORMAT, "contents": _fingerprint(store, parts), "lexical": lexical} if folder else {}
    found = _read(folder, stamp) if folder else None
    if found:
        return found
    terms = LEXICAL[lexical]([item.content for item in parts.items]) if lexical else None
    derived = Derived(terms, _learn(parts, terms, signals_of(store), seed, compare))
    if folder:
        try:
            _write(folder, stamp, derived)
        except (OSError, CrosscutError) as error:  # a folder that is read-only, or full
            warnings.warn(f"what was learned is not kept and must be learned at every load: {error}", stacklevel=2)
    return derived


def signals_of(store: Store) -> tuple[str, ...]:
    """The compare models whose scores are signals of the default method."""
    return tuple(name for name, one in store.manifest.compare.items() if one.complete and one.signal)


def _learn(
    parts: Parts, terms: TermIndex | None, signals: tuple[str, ...], seed: int, compare: CompareAnchors | None
) -> Prior:
    corpus, anchors = corpus_of(parts, terms, compare=signals), anchors_of(parts, terms)
    if signals:
        nothing = dict.fromkeys(signals, np.zeros((len(anchors), corpus.size), np.float32))
        enough = compare is not None and len(anchors) >= FEWEST
        scores = compare(Problem(corpus, anchors)) if compare and enough else nothing
        anchors = replace(anchors, compare=scores)
    return learn(corpus, anchors, seed)


def corpus_of(
    parts: Parts, terms: TermIndex | None, prior: Prior | None = None, compare: tuple[str, ...] = ()
) -> Corpus:
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
        compare=compare,
        prior=prior,
    )


def anchors_of(parts: Parts, terms: TermIndex | None) -> Queries:
    return queries_of([query.text for query in parts.anchor_queries], parts.anchor_vectors, terms)


def queries_of(texts: Sequence[str], vectors: np.ndarray | None, terms: TermIndex | None) -> Queries:
    """Queries as a search sees them. Their texts seed their draws: alone or in a batch, they fall the same."""
    return Queries(
        keys=[
            int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "little")
            for text in texts
        ],
        vectors=vectors,
        lexical=np.array([terms.scores(text) for text in texts]).reshape(-1, len(terms)) if terms else None,
        terms=[terms.term_scores(text) for text in texts] if terms else None,
    )


def _fingerprint(store: Store, parts: Parts) -> str:
    manifest = store.manifest
    models = [str(manifest.scorer), str(manifest.encoder)]
    models += [f"{name}: {manifest.compare[name]}" for name in signals_of(store)]
    sha = hashlib.sha256(json.dumps([asdict(manifest.contents), models]).encode())
    for row in parts.anchor_scores:  # a function may give other scores under the same name
        sha.update(row.tobytes())
    return sha.hexdigest()


def _read(folder: Path, stamp: Stamp) -> Derived | None:
    try:
        keys = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        files = keys.pop("files")
        if keys != stamp or any(_checksum(folder / name) != checksum for name, checksum in files.items()):
            return None
        terms = TermIndex.load(folder / "lexical") if stamp["lexical"] else None
        arrays: dict[str, np.ndarray | None] = {}
        for name in ARRAYS:
            path = folder / f"{name}.npy"
            arrays[name] = np.load(path, allow_pickle=False) if path.name in files else None
        return Derived(terms, Prior.from_json(json.loads((folder / PRIOR).read_text(encoding="utf-8")), **arrays))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, CrosscutError):
        return None  # missing or damaged: it is made anew


def _write(folder: Path, stamp: Stamp, derived: Derived) -> None:
    folder.mkdir(exist_ok=True)
    shutil.rmtree(folder / "lexical", ignore_errors=True)
    if derived.terms:
        derived.terms.save(folder / "lexical")
    for name in ARRAYS:
        path, array = folder / f"{name}.npy", getattr(derived.prior, name)
        if array is None:
            path.unlink(missing_ok=True)
            continue
        with atomic_write(path, "wb") as file:
            np.save(file, array, allow_pickle=False)
    _write_json(folder / PRIOR, derived.prior.to_json())
    files = sorted([*folder.glob("*.npy"), *folder.glob("lexical/*"), folder / PRIOR])
    checksums = {path.relative_to(folder).as_posix(): _checksum(path) for path in files}
    _write_json(folder / STAMP, {**stamp, "files": checksums})


def _write_json(path: Path, keys: dict[str, Any]) -> None:
    with atomic_write(path) as file:
        json.dump(keys, file, indent=1)


def _checksum(path: Path) -> str:
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            sha.update(chunk)
    return sha.hexdigest()
