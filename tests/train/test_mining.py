"""Items that sources find: words on all cores, vectors on a GPU as on a CPU, runs by their ids."""

import numpy as np
import pytest
import tiny_data

from crosscut.data import write_run
from crosscut.errors import CrosscutError
from crosscut.first_stage import BM25, TFIDF, top
from crosscut.train.data import Examples
from crosscut.train.mining import finder, first_items, mine, mine_all
from crosscut.train.nearest import _by_vectors_on, by_vectors
from crosscut.train.splits import read_examples
from crosscut.types import Item, Query


@pytest.mark.parametrize(("source", "make"), [("bm25", BM25), ("tfidf", TFIDF)])
@pytest.mark.parametrize("depth", [5, 60, 99])
def test_words_give_the_ranking_of_all_items(source, make, depth):
    items = [*tiny_data.items(), Item("z", "nothing else")]
    queries = [*tiny_data.queries(), Query("none", "qwerty")]
    qrels = {query.id: {items[place].id: 1} for place, query in enumerate(queries)}
    examples = Examples.of(queries, items, qrels)
    index = make([item.content for item in items])
    for answers_too in (False, True):
        expected = np.full((len(queries), depth), -1)
        for row, query, positives in zip(expected, examples.queries, examples.positives, strict=True):
            scores = index.scores(query)
            if not answers_too:
                scores[list(positives)] = -np.inf
            best = top(scores, depth)
            best = best[scores[best] > -np.inf]
            row[: len(best)] = best
        np.testing.assert_array_equal(mine(examples, finder(source), depth, answers_too), expected)


def test_a_gpu_finds_what_a_cpu_finds(monkeypatch):
    pytest.importorskip("torch")
    from crosscut.train import nearest

    rng = np.random.default_rng(0)
    queries, items = rng.normal(size=(50, 8)), rng.normal(size=(30, 8))
    without = [rng.choice(30, size=number % 4, replace=False) for number in range(50)]
    monkeypatch.setattr(nearest, "GPU_SCORES", 7 * 30)  # several blocks
    for depth in (5, 30):
        expected = by_vectors(queries, items, depth, without, "cpu")
        np.testing.assert_array_equal(_by_vectors_on("cpu", queries, items, depth, without), expected)
        assert ((expected < 0).sum(axis=1) == ([len(w) for w in without] if depth == 30 else 0)).all()


def some_run(worlds, path, leave_out=()):
    examples = read_examples(worlds, "train")
    pools = zip(examples.query_ids, examples.pools, strict=True)
    run = {
        id: [(examples.item_ids[place], -float(place)) for place in pool[:4]]
        for id, pool in pools
        if id not in leave_out
    }
    write_run(path, run)
    return examples


@pytest.mark.parametrize("name", ["a.run", "a.run.gz"])
def test_a_run_gives_items_by_their_ids(worlds, tmp_path, name):
    examples = some_run(worlds, tmp_path / name, leave_out=["tame-bat-farm"])
    source = f"run:{tmp_path / name}"
    first = first_items(examples, [source], depth=6, seed=0)
    missing = examples.query_ids.index("tame-bat-farm")
    for query, (row, pool) in enumerate(zip(first, examples.pools, strict=True)):
        if query != missing:
            assert row.tolist() == [*pool[:4], -1, -1]
    # A query that the run does not have gets some at random, so that it is not left with nothing.
    assert len(set(first[missing])) == 6 and all(item in examples.pools[missing] for item in first[missing])
    (mined,) = mine_all(examples, [source, "random"], depth=6)
    assert (mined[missing] == -1).all()
    for row, positives in zip(mined, examples.positives, strict=True):
        assert not set(row.tolist()) & set(positives)


def test_runs_of_other_data(worlds, tmp_path):
    examples = some_run(worlds, tmp_path / "a.run")
    write_run(tmp_path / "b.run", {examples.query_ids[0]: [("unicorn", 1.0)]})
    with pytest.raises(CrosscutError, match="the item 'unicorn', which is not in the data"):
        first_items(examples, [f"run:{tmp_path / 'b.run'}"], depth=3, seed=0)
    write_run(tmp_path / "c.run", {"someone": [("cat-sea", 1.0)]})
    with pytest.raises(CrosscutError, match="has none of the 72 queries"):
        first_items(examples, [f"run:{tmp_path / 'c.run'}"], depth=3, seed=0)
    with pytest.raises(CrosscutError, match=r"no\.run"):
        first_items(examples, ["run:no.run"], depth=3, seed=0)
