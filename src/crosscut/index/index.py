"""`Index`: build it, load it, change it, search it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from crosscut.encoders import Encoder, as_encoder
from crosscut.errors import CrosscutError
from crosscut.index import change
from crosscut.index.build import build
from crosscut.index.derived import LEXICAL, corpus_of, derive, queries_of
from crosscut.index.lines import some
from crosscut.index.manifest import Model
from crosscut.index.store import Store
from crosscut.scorers import Scorer, as_scorer
from crosscut.search import DEFAULT_METHOD, make_plan
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
        self._refresh()

    @classmethod
    def build(
        cls,
        items: Iterable[Item | str | Mapping[str, Any]],
        *,
        scorer: Any,
        anchor_queries: Iterable[Query | str] = (),
        encoder: Any = None,
        path: str | Path | None = None,
        lexical: str | None = "bm25",
        anchor_items: int = 0,
        overwrite: bool = False,
        progress: bool = False,
        seed: int = 0,
        tile: tuple[int, int] = (16, 1024),
    ) -> Index:
        """Make an index of `items`: texts, `Item`s, or mappings with id, text and perhaps title.

        scorer: a model name or folder, an object with `.predict(pairs)`, or a function f(query, texts) ->
        scores. anchor_queries: scored against every item now (k_q × N calls), to make every search better.
        encoder: a model name or folder, or an object with `.encode(texts)`. path: a folder to keep the index
        in; the same call continues a build that was stopped. lexical: "bm25", "tfidf" or None. anchor_items:
        how many items to score against every item, for the methods itemcur and fixeditem.

        >>> len(Index.build(["one", "two"], scorer=lambda query, texts: [0.0 for _ in texts]))
        2
        """
        if lexical is not None and lexical not in LEXICAL:
            raise CrosscutError(
                f"unknown lexical weighting {lexical!r}: choose from {', '.join(LEXICAL)}, or None"
            )
        scorer, encoder = as_scorer(scorer), None if encoder is None else as_encoder(encoder)
        store = build(
            as_items(items),
            scorer=scorer,
            encoder=encoder,
            anchor_queries=as_queries(anchor_queries),
            anchor_items=anchor_items,
            seed=seed,
            folder=path,
            overwrite=overwrite,
            tile=tile,
            progress=progress,
        )
        if store.manifest.extra.get("lexical", "") != lexical:
            with store.changing() as manifest:
                store.update(extra={**manifest.extra, "lexical": lexical})
        return cls(store, scorer, encoder)

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
        scorer = None if scorer is None else as_scorer(scorer)
        encoder = None if encoder is None else as_encoder(encoder)
        if not other_models:
            if scorer is not None:
                _check_model("scorer", manifest.scorer, scorer)
            if encoder is not None:
                _check_model("encoder", manifest.encoder, encoder)
        return cls(store, scorer, encoder)

    def __len__(self) -> int:
        return int((~self._parts.deleted).sum())

    @property
    def scorer(self) -> Scorer:
        """The scorer; loaded by the name in the index if none was given."""
        if self._scorer is None:
            self._scorer = _reload("scorer", self._store.manifest.scorer, as_scorer)
        return self._scorer

    @property
    def encoder(self) -> Encoder | None:
        """The encoder, likewise; None if the index was built without."""
        if self._encoder is None and self._store.manifest.encoder is not None:
            self._encoder = _reload("encoder", self._store.manifest.encoder, as_encoder)
        return self._encoder

    def add(self, items: Iterable[Item | str | Mapping[str, Any]], progress: bool = False) -> None:
        """Add items: only they are encoded, and scored against the anchor queries.

        >>> index = Index.build(["one"], scorer=lambda query, texts: [0.0 for _ in texts])
        >>> index.add(["two", {"id": "c", "text": "three"}])
        >>> len(index)
        3
        """
        made = as_items(items, start=len(self._parts.items))
        change.add_items(self._store, made, scorer=self.scorer, encoder=self.encoder, progress=progress)
        self._refresh()

    def add_anchor_queries(self, queries: Iterable[Query | str], progress: bool = False) -> None:
        """Add anchor queries: they are scored against every item."""
        made = as_queries(queries, start=len(self._parts.anchor_queries))
        change.add_anchor_queries(self._store, made, scorer=self.scorer, encoder=self.encoder, progress=progress)
        self._refresh()

    def delete(self, ids: Iterable[str]) -> None:
        """Delete items by id.

        >>> index = Index.build([Item("a", "one"), Item("b", "two")], scorer=lambda q, texts: [0.0 for _ in texts])
        >>> index.delete(["a"])
        >>> [hit.id for hit in index.search("one")]
        ['b']
        """
        change.delete(self._store, ids)
        self._parts = self._store.parts()
        self._positions = self._parts.positions()

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
        texts = [query] if isinstance(query, str) else list(query)
        _check_request(texts, k, budget)
        allowed = self._allowed(exclude, only)
        results: list[SearchResult] = []
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

        def score(queries: np.ndarray, positions: np.ndarray) -> np.ndarray:
            return self.scorer.score(
                [(texts[q], items[p].content) for q, p in zip(queries, positions, strict=True)]
            )

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
        ids = [ids] if isinstance(ids, str) else list(ids)
        unknown = [id for id in ids if id not in self._positions]
        if unknown:
            raise CrosscutError(f"the index has no item with the id {some(unknown)}")
        return [self._positions[id] for id in ids]

    def _refresh(self) -> None:
        """Read the store anew, and what is derived from it."""
        self._parts = self._store.parts()
        self._positions = self._parts.positions()
        lexical = self._store.manifest.extra.get("lexical", "bm25")
        derived = derive(self._store, self._parts, lexical, seed=0)
        self._terms = derived.terms
        self._corpus = corpus_of(self._parts, derived.terms, derived.prior)


def as_items(items: Iterable[Item | str | Mapping[str, Any]], start: int = 0) -> list[Item]:
    """Items of what a caller has; a plain text takes its position as id, counted from `start`.

    >>> as_items(["one", {"id": 7, "text": "two", "title": "T"}])
    [Item(id='0', text='one', title=''), Item(id='7', text='two', title='T')]
    """
    if isinstance(items, str):
        raise CrosscutError("items must be a list, but is one string: put it in a list, or read a file first")
    made = []
    for position, item in enumerate(items, start):
        if isinstance(item, str):
            item = Item(str(position), item)
        elif isinstance(item, Mapping):
            id = item.get("id", item.get("_id", position))
            if not isinstance(item.get("text"), str):
                raise CrosscutError(f"item {id!r} has no text: a mapping needs the keys id and text")
            item = Item(str(id), item["text"], str(item.get("title") or ""))
        elif not isinstance(item, Item):
            raise CrosscutError(f"item {position} is a {type(item).__name__}: give texts, mappings or Items")
        made.append(item)
    return made


def as_queries(queries: Iterable[Query | str], start: int = 0) -> list[Query]:
    """
    >>> as_queries(["what?"])
    [Query(id='0', text='what?')]
    """
    if isinstance(queries, str):
        raise CrosscutError("anchor queries must be a list, but there is one string: put it in a list")
    return [Query(str(n), query) if isinstance(query, str) else query for n, query in enumerate(queries, start)]


def _check_request(texts: list[str], k: int, budget: int) -> None:
    for name, value in (("k", k), ("budget", budget)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise CrosscutError(f"{name} must be a whole number of at least 1, but is {value!r}")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise CrosscutError(f"query {position} is a {type(text).__name__}, not a string")
        if not text.strip():
            raise CrosscutError(f"query {position} is empty: give it some words")


def _check_model(kind: str, built_with: Model | None, given: Scorer | Encoder) -> None:
    if built_with != Model.of(given):
        was = f"{kind} {built_with}" if built_with else f"no {kind}"
        raise CrosscutError(
            f"the index was built with {was}, but this is {kind} {Model.of(given)}: "
            "use the same, or say other_models=True if this is meant"
        )


def _reload(kind: str, built_with: Model | None, make: Any) -> Any:
    assert built_with is not None
    try:
        model = make(built_with.name)
    except CrosscutError as error:
        raise CrosscutError(
            f"the index was built with {kind} {built_with.name!r}, which cannot be loaded by that name "
            f"({error}): give it as {kind}="
        ) from error
    _check_model(kind, built_with, model)
    return model
