"""What a dry run says: counts that are exact, sizes that are near, and nothing written."""

from __future__ import annotations

import time

import pytest
from index_fakes import FakeEncoder, FakeScorer, make_items, make_queries, tree

from crosscut import Index
from crosscut.errors import CrosscutError
from crosscut.index.build import build
from crosscut.index.change import add_anchor_queries, add_items
from crosscut.index.estimate import estimate_addition, estimate_build
from crosscut.index.store import Store

ITEMS, QUERIES, TILE = make_items(7), make_queries(5), (2, 3)
OPTIONS = {"anchor_queries": QUERIES, "anchor_items": 2}


def estimate(folder, **changes):
    options = {"scorer": FakeScorer(), "encoder": FakeEncoder(), **OPTIONS, **changes}
    return estimate_build(ITEMS, folder=folder, **options)


def fail_in_the_middle(folder, at=5):
    scorer = FakeScorer(fail_at=at)
    scorer.error = CrosscutError("boom")
    with pytest.raises(CrosscutError, match="boom"):
        build(ITEMS, scorer=scorer, encoder=FakeEncoder(), folder=folder, tile=TILE, **OPTIONS)
    return scorer.calls


def test_all_of_it_is_counted_and_nothing_is_made(tmp_path):
    scorer = FakeScorer()
    cost = estimate(tmp_path / "a" / "x", scorer=scorer)
    assert (cost.pairs, cost.pairs_done) == ((5 + 2) * 7, 0)
    assert (cost.texts, cost.texts_done) == (7 + 5, 0)
    assert cost.calls == scorer.calls > 0
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_build_leaves_only_the_rest(tmp_path):
    done = fail_in_the_middle(tmp_path / "x")
    before = tree(tmp_path / "x")
    cost = estimate(tmp_path / "x")
    assert 0 < done == cost.pairs_done < cost.pairs
    assert cost.texts_done == cost.texts == 12
    assert tree(tmp_path / "x") == before
    rest = FakeScorer()
    build(ITEMS, scorer=rest, encoder=FakeEncoder(), folder=tmp_path / "x", tile=TILE, **OPTIONS)
    assert rest.calls == cost.pairs - cost.pairs_done
    finished = estimate(tmp_path / "x")
    assert (finished.pairs_done, finished.calls, finished.seconds) == (finished.pairs, 0, 0.0)


def test_overwrite_counts_all_again_but_for_an_unfinished_build(tmp_path):
    done = fail_in_the_middle(tmp_path / "x")
    assert estimate(tmp_path / "x", overwrite=True).pairs_done == done > 0
    assert estimate(tmp_path / "x", overwrite=True, anchor_queries=QUERIES[:3]).pairs_done == 0
    build(ITEMS, scorer=FakeScorer(), encoder=FakeEncoder(), folder=tmp_path / "x", tile=TILE, **OPTIONS)
    assert estimate(tmp_path / "x", overwrite=True).pairs_done == 0


def test_what_a_build_would_refuse_is_refused(tmp_path):
    fail_in_the_middle(tmp_path / "x")
    with pytest.raises(CrosscutError, match="what differs: number of anchor queries"):
        estimate(tmp_path / "x", anchor_queries=QUERIES[:3])
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "thesis.tex").touch()
    with pytest.raises(CrosscutError, match="is not empty and is not an index"):
        estimate(tmp_path / "y")
    (tmp_path / "z").touch()
    with pytest.raises(CrosscutError, match="is a file"):
        estimate(tmp_path / "z")


def test_time_is_what_the_rest_takes(tmp_path):
    cost = estimate(tmp_path, scorer=FakeScorer(seconds=0.002), encoder=None)
    assert 20 < cost.pairs_per_second <= 500  # on a busy machine a short sleep may last
    assert cost.seconds == pytest.approx(49 / cost.pairs_per_second)
    assert (cost.texts, cost.vector_bytes, cost.texts_per_second) == (0, 0, None)


def test_workers_share_the_scoring_and_not_the_encoding(tmp_path):
    alone, shared = (estimate(tmp_path, workers=workers, limit=0.1) for workers in (1, 4))
    encoding = shared.texts / shared.texts_per_second
    assert shared.seconds == pytest.approx(encoding + shared.pairs / shared.pairs_per_second / 4)
    assert alone.workers == 1


def test_measuring_a_slow_scorer_ends_in_time(tmp_path):
    scorer = FakeScorer(seconds=0.05)
    start = time.perf_counter()
    cost = estimate(tmp_path, scorer=scorer, encoder=None, limit=0.5)
    assert time.perf_counter() - start < 6
    assert 2 <= cost.calls == scorer.calls < 20


@pytest.mark.parametrize(("items", "most"), [(1, 1), (2, 2), (10, 2), (1000, 250)])
def test_measuring_costs_less_than_the_build(tmp_path, items, most):
    scorer, encoder = FakeScorer(), FakeEncoder()
    cost = estimate_build(
        make_items(items), scorer=scorer, encoder=encoder, anchor_queries=QUERIES[:1], folder=tmp_path
    )
    assert cost.pairs == items
    assert 0 < scorer.calls == cost.calls <= most
    assert cost.pairs_per_second > 0
    assert encoder.texts <= items + 1


def test_measuring_costs_less_than_what_is_left(tmp_path):
    build(ITEMS, scorer=FakeScorer(), folder=tmp_path / "x", tile=TILE, anchor_queries=QUERIES)
    next((tmp_path / "x" / "scores").glob("*.npy")).unlink()
    assert estimate(tmp_path / "x", encoder=None, anchor_items=0).calls <= 35 // 4


def test_the_largest_batch_is_scored_once(tmp_path):
    cost = estimate_build(
        make_items(20_000), scorer=FakeScorer(), anchor_queries=QUERIES, folder=tmp_path, limit=100
    )
    assert cost.calls == 1 + sum(4**n for n in range(8))


def test_the_scorer_first_does_what_is_needed_once(tmp_path):
    class Lazy(FakeScorer):
        def score(self, pairs):
            if not self.calls:
                time.sleep(0.5)  # as a model that compiles itself at the first use
            return super().score(pairs)

    assert estimate(tmp_path, scorer=Lazy(), encoder=None, limit=0.3).pairs_per_second > 10


def test_without_anchor_queries_the_scorer_is_not_called(tmp_path):
    cost = estimate(tmp_path, anchor_queries=(), anchor_items=0)
    assert (cost.pairs, cost.calls, cost.pairs_per_second, cost.score_bytes) == (0, 0, None, 0)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_sizes_are_near_to_what_is_then_there(tmp_path, dtype):
    items = [f"the {n} of {n % 17} and {n * 7 % 101}, with words of {n % 5} kinds in it" for n in range(4000)]
    queries = [f"which {n}?" for n in range(12)]
    Index.build(
        items, scorer=lambda query, texts: [float(len(text) % (len(query) + 3)) for text in texts],
        encoder=FakeEncoder(8), anchor_queries=queries, path=tmp_path / "x", store=dtype,
    )  # fmt: skip
    store = Store.open(tmp_path / "x")
    cost = estimate_build(
        store.items(), scorer=FakeScorer(), encoder=FakeEncoder(8), anchor_queries=store.anchor_queries(),
        folder=tmp_path / "y", dtype=dtype, limit=0.1,
    )  # fmt: skip

    def there(pattern):
        return sum(path.stat().st_size for path in (tmp_path / "x").glob(pattern) if path.is_file())

    assert cost.score_bytes == pytest.approx(there("scores/*.npy"), abs=200)
    assert cost.vector_bytes == pytest.approx(there("vectors/*.npy"), abs=400)
    assert cost.text_bytes == there("*/*.jsonl")
    assert cost.derived_bytes == pytest.approx(there("derived/**/*"), rel=0.5)
    assert cost.memory_bytes > 8 * cost.pairs + 4 * 8 * 4000


def test_an_addition_counts_what_is_new(tmp_path):
    models = {"scorer": FakeScorer(), "encoder": FakeEncoder()}
    store = build(ITEMS, folder=tmp_path / "x", tile=TILE, **models, **OPTIONS)
    before = tree(tmp_path / "x")
    items, queries = make_items(4, "n"), make_queries(3, "n")
    cost = estimate_addition(Store.open(tmp_path / "x"), items, queries, **models)
    assert (cost.pairs, cost.pairs_done) == ((5 + 3 + 2) * (7 + 4), (5 + 2) * 7)
    assert (cost.texts, cost.texts_done) == (7 + 4 + 5 + 3, 7 + 5)
    assert tree(tmp_path / "x") == before
    scorer = FakeScorer()
    add_items(store, items, scorer=scorer, encoder=FakeEncoder())
    add_anchor_queries(store, queries, scorer=scorer, encoder=FakeEncoder())
    assert scorer.calls == cost.pairs - cost.pairs_done


def test_only_an_addition_that_would_go_on_counts_what_is_left_of_it(tmp_path):
    models = {"scorer": FakeScorer(), "encoder": FakeEncoder()}
    store = build(ITEMS, folder=tmp_path / "x", tile=TILE, **models, **OPTIONS)
    items, queries = make_items(4, "n"), make_queries(3, "n")
    scorer = FakeScorer(fail_at=3)
    scorer.error = CrosscutError("boom")
    with pytest.raises(CrosscutError, match="boom"):
        add_items(store, items, scorer=scorer, encoder=FakeEncoder())
    store = Store.open(tmp_path / "x")
    assert scorer.calls > 0
    assert estimate_addition(store, items, queries, **models).pairs_done == 49 + scorer.calls
    assert estimate_addition(store, items, **models).pairs_done == 49 + scorer.calls
    assert estimate_addition(store, make_items(4, "other"), **models).pairs_done == 49
    assert estimate_addition(store, (), queries, **models).pairs_done == 49
