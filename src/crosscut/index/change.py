"""Changing an index: more items, more anchor queries, fewer items; compare models are in `compared.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from crosscut.errors import CrosscutError
from crosscut.index import manifest as names
from crosscut.index.compared import check_comparers
from crosscut.index.executors import Executor, as_executor
from crosscut.index.lines import block_of, check_unique, item_lines, query_lines, some
from crosscut.index.manifest import Contents, Manifest, Model
from crosscut.index.steps import announce, commit, compute, write_texts
from crosscut.index.store import Store
from crosscut.types import Item, Query

if TYPE_CHECKING:
    from crosscut.compare.base import Comparer
    from crosscut.encoders.base import Encoder
    from crosscut.scorers.base import Scorer


def add_items(
    store: Store,
    items: Sequence[Item],
    *,
    scorer: Scorer,
    encoder: Encoder | None = None,
    comparers: Mapping[str, Comparer] | None = None,
    executor: str | Executor = "local",
    progress: bool = False,
) -> None:
    """Add items: score them against the anchor queries and anchor items that the index has.

    `comparers` are the compare models of the index, by their names in it.

    >>> from crosscut.index.build import build
    >>> from crosscut.scorers import as_scorer
    >>> scorer = as_scorer(lambda query, texts: [float(query in text) for text in texts])
    >>> store = build([Item("a", "flood")], scorer=scorer, anchor_queries=[Query("q", "fire")])
    >>> add_items(store, [Item("b", "fire")], scorer=scorer)
    >>> store.parts().anchor_scores.tolist()
    [[0.0, 1.0]]
    """
    check_unique("item", (item.id for item in items))
    with store.changing() as manifest:
        present = store.positions()
        taken = [item.id for item in items if item.id in present]
        if taken:
            raise CrosscutError(
                f"the index already has an item with the id {some(taken)}: delete it first, or use another id"
            )
        lines = item_lines(items)
        texts = {names.items_file(len(manifest.contents.segments)): lines}
        added = Contents(segments=(block_of(len(items), lines),))
        comparers = check_comparers(manifest, comparers or {})
        _add(store, added, texts, scorer, encoder, comparers, executor, progress)


def add_anchor_queries(
    store: Store,
    queries: Sequence[Query],
    *,
    scorer: Scorer,
    encoder: Encoder | None = None,
    executor: str | Executor = "local",
    progress: bool = False,
) -> None:
    """Add anchor queries: score them against every item of the index.

    >>> from crosscut.index.build import build
    >>> from crosscut.scorers import as_scorer
    >>> scorer = as_scorer(lambda query, texts: [float(query in text) for text in texts])
    >>> store = build([Item("a", "flood"), Item("b", "fire")], scorer=scorer)
    >>> add_anchor_queries(store, [Query("q", "fire")], scorer=scorer)
    >>> store.parts().anchor_scores.tolist()
    [[0.0, 1.0]]
    """
    with store.changing() as manifest:
        check_unique("anchor query", (query.id for query in (*store.anchor_queries(), *queries)))
        lines = query_lines(queries)
        texts = {names.anchors_file(len(manifest.contents.anchors)): lines}
        added = Contents(anchors=(block_of(len(queries), lines),))
        _add(store, added, texts, scorer, encoder, {}, executor, progress)


def delete(store: Store, ids: Iterable[str]) -> None:
    """Delete items by id. Positions stay; even the last item may go, and a search then finds nothing.

    >>> from crosscut.index.build import build
    >>> from crosscut.scorers import as_scorer
    >>> store = build([Item("a", "flood")], scorer=as_scorer(lambda query, texts: [0.0 for _ in texts]))
    >>> delete(store, ["a"])
    >>> store.parts().deleted.tolist()
    [True]
    """
    ids = {ids} if isinstance(ids, str) else set(ids)
    with store.changing() as manifest:
        positions = store.positions()
        unknown = sorted(ids - positions.keys())
        if unknown:
            raise CrosscutError(f"the index has no item with the id {some(unknown)}: nothing was deleted")
        store.update(deleted=tuple(sorted({*manifest.deleted, *(positions[id] for id in ids)})))


def repair(
    store: Store,
    *,
    scorer: Scorer,
    encoder: Encoder | None = None,
    comparers: Mapping[str, Comparer] | None = None,
    executor: str | Executor = "local",
    progress: bool = False,
) -> None:
    """Make anew whatever vectors or scores are missing or damaged.

    >>> from crosscut.index.build import build
    >>> from crosscut.scorers import as_scorer
    >>> scorer = as_scorer(lambda query, texts: [float(query in text) for text in texts])
    >>> store = build([Item("a", "flood")], scorer=scorer, anchor_queries=[Query("q", "flood")])
    >>> store.files.remove("scores/q000000-i000000.npy")
    >>> repair(store, scorer=scorer)
    >>> store.parts().anchor_scores.tolist()
    [[1.0]]
    """
    with store.changing() as manifest:
        check_models(manifest, scorer, encoder)
        executor = as_executor(executor)
        executor.check(scorer)
        comparers = check_comparers(manifest, comparers or {})
        compute(store, manifest.contents, scorer, encoder, comparers, executor, progress)


def _add(
    store: Store,
    added: Contents,
    texts: dict[str, bytes],
    scorer: Scorer,
    encoder: Encoder | None,
    comparers: Mapping[str, Comparer],
    executor: str | Executor,
    progress: bool,
) -> None:
    check_models(store.manifest, scorer, encoder)
    if not all(block.count for block in added.segments + added.anchors):
        return
    executor = as_executor(executor)
    executor.check(scorer)
    announce(store, added)
    write_texts(store, texts)
    compute(store, store.manifest.contents + added, scorer, encoder, comparers, executor, progress)
    commit(store)


def check_models(manifest: Manifest, scorer: Scorer, encoder: Encoder | None) -> None:
    """Refuse models that the stored numbers do not come from."""
    for kind, before, now in (
        ("scorer", manifest.scorer, Model.of(scorer)),
        ("encoder", manifest.encoder, Model.of(encoder) if encoder else None),
    ):
        if before != now:
            raise CrosscutError(
                f"the index was built with {_named(kind, before)}, but this is {_named(kind, now)}: "
                "use the same, or build a new index"
            )


def _named(kind: str, model: Model | None) -> str:
    return f"{kind} {model}" if model else f"no {kind}"
