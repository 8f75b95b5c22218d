"""`Index`: build it, load it, change it, search it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from crosscut.encoders import Encoder, ExportedEncoder, ModelEncoder, as_encoder
from crosscut.errors import CrosscutError
from crosscut.index import change
from crosscut.index.build import build
from crosscut.index.derived import LEXICAL, corpus_of, derive, queries_of
from crosscut.index.executors import Executor
from crosscut.index.inputs import as_items, as_queries, listed
from crosscut.index.lines import some
from crosscut.index.manifest import Contents, Model
from crosscut.index.store import Store
from crosscut.scorers import PredictScorer, RemoteScorer, Scorer, TransformerScorer, as_scorer, scorer_again
from crosscut.scorers.exported import ExportedScorer
from crosscut.search import DEFAULT_METHOD, make_plan, settings_of
from crosscut.search.loop import Outcome, run
from crosscut.search.problem import Problem, batches
from crosscut.types import Hit, Item, Query, Round, SearchResult, Seconds


class Index:
    """Items made ready to be searched with a scorer.

    >>> def overlap(query, texts):
    ...     return [len(set(query.split()) & set(text.split())) for text in texts]
    >>> index = Index.build(["the policy covers floods", "the policy covers fire"], scorer=overlap)
    >>> result = index.search("covers floods", k=1, budget=2)
    >>> result[0].text, result[0].score, result.calls
    ('the policy covers floods', 2.0, 2)
    """

    def __init__(self, store: Store, scorer: Scorer | None, encoder: Encoder | None) -> None:
        self._store, self._scorer, self._encoder = store, scorer, encoder
        self._contents: Contents | None = None
        self._refresh()

    @classmethod
    def build(
        cls,
        items: Iterable[Item | str | Mapping[str, Any]],
        *,
        scorer: Any = None,
        anchor_queries: Iterable[Query | str] = (),
        encoder: Any = None,
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
        encoder is not given, it is crosscut-tiny, which comes with crosscut. path: a folder to keep the index
        in; the same call continues a build that was stopped. lexical: "bm25", "tfidf" or None. anchor_items:
        how many items to score against every item, for the methods itemcur and fixeditem. store: "float16", or
        "int8" for half of the bytes on disk. executor: where scores are computed: "local", "processes", "ray",
        or an Executor.

        >>> len(Index.build(["one", "two"]))
        2
        """
        if lexical is not None and lexical not in LEXICAL:
            raise CrosscutError(
                f"unknown lexical weighting {lexical!r}: choose from {', '.join(LEXICAL)}, or None"
            )
        scorer, encoder = as_scorer(scorer), None if encoder is False else as_encoder(encoder)
        by_name = [kind for kind, model in (("scorer", scorer), ("encoder", encoder)) if _has_name(model)]
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
        return cls(made, scorer, encoder)

    @classmethod
    def load(
        cls, path: str | Path, *, scorer: Any = None, encoder: Any = None, other_models: bool = False
    ) -> Index:
        """Open the index in folder `path`, with the models that it names unless others are given.

        Models other than those that the stored scores and vectors come from are an error, unless
        `other_models` says that this is meant.

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
                _check_model("scorer", manifest.scorer, scorer, manifest.scorer_options)
            if encoder is not None:
                _check_model("encoder", manifest.encoder, encoder, {})
        return cls(store, scorer, encoder)

    def __len__(self) -> int:
        return int((~self._parts.deleted).sum())

    @property
    def scorer(self) -> Scorer:
        """The scorer; loaded by the name in the index if none was given."""
        if self._scorer is None:
            options = self._store.manifest.scorer_options
            self._scorer = self._reload("scorer", lambda name: scorer_again(name, options))
        return self._scorer

    @property
    def encoder(self) -> Encoder | None:
        """The encoder, likewise; None if the index was built without."""
        if self._encoder is None and self._store.manifest.encoder is not None:
            self._encoder = self._reload("encoder", as_encoder)
        return self._encoder

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
            self._store, made, scorer=self.scorer, encoder=self.encoder, executor=executor, progress=progress
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
        self, query: str, k: int = ..., budget: int = ..., method: str = ..., **settings: Any
    ) -> SearchResult: ...

    @overload
    def search(
        self, query: Sequence[str], k: int = ..., budget: int = ..., method: str = ..., **settings: Any
    ) -> list[SearchResult]: ...

    def search(
        self,
        query: str | Sequence[str],
        k: int = 10,
        budget: int = 200,
        method: str = DEFAULT_METHOD,
        *,
        exclude: Iterable[str] = (),
        only: Iterable[str] | None = None,
        seed: int = 0,
        trace: bool = False,
        **settings: Any,
    ) -> SearchResult | list[SearchResult]:
        """The `k` items that the scorer ranks first, as far as `budget` calls per query can tell.

        A list of queries is searched together and gives a list of results. exclude, only: ids of items that
        are out of the question, or the only ones in it; they cost nothing. trace: keep what each round did.
        settings: those of the method (rounds, first, selection, anchor_share).
        """
        texts = [query] if isinstance(query, str) else listed("queries", query)
        _check_request(texts, k, budget, seed)
        settings_of(method)
        allowed = self._allowed(exclude, only)
        results: list[SearchResult] = []
        if allowed is not None and not allowed.any():  # nothing to be found, and nothing to be paid
            results = [_nothing(text, trace) for text in texts]
            return results[0] if isinstance(query, str) else results
        for batch in batches(len(texts), len(self._parts.items)):
            part = texts[batch]
            vectors = None if self.encoder is None else self.encoder.encode(part, role="query")
            problem = Problem(self._corpus, queries_of(part, vectors, self._terms), allowed, seed)
            outcome = self._run(problem, part, method, budget, settings)
            results += self._results(part, outcome, k, trace)
        return results[0] if isinstance(query, str) else results

    def _run(
        self, problem: Problem, texts: list[str], method: str, budget: int, settings: dict[str, Any]
    ) -> Outcome:
        plan = make_plan(method, problem, budget, **settings)
        items = self._parts.items
        scorer = self.scorer  # loaded now, so that its loading does not count as scoring

        def score(queries: np.ndarray, positions: np.ndarray) -> np.ndarray:
            return scorer.score([(texts[q], items[p].content) for q, p in zip(queries, positions, strict=True)])

        return run(problem, plan, score)

    def _results(self, texts: list[str], outcome: Outcome, k: int, trace: bool) -> list[SearchResult]:
        items, rounds = self._parts.items, outcome.rounds
        share = Seconds(*(value / len(texts) for value in vars(outcome.seconds).values()))
        positions, scores = outcome.best(k)
        results = []
        for row, text in enumerate(texts):
            hits = tuple(
                Hit(rank, items[p].id, float(s), items[p].content)
                for rank, (p, s) in enumerate(zip(positions[row], scores[row], strict=True), start=1)
            )
            traced = tuple(
                Round(
                    ids=tuple(items[p].id for p in scored.positions[row]),
                    estimates=None if scored.estimates is None else tuple(scored.estimates[row].tolist()),
                    scores=tuple(scored.scores[row].tolist()),
                )
                for scored in rounds
            )
            calls = sum(scored.positions.shape[1] for scored in rounds)
            results.append(SearchResult(text, hits, calls, len(rounds), share, traced if trace else None))
        return results

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

    def _reload(self, kind: str, make: Any) -> Any:
        manifest = self._store.manifest
        built_with = {"scorer": manifest.scorer, "encoder": manifest.encoder}[kind]
        assert built_with is not None
        if kind not in manifest.extra.get("by_name", [kind]):
            raise CrosscutError(
                f"the index was built with {kind} {built_with.name!r}, an object of the program that built it: "
                f"give it as {kind}="
            )
        try:
            model = make(built_with.name)
        except CrosscutError as error:
            raise CrosscutError(
                f"the index was built with {kind} {built_with.name!r}, which cannot be loaded by that name "
                f"({error}): give it as {kind}="
            ) from error
        if isinstance(model, RemoteScorer):
            model.withhold_key()
        _check_model(kind, built_with, model, manifest.scorer_options if kind == "scorer" else {})
        return model

    def _refresh(self) -> None:
        """Read the store anew, and what is derived from it unless that has not changed."""
        self._parts = self._store.parts()
        self._positions = self._parts.positions()
        if self._contents == self._store.manifest.contents:
            return
        self._contents = self._store.manifest.contents
        lexical = self._store.manifest.extra.get("lexical", "bm25")
        derived = derive(self._store, self._parts, lexical, seed=0)
        self._terms = derived.terms
        self._corpus = corpus_of(self._parts, derived.terms, derived.prior)


def _nothing(text: str, trace: bool) -> SearchResult:
    return SearchResult(text, (), 0, 0, Seconds(0.0, 0.0, 0.0), () if trace else None)


def _check_request(texts: list[str], k: int, budget: int, seed: int) -> None:
    for name, value, least in (("k", k, 1), ("budget", budget, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise CrosscutError(f"{name} must be a whole number of at least {least}, but is {value!r}")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise CrosscutError(f"query {position} is a {type(text).__name__}, not a string")
        if not text.strip():
            raise CrosscutError(f"query {position} is empty: give it some words")


def _check_model(kind: str, built_with: Model | None, given: Scorer | Encoder, options: Mapping[str, Any]) -> None:
    now = Model.of(given)
    if built_with is None or not built_with.is_same(now):
        was = f"{kind} {built_with}{_with(options)}" if built_with else f"no {kind}"
        this = f"{kind} {now}{_with(given.options() if isinstance(given, Scorer) else {})}"
        raise CrosscutError(
            f"the index was built with {was}, but this is {this}: "
            "use the same, or say other_models=True if this is meant"
        )


def _with(options: Mapping[str, Any]) -> str:
    return f" with {', '.join(f'{name}={value}' for name, value in options.items())}" if options else ""


def _has_name(model: Scorer | Encoder | None) -> bool:
    """Whether the name of a model may find it again; that of a function finds, if anything, a stranger."""
    if isinstance(model, RemoteScorer):
        return True
    return (
        isinstance(model, TransformerScorer | ExportedScorer | PredictScorer | ModelEncoder | ExportedEncoder)
        and model.digest() != ""
    )
