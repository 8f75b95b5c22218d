"""Searching an index as it is now: queries are encoded once for all models, then planned, scored and reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from crosscut.compare import Comparer, QueryVectors, encode_together
from crosscut.encoders.base import Encoder
from crosscut.errors import CrosscutError
from crosscut.first_stage import TermIndex
from crosscut.index.comparison import LARGEST_PASS, Comparison
from crosscut.index.derived import corpus_of, derive, queries_of, signals_of
from crosscut.index.models import Models
from crosscut.index.store import Parts, Store
from crosscut.search import DEFAULT_METHOD, make_plan
from crosscut.search.loop import Scored, ScorePairs, run
from crosscut.search.pipeline import FIRST, Pipeline, run_pipeline
from crosscut.search.problem import Corpus, Problem, batches
from crosscut.types import Hit, Round, SearchResult, Seconds, StageReport


@dataclass(frozen=True)
class _Needs:
    """What a search needs of the queries. `compare`: models that encode them; `scored`: that score items ahead."""

    encoder: bool = True
    lexical: bool = True
    compare: tuple[str, ...] = ()
    scored: tuple[str, ...] = ()


class Searcher:
    """What an index has in memory, with what it has learned from its contents."""

    def __init__(self, store: Store, parts: Parts, models: Models, learned_by: Searcher | None = None) -> None:
        """`learned_by`: a searcher of the same contents, from which nothing but deleted items differs."""
        self.parts, self.models = parts, models
        self.signals = signals_of(store)
        self.unfinished = [name for name, one in store.manifest.compare.items() if not one.complete]
        self.depths = {name: one.signal for name, one in store.manifest.compare.items() if one.complete}
        if learned_by is not None:
            self.terms: TermIndex | None = learned_by.terms
            self.corpus: Corpus = learned_by.corpus
            return
        lexical = store.manifest.extra.get("lexical", "bm25")
        derived = derive(store, parts, lexical, seed=0, compare=self._anchor_scores)
        self.terms = derived.terms
        self.corpus = corpus_of(parts, derived.terms, derived.prior, self.signals)

    def search(
        self,
        texts: Sequence[str],
        method: str,
        budget: int,
        settings: dict[str, Any],
        *,
        k: int,
        allowed: np.ndarray | None,
        seed: int,
        trace: bool,
    ) -> list[SearchResult]:
        """Search by a method, a batch of queries at a time."""
        results: list[SearchResult] = []
        signals = self.signals if method == DEFAULT_METHOD else ()
        first = tuple(name for name in self.depths if name == settings.get("first"))
        needs = _Needs(compare=signals + first, scored=signals + first)
        for batch in batches(len(texts), len(self.parts.items)):
            part = texts[batch]
            self._load(needs)
            problem, _, encoding, comparing = self._problem(part, needs, allowed, seed)
            plan = make_plan(method, problem, budget, **settings)
            outcome = run(problem, plan, self._score_pairs(part))
            seconds = replace(outcome.seconds, selecting=outcome.seconds.selecting + encoding + comparing)
            positions, scores = outcome.best(k)
            results += self._results(part, positions, scores, outcome.rounds, seconds, trace)
        return results

    def pipeline(
        self,
        texts: Sequence[str],
        pipeline: Pipeline,
        *,
        k: int,
        allowed: np.ndarray | None,
        seed: int,
        trace: bool,
    ) -> list[SearchResult]:
        """Search by a pipeline, a batch of queries at a time."""
        results: list[SearchResult] = []
        names = {stage.name for stage in pipeline.stages}
        needs = self._needs(names)
        for batch in batches(len(texts), len(self.parts.items)):
            part = texts[batch]
            score = self._score_pairs(part) if pipeline.needs_scorer else _never
            self._load(needs)
            problem, encoded, encoding, comparing = self._problem(part, needs, allowed, seed)

            def compare(name: str, items: np.ndarray, encoded: dict[str, QueryVectors] = encoded) -> np.ndarray:
                return self._comparison(name).scores(encoded[name], items)

            outcome = run_pipeline(problem, pipeline, compare, score)
            seconds = replace(outcome.seconds, selecting=outcome.seconds.selecting + encoding + comparing)
            reports = [
                replace(report, seconds=report.seconds + (comparing if report.name == "crosscut" else 0))
                for report in outcome.reports
            ]
            reports[0] = replace(reports[0], seconds=reports[0].seconds + encoding)
            positions, scores = outcome.positions[:, :k], outcome.scores[:, :k]
            results += self._results(part, positions, scores, outcome.rounds, seconds, trace, reports)
        return results

    def nothing(self, text: str, pipeline: Pipeline | None, trace: bool) -> SearchResult:
        """The result where no item is left to be found."""
        stages = None
        if pipeline:
            stages = tuple(StageReport(one.name, 0, 0, 0, 0.0, one.meaning) for one in pipeline.stages)
        return SearchResult(text, (), 0, 0, Seconds(0.0, 0.0, 0.0), () if trace else None, stages)

    def check(self, pipeline: Pipeline) -> None:
        """See that the index has what the stages need."""
        for stage in pipeline.stages:
            if stage.name in self.unfinished:
                raise CrosscutError(
                    f"the vectors of the compare model {stage.name!r} are not finished: add it again to continue"
                )
        pipeline.check(list(self.depths), encoder=self.parts.vectors is not None, lexical=self.terms is not None)

    def _needs(self, stages: set[str]) -> _Needs:
        searches = "crosscut" in stages
        plain = {FIRST[name] for name in stages if name in FIRST}
        signals = self.signals if searches else ()
        return _Needs(
            encoder=searches or bool(plain & {"encoder", "rrf"}),
            lexical=searches or bool(plain & {"lexical", "rrf"}),
            compare=(*signals, *(name for name in self.depths if name in stages)),
            scored=signals,
        )

    def _load(self, needs: _Needs) -> None:
        """Now, so that loading counts as nothing else."""
        if needs.encoder:
            self.models.encoder  # noqa: B018
        for name in needs.compare:
            self.models.comparer(name)

    def _problem(
        self, texts: Sequence[str], needs: _Needs, allowed: np.ndarray | None, seed: int
    ) -> tuple[Problem, dict[str, QueryVectors], float, float]:
        """The queries as a search sees them, what the compare models made of them, and the seconds that encoding
        them and comparing items ahead of the search took."""
        begun = perf_counter()
        names = list(dict.fromkeys(needs.compare))
        models: list[Encoder | Comparer] = [self.models.comparer(name) for name in names]
        if needs.encoder and self.models.encoder is not None:
            models.append(self.models.encoder)
        made: list[Any] = encode_together(models, texts)
        vectors = made.pop() if len(made) > len(names) else None
        encoded: dict[str, QueryVectors] = dict(zip(names, made, strict=True))
        queries = queries_of(texts, vectors, self.terms if needs.lexical else None)
        problem = Problem(self.corpus, queries, allowed, seed)
        done = perf_counter()
        scores = {
            name: self._comparison(name).nearest(
                encoded[name], problem, self.depths[name] or LARGEST_PASS, allowed
            )
            for name in dict.fromkeys(needs.scored)
        }
        problem = replace(problem, queries=replace(queries, compare=scores))
        return problem, encoded, done - begun, perf_counter() - done if scores else 0.0

    def _anchor_scores(self, problem: Problem) -> dict[str, np.ndarray]:
        """What the compare models say of the anchor queries, whose batch `problem` is; deleted items count too."""
        texts = [query.text for query in self.parts.anchor_queries]
        scores: dict[str, np.ndarray] = {}
        for name in self.signals:
            encoded = self.models.comparer(name).encode_queries(texts)
            parts = []
            for batch in batches(len(texts), problem.corpus.size):
                part = replace(problem, queries=problem.queries[batch])
                rows = encoded.take(np.arange(batch.start, batch.stop))
                parts.append(self._comparison(name).nearest(rows, part, self.depths[name], None))
            scores[name] = np.concatenate(parts)
        return scores

    def _comparison(self, name: str) -> Comparison:
        return Comparison(self.models.comparer(name), self.parts.compared[name])

    def _score_pairs(self, texts: Sequence[str]) -> ScorePairs:
        items = self.parts.items
        scorer = self.models.scorer  # loaded now, so that its loading does not count as scoring

        def score(queries: np.ndarray, positions: np.ndarray) -> np.ndarray:
            return scorer.score([(texts[q], items[p].content) for q, p in zip(queries, positions, strict=True)])

        return score

    def _results(
        self,
        texts: Sequence[str],
        positions: np.ndarray,
        scores: np.ndarray,
        rounds: Sequence[Scored],
        seconds: Seconds,
        trace: bool,
        reports: Sequence[StageReport] | None = None,
    ) -> list[SearchResult]:
        items, share = self.parts.items, Seconds(*(value / len(texts) for value in vars(seconds).values()))
        stages = None
        if reports is not None:
            stages = tuple(replace(report, seconds=report.seconds / len(texts)) for report in reports)
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
            results.append(SearchResult(text, hits, calls, len(rounds), share, traced if trace else None, stages))
        return results


def _never(queries: np.ndarray, positions: np.ndarray) -> np.ndarray:
    raise AssertionError("a pipeline without the scorer has called it")
