"""`Index`: build it, load it, change it, search it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from crosscut.compare import Comparer
from crosscut.encoders import Encoder, as_encoder
from crosscut.errors import CrosscutError
from crosscut.index import change
from crosscut.index.build import build
from crosscut.index.compared import remove_compare
from crosscut.index.derived import LEXICAL
from crosscut.index.executors import Executor
from crosscut.index.inputs import as_items, as_queries, listed
from crosscut.index.lines import some
from crosscut.index.models import (
    Models,
    add_comparers,
    check_added,
    check_model,
    given_comparers,
    has_name,
    match_comparers,
)
from crosscut.index.searcher import Searcher
from crosscut.index.store import Store
from crosscut.scorers import Scorer, as_scorer, scorer_again
from crosscut.search import DEFAULT_METHOD, settings_of
from crosscut.search.pipeline import Pipeline, Stage
from crosscut.types import Item, Query, SearchResult

DEFAULT_BUDGET = 200


class Index:
    """Items made ready to be searched with a scorer.

    >>> def overlap(query, texts):
    ...     return [len(set(query.split()) & set(text.split())) for text in texts]
    >>> index = Index.build(["the policy covers floods", "the policy covers fire"], scorer=overlap)
    >>> result = index.search("covers floods", k=1, budget=2)
    >>> result[0].text, result[0].score, result.calls
    ('the policy covers floods', 2.0, 2)
    """

    def __init__(
        self,
        store: Store,
        scorer: Scorer | None,
        encoder: Encoder | None,
        comparers: Mapping[str, Comparer] | None = None,
    ) -> None:
        self._store, self._models = store, Models(store, scorer, encoder, comparers)
        self._searcher: Searcher | None = None
        self._seen: object = None
        self._refresh()

    @classmethod
    def build(
        cls,
        items: Iterable[Item | str | Mapping[str, Any]],
        *,
        scorer: Any = None,
        anchor_queries: Iterable[Query | str] = (),
        encoder: Any = None,
        compare: Any = None,
        signal: int | None = None,
        path: str | Path | None = None,
        lexical: str | None = "bm25",
        anchor_items: int = 0,
        overwrite: bool = False,
        progress: bool = False,
        seed: int = 0,
        tile: tuple[int, int] | None = None,
        store: str = "float16",
        executor: str | Executor = "local",
    ) -> Index:
        """Make an index of `items`: texts, `Item`s, or mappings with id, text and perhaps title.

        scorer: a model name or folder, an object with `.predict(pairs)`, or a function f(query, texts) ->
        scores. anchor_queries: scored against every item now (k_q × N calls), to make every search better.
        encoder: a model name or folder, or an object with `.encode(texts)`; False for none. Where scorer or
        encoder is not given, it is crosscut-tiny, which comes with crosscut. compare: compare models, whose
        vectors of the items are kept too: a folder that `crosscut train compare` wrote, a list of them, or a
        mapping from names to them; see `add_compare`, also for signal, which is for the first of them. path: a
        folder to keep the index in; the same call continues a build that was stopped. lexical: "bm25", "tfidf"
        or None. anchor_items: how many items to score against every item, for the methods itemcur and
        fixeditem. store: "float16", or "int8" for half of the bytes on disk. executor: where scores are
        computed: "local", "processes", "ray", or an Executor.

        >>> len(Index.build(["one", "two"]))
        2
        """
        if lexical is not None and lexical not in LEXICAL:
            raise CrosscutError(
                f"unknown lexical weighting {lexical!r}: choose from {', '.join(LEXICAL)}, or None"
            )
        scorer, encoder = as_scorer(scorer), None if encoder is False else as_encoder(encoder)
        by_name = [kind for kind, model in (("scorer", scorer), ("encoder", encoder)) if has_name(model)]
        comparers = given_comparers(compare)
        check_added({}, comparers, signal)
        extra = {"lexical": lexical, "by_name": by_name}
        made = build(
            as_items(items),
            scorer=scorer,
            encoder=encoder,
            anchor_queries=as_queries(anchor_queries),
            anchor_items=anchor_items,
            seed=seed,
            folder=path,
            overwrite=overwrite,
            tile=tile,
            dtype=store,
            executor=executor,
            progress=progress,
        )
        if made.manifest.extra != {**made.manifest.extra, **extra}:
            with made.changing() as manifest:
                made.update(extra={**manifest.extra, **extra})
        # Only now, so that the index is complete without them, and whatever stops this costs nothing else.
        return cls(made, scorer, encoder, add_comparers(made, comparers, signal, progress, overwrite))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        scorer: Any = None,
        encoder: Any = None,
        compare: Any = None,
        other_models: bool = False,
    ) -> Index:
        """Open the index in folder `path`, with the models that it names unless others are given.

        Models other than those that the stored scores and vectors come from are an error, unless
        `other_models` says that this is meant; compare models must be those of the index in any case.

        >>> Index.load("no.index")
        Traceback (most recent call last):
        crosscut.errors.CrosscutError: there is no folder no.index: build an index there first
        """
        store = Store.open(path)
        manifest = store.manifest
        options = {} if other_models else manifest.scorer_options
        scorer = None if scorer is None else scorer_again(scorer, options)
        encoder = None if encoder is None else as_encoder(encoder)
        if not other_models:
            if scorer is not None:
                check_model("scorer", manifest.scorer, scorer, manifest.scorer_options)
            if encoder is not None:
                check_model("encoder", manifest.encoder, encoder, {})
        return cls(store, scorer, encoder, match_comparers(manifest, given_comparers(compare)))

    def __len__(self) -> int:
        return int((~self._parts.deleted).sum())

    @property
    def scorer(self) -> Scorer:
        """The scorer; loaded by the name in the index if none was given."""
        return self._models.scorer

    @property
    def encoder(self) -> Encoder | None:
        """The encoder, likewise; None if the index was built without."""
        return self._models.encoder

    @property
    def compare(self) -> tuple[str, ...]:
        """The names of the compare models whose vectors the index has."""
        return tuple(self._parts.compared)

    def add(
        self,
        items: Iterable[Item | str | Mapping[str, Any]],
        progress: bool = False,
        executor: str | Executor = "local",
    ) -> None:
        """Add items: only they are encoded, and scored against the anchor queries.

        >>> index = Index.build(["one"], scorer=lambda query, texts: [0.0 for _ in texts])
        >>> index.add(["two", {"id": "c", "text": "three"}])
        >>> len(index)
        3
        """
        made = as_items(items, start=len(self._parts.items), taken=self._positions)
        change.add_items(
            self._store,
            made,
            scorer=self.scorer,
            encoder=self.encoder,
            comparers=self._models.comparers(),
            executor=executor,
            progress=progress,
        )
        self._refresh()

    def add_anchor_queries(
        self, queries: Iterable[Query | str], progress: bool = False, executor: str | Executor = "local"
    ) -> None:
        """Add anchor queries: they are scored against every item."""
        anchors = self._parts.anchor_queries
        made = as_queries(queries, start=len(anchors), taken={query.id for query in anchors})
        change.add_anchor_queries(
            self._store, made, scorer=self.scorer, encoder=self.encoder, executor=executor, progress=progress
        )
        self._refresh()

    def add_compare(
        self, model: Any, name: str | None = None, signal: int | None = None, progress: bool = False
    ) -> str:
        """Keep the vectors that a compare model makes of the items, so that searches can use it; its name here.

        model: a folder that `crosscut train compare` wrote, or a `Comparer`. name: by which pipelines and
        `first=` call it (default: its kind, such as "cmc"). signal: how many of a query's nearest items the
        default search has it compare, to go by its scores too; 0: none (default: 16,384, or 1,024 on a CPU, for
        the first model with a fixed number of vectors per item). The same call continues what was stopped.
        """
        added = add_comparers(self._store, given_comparers([(name, model)]), signal, progress)
        self._models.keep(added)
        self._refresh()
        return next(iter(added))

    def remove_compare(self, name: str) -> None:
        """Remove a compare model and its vectors from the index."""
        remove_compare(self._store, name)
        self._refresh()

    def delete(self, ids: Iterable[str]) -> None:
        """Delete items by id.

        >>> index = Index.build([Item("a", "one"), Item("b", "two")], scorer=lambda q, texts: [0.0 for _ in texts])
        >>> index.delete(["a"])
        >>> [hit.id for hit in index.search("one")]
        ['b']
        """
        change.delete(self._store, [ids] if isinstance(ids, str) else listed("ids", ids))
        self._refresh()

    @overload
    def search(
        self, query: str, k: int = ..., budget: int | None = ..., method: str | None = ..., **settings: Any
    ) -> SearchResult: ...

    @overload
    def search(
        self,
        query: Sequence[str],
        k: int = ...,
        budget: int | None = ...,
        method: str | None = ...,
        **settings: Any,
    ) -> list[SearchResult]: ...

    def search(
        self,
        query: str | Sequence[str],
        k: int = 10,
        budget: int | None = None,
        method: str | None = None,
        *,
        pipeline: str | Pipeline | Stage | None = None,
        exclude: Iterable[str] = (),
        only: Iterable[str] | None = None,
        seed: int = 0,
        trace: bool = False,
        **settings: Any,
    ) -> SearchResult | list[SearchResult]:
        """The `k` items that the scorer ranks first, as far as `budget` calls per query can tell.

        budget: 200 unless given. method: one of `crosscut.search.METHODS`. pipeline: stages to go through
        instead, such as "dense:512 > cmc:64 > cross:16"; see `crosscut.search.pipeline`. A list of queries is
        searched together and gives a list of results. exclude, only: ids of items that are out of the question,
        or the only ones in it; they cost nothing. trace: keep what each round did. settings: those of the method
        (rounds, first, selection, anchor_share).

        >>> index = Index.build(["blue sky", "grey whale", "blue whale"])
        >>> result = index.search("whales", pipeline="lexical:3 > cross:2")
        >>> len(result), result.calls, [(stage.name, stage.items_out) for stage in result.stages]
        (2, 2, [('lexical', 3), ('cross', 2)])
        """
        texts = [query] if isinstance(query, str) else listed("queries", query)
        searcher, stages = self._searcher, None
        assert searcher is not None
        if pipeline is not None:
            _check_alone({"budget": budget, "method": method, **settings})
            pipeline = Pipeline((pipeline,)) if isinstance(pipeline, Stage) else pipeline
            stages = pipeline if isinstance(pipeline, Pipeline) else Pipeline.parse(pipeline)
            searcher.check(stages)
        budget = DEFAULT_BUDGET if budget is None else budget
        method = DEFAULT_METHOD if method is None else method
        _check_request(texts, k, budget, seed)
        settings_of(method)
        allowed = self._allowed(exclude, only)
        request: Any = {"k": k, "allowed": allowed, "seed": seed, "trace": trace}
        if allowed is not None and not allowed.any():  # nothing to be found, and nothing to be paid
            results = [searcher.nothing(text, stages, trace) for text in texts]
        elif stages is not None:
            results = searcher.pipeline(texts, stages, **request)
        else:
            results = searcher.search(texts, method, budget, settings, **request)
        return results[0] if isinstance(query, str) else results

    def _allowed(self, exclude: Iterable[str], only: Iterable[str] | None) -> np.ndarray | None:
        allowed = ~self._parts.deleted
        if only is not None:
            chosen = np.zeros_like(allowed)
            chosen[self._find(only)] = True
            allowed &= chosen
        allowed[self._find(exclude)] = False
        return None if allowed.all() else allowed

    def _find(self, ids: Iterable[str]) -> list[int]:
        ids = [ids] if isinstance(ids, str) else listed("ids", ids)
        unknown = [id for id in ids if id not in self._positions]
        if unknown:
            raise CrosscutError(f"the index has no item with the id {some(unknown)}")
        return [self._positions[id] for id in ids]

    def _refresh(self) -> None:
        """Read the store anew, and what is derived from it unless that has not changed."""
        parts, manifest = self._store.parts(), self._store.manifest
        now = manifest.contents, manifest.compare
        self._searcher = Searcher(self._store, parts, self._models, self._searcher if now == self._seen else None)
        self._seen = now
        self._parts, self._positions = parts, parts.positions()


def _check_request(texts: list[str], k: int, budget: int, seed: int) -> None:
    for name, value, least in (("k", k, 1), ("budget", budget, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise CrosscutError(f"{name} must be a whole number of at least {least}, but is {value!r}")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise CrosscutError(f"query {position} is a {type(text).__name__}, not a string")
        if not text.strip():
            raise CrosscutError(f"query {position} is empty: give it some words")


def _check_alone(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        if value is not None:
            raise CrosscutError(
                f"a pipeline says by itself what is done and how many calls that takes: {name} does not go with it"
            )
