"""Searching with compare models: in pipelines, as a first stage, and as one more signal of the default search."""

from __future__ import annotations

import shutil
import time

import numpy as np
import pytest
from compare_fakes import OneRow, truth
from compare_fakes import Words as ManyRows
from search_fakes import ANCHORS, ITEMS, QUERIES, Vectors, Words, best, found, make_texts, vector, words_score

from crosscut import CrosscutError, Index, Item
from crosscut.compare import Comparer, ItemVectors
from crosscut.index import comparison
from crosscut.index.comparison import Comparison
from crosscut.index.ragged import StoredVectors
from crosscut.search.pipeline import Pipeline, Stage
from crosscut.search.problem import Corpus, Problem, Queries

QUERY = QUERIES[0]
TEXTS = [item.content for item in ITEMS]
IDS = [item.id for item in ITEMS]


def make(words=None, items=ITEMS, **settings):
    settings = {"anchor_queries": ANCHORS, "encoder": Vectors(), "compare": [OneRow(), ManyRows()], **settings}
    return Index.build(items, scorer=(words or Words()).scorer(), **settings)


def load(folder, **settings):
    given = {"compare": [OneRow(), ManyRows()], **settings}
    return Index.load(folder, scorer=Words().scorer(), encoder=Vectors(), **given)


@pytest.fixture(scope="module")
def words():
    return Words()


@pytest.fixture(scope="module")
def index(words):
    """In memory; searched only, never changed."""
    return make(words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "x.index"
    make(path=path)
    return path


def ranked(scores, pool, keep):
    """Positions of the best of `pool`, by a plain sort."""
    return sorted(pool, key=lambda position: (-scores[position], position))[:keep]


def by_encoder(query, keep):
    vectors = Vectors().encode([query, *TEXTS])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return ranked((vectors[1:].astype(np.float16).astype(np.float32) @ vectors[0]), range(len(TEXTS)), keep)


# Pipelines


@pytest.mark.parametrize("query", QUERIES)
def test_a_pipeline_is_what_its_stages_do_by_hand(index, words, query):
    words.pairs.clear()
    result = index.search(query, k=4, pipeline="dense:20 > one-row:8 > cross:5")
    pool = by_encoder(query, 20)
    compared = truth(OneRow(), query, [TEXTS[position] for position in pool])
    pool = ranked(dict(zip(pool, compared, strict=True)), pool, 8)[:5]
    assert words.asked(query) == [TEXTS[position] for position in pool]
    scores = {position: float(np.float32(words_score(query, TEXTS[position]))) for position in pool}
    assert found(result) == [(IDS[p], scores[p]) for p in ranked(scores, pool, 4)]
    assert (result.calls, result.rounds) == (5, 1)
    assert [(s.name, s.items_in, s.items_out, s.calls) for s in result.stages] == [
        ("dense", 60, 20, 0),
        ("one-row", 20, 8, 0),
        ("cross", 8, 5, 5),
    ]
    assert result.seconds.total == pytest.approx(sum(stage.seconds for stage in result.stages))


@pytest.mark.parametrize("model", [OneRow(), ManyRows()])
def test_a_compare_model_alone_compares_everything(index, words, model):
    words.pairs.clear()
    result = index.search(QUERY, k=60, pipeline=f"{model.kind}:60")
    scores = truth(model, QUERY, TEXTS)
    order = ranked(scores, range(60), 60)
    assert [hit.id for hit in result] == [IDS[position] for position in order]
    np.testing.assert_allclose([hit.score for hit in result], scores[order], rtol=1e-5, atol=1e-5)
    assert not words.pairs and (result.calls, result.rounds, result.trace) == (0, 0, None)


PIPELINES = [
    "dense:30 > words:10 > one-row:6 > cross:3",
    "lexical:12",
    "rrf:20 > cross:6",
    "words:20 > crosscut:10",
    "crosscut:12",
    "one-row:9 > words:4",
]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_together_alone_and_from_disk_are_the_same(index, folder, pipeline):
    together = index.search(QUERIES, k=60, pipeline=pipeline)
    loaded = load(folder).search(QUERIES, k=60, pipeline=Pipeline.parse(pipeline))
    for query, mine, theirs in zip(QUERIES, together, loaded, strict=True):
        alone = index.search(query, k=60, pipeline=pipeline)
        assert [hit.id for hit in alone] == [hit.id for hit in mine] == [hit.id for hit in theirs]
        np.testing.assert_allclose([h.score for h in alone], [h.score for h in mine], rtol=1e-5, atol=1e-5)


def test_stages_may_be_objects(index):
    pipeline = Stage("dense", 30) >> Stage("words", 5)
    assert found(index.search(QUERY, pipeline=pipeline)) == found(
        index.search(QUERY, pipeline="dense:30 > words:5")
    )
    assert found(index.search(QUERY, pipeline=Stage("dense", 3))) == found(index.search(QUERY, pipeline="dense:3"))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_filters_hold_from_the_first_stage_on(words, pipeline):
    index = make(words)
    index.delete(IDS[10:20])
    out = {*IDS[10:20], *IDS[40:50]}
    words.pairs.clear()
    result = index.search(QUERY, k=60, pipeline=pipeline, exclude=IDS[40:50])
    assert not out & {hit.id for hit in result}
    assert not {text for _, text in words.pairs} & {item.content for item in ITEMS if item.id in out}
    assert result.stages[0].items_in == 40
    few = index.search(QUERY, k=60, pipeline=pipeline, only=IDS[:3])
    assert {hit.id for hit in few} == set(IDS[:3]) and {stage.items_out for stage in few.stages} == {3}
    none = index.search(QUERY, pipeline=pipeline, only=[])
    assert not none.hits and [stage.items_out for stage in none.stages] == [0] * len(few.stages)


def test_the_trace_of_a_pipeline_is_that_of_its_scorer(index):
    result = index.search(QUERY, pipeline="rrf:20 > cross:6", trace=True)
    (one,) = result.trace
    assert one.estimates is None and sorted(one.scores, reverse=True) == [hit.score for hit in result]
    assert index.search(QUERY, pipeline="lexical:5", trace=True).trace == ()
    assert len(index.search(QUERY, pipeline="dense:40 > crosscut:20", trace=True).trace) > 1


def test_queries_are_encoded_once_for_all_stages():
    one, many = OneRow(), ManyRows()
    index = make(compare=[one, many])
    one.query_batches = many.query_batches = 0
    index.search(QUERIES, pipeline="dense:30 > words:10 > one-row:6 > cross:3")
    assert (one.query_batches, many.query_batches) == (1, 1)
    index.search(QUERIES, pipeline="dense:30 > words:10")
    assert (one.query_batches, many.query_batches) == (1, 2)


def test_models_that_no_stage_needs_are_not_loaded(folder):
    index = Index.load(folder, encoder=Vectors())
    assert len(index.search(QUERY, pipeline="lexical:5")) == 5
    with pytest.raises(CrosscutError, match=r"compare model 'words'.* give it as compare="):
        index.search(QUERY, pipeline="lexical:5 > words:2")


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (
            "dense:5 > cmc:3",
            "unknown stage 'cmc': .*the stages are dense, lexical, rrf, cross, crosscut, one-row, words",
        ),
        ("dense:5 > words:6", "cannot widen"),
        ("dense", "not a stage"),
        (5, "a pipeline is a text"),
    ],
)
def test_what_is_refused_costs_nothing(index, words, pipeline, message):
    words.pairs.clear()
    with pytest.raises(CrosscutError, match=message):
        index.search(QUERY, pipeline=pipeline)
    assert not words.pairs


@pytest.mark.parametrize("setting", [{"budget": 5}, {"method": "rerank"}, {"first": "lexical"}, {"rounds": 2}])
def test_a_pipeline_stands_alone(index, setting):
    with pytest.raises(CrosscutError, match=f"{next(iter(setting))} does not go with it"):
        index.search(QUERY, pipeline="lexical:5", **setting)


def test_an_index_without_encoder_or_words():
    index = Index.build(["one two", "two three"], scorer=Words().scorer(), encoder=False, lexical=None)
    for stage in ("dense", "lexical", "rrf"):
        with pytest.raises(CrosscutError, match=f"stage '{stage}' is not possible"):
            index.search("one", pipeline=f"{stage}:2")


# As a first stage, and as a signal


@pytest.mark.parametrize("model", [OneRow(), ManyRows()])
@pytest.mark.parametrize("method", ["rerank", "adacur", "crosscut"])
def test_a_compare_model_as_first_stage(index, words, model, method):
    words.pairs.clear()
    settings = {} if method == "rerank" else {"rounds": 2}
    index.search(QUERY, budget=10, method=method, first=model.kind, **settings)
    first = ranked(truth(model, QUERY, TEXTS), range(60), 10 if method == "rerank" else 5)
    assert words.asked(QUERY)[: len(first)] == [TEXTS[position] for position in first]


@pytest.mark.parametrize("only", [None, IDS[::3]])
def test_a_first_stage_compares_what_may_be_found_and_keeps_the_order_of_the_rest(words, only):
    index = make(words, compare=[OneRow()], signal=7)
    words.pairs.clear()
    index.search(QUERY, budget=15, method="rerank", first="one-row", only=only)
    pool = [position for position in by_encoder(QUERY, 60) if only is None or IDS[position] in only]
    compared = truth(OneRow(), QUERY, [TEXTS[position] for position in pool[:7]])
    # The worst of those that were compared has the score of all others, and is before them by the encoder.
    first = [*ranked(dict(zip(pool, compared, strict=False)), pool[:7], 7), *pool[7:15]]
    assert words.asked(QUERY) == [TEXTS[position] for position in first]


def test_the_time_of_comparing_counts_where_it_is_spent():
    class Slow(OneRow):
        def _score(self, queries, candidates):
            time.sleep(0.2)
            return super()._score(queries, candidates)

    index = make(compare=[Slow()])
    dense, crosscut = index.search(QUERY, pipeline="dense:20 > crosscut:10").stages
    assert crosscut.seconds >= 0.2 > dense.seconds
    assert index.search(QUERY, budget=10).seconds.selecting >= 0.2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"compare": {"cross": OneRow()}}, "'cross' is the name of another stage"),
        ({"compare": [OneRow(), OneRow("other")]}, "two compare models would be called 'one-row'"),
        ({"compare": OneRow(), "signal": -1}, "signal must be a whole number"),
    ],
)
def test_a_build_that_cannot_add_its_compare_models_costs_nothing(given, message):
    words = Words()
    with pytest.raises(CrosscutError, match=message):
        make(words, **given)
    assert not words.pairs


def test_an_unknown_first_stage_names_those_that_there_are(index):
    with pytest.raises(CrosscutError, match="choose from random, encoder, lexical, rrf, one-row"):
        index.search(QUERY, first="cmc")


def test_without_a_compare_model_nothing_changes(folder, tmp_path):
    """Bit by bit: also where there is one that is no signal, and where there has been one."""
    plain = make(compare=None)
    results = plain.search(QUERIES, budget=25, trace=True)
    shutil.copytree(folder, tmp_path / "x")
    removed = load(tmp_path / "x")
    for name in removed.compare:
        removed.remove_compare(name)
    others = [
        make(compare=[OneRow()], signal=0),
        make(compare=ManyRows()),
        removed,
        load(tmp_path / "x", compare=None),
    ]
    for other in others:
        for mine, theirs in zip(results, other.search(QUERIES, budget=25, trace=True), strict=True):
            assert mine.hits == theirs.hits and mine.trace == theirs.trace


class Oracle(OneRow):
    """Knows the scorer: its scores are the scorer's less a query's level, with noise."""

    kind = "oracle"

    def __init__(self, noise: float = 0.3) -> None:
        super().__init__()
        self.noise = noise
        self.width = 9

    def rows(self, text: str) -> np.ndarray:
        rng = np.random.default_rng(sum(text.encode()))
        return np.append(vector(text), self.noise * rng.normal())[None]

    def compare(self, query, items):
        return items.rows[:, :8].astype(np.float64) @ query[0, :8] / 8 + items.rows[:, 8].astype(np.float64)


def product(query, texts):
    return [float(vector(query) @ vector(text) / 8 - 5) for text in texts]


@pytest.fixture(scope="module")
def large():
    """Items that neither encoder nor words tell apart."""
    texts = make_texts(400, 5)
    settings = {"scorer": product, "anchor_queries": ANCHORS, "encoder": False}
    plain, helped = (Index.build(texts, compare=compare, **settings) for compare in (None, Oracle()))
    return plain, helped, texts


def recall(results, texts, k):
    shares = []
    for result in results:
        scores = product(result.query, texts)
        wanted = {str(position) for position in np.argsort(scores)[::-1][:k]}
        shares.append(len(wanted & {hit.id for hit in result}) / k)
    return np.mean(shares)


def test_a_good_compare_model_makes_the_default_search_better(large):
    plain, helped, texts = large
    queries = make_texts(10, 5)
    alone = recall(plain.search(queries, k=10, budget=20), texts, 10)
    with_model = recall(helped.search(queries, k=10, budget=20), texts, 10)
    reranked = recall(helped.search(queries, k=10, method="rerank", first="oracle", budget=20), texts, 10)
    assert with_model > alone + 0.1
    assert with_model >= reranked


def test_what_the_compare_model_is_worth_is_learned(large):
    """Its coefficients come from the anchor queries: one that knows nothing is worth nothing."""
    _, helped, texts = large
    settings = {"scorer": product, "anchor_queries": ANCHORS, "encoder": False}
    prior = helped._searcher.corpus.prior
    noise = Index.build(texts, compare=Oracle(noise=1e3), **settings)._searcher.corpus.prior
    assert prior.coefficients.shape == noise.coefficients.shape  # offset, and three each of words and the model
    assert prior.coefficients[4] > 3 * abs(noise.coefficients[4])


def test_a_signal_is_learned_once_and_with_the_model(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "x")
    expected = load(folder).search(QUERIES, budget=20, trace=True)
    model = OneRow()
    again = load(tmp_path / "x", compare=[model])
    assert model.query_batches == 0  # what was learned lies in the folder
    assert [r.trace for r in again.search(QUERIES, budget=20, trace=True)] == [r.trace for r in expected]
    shutil.rmtree(tmp_path / "x/derived")
    load(tmp_path / "x", compare=[model])
    assert model.query_batches == 2
    shutil.rmtree(tmp_path / "x/derived")
    with pytest.raises(CrosscutError, match=r"compare model 'one-row'.* give it as compare="):
        load(tmp_path / "x", compare=None)


def test_without_enough_anchor_queries_the_model_still_counts():
    model = OneRow()
    index = make(anchor_queries=[], compare=[model])
    assert model.query_batches == 0  # nothing to learn, so nothing to compare
    assert len(index.search(QUERY, budget=20)) == 10 and model.query_batches == 1


def test_only_as_many_items_as_it_was_told_to_are_compared():
    model = OneRow()
    index = make(compare=[model], signal=7)
    assert model.largest == 7
    index.search(QUERY, budget=20)
    assert model.largest == 7
    index.search(QUERY, pipeline="one-row:3")
    assert model.largest == 60


@pytest.mark.parametrize("encoder", [True, False])
def test_beyond_the_nearest_there_is_a_floor(encoder):
    model, rng = OneRow(), np.random.default_rng(0)
    stored = StoredVectors([model.encode_items(TEXTS)])
    order = rng.normal(size=(2, 60)).astype(np.float32)
    there = rng.random(60) < 0.7
    corpus = Corpus(60, vectors=np.eye(60, dtype=np.float32) if encoder else None)
    problem = Problem(corpus, Queries([0, 1], **({"vectors": order} if encoder else {"lexical": order})))
    queries = model.encode_queries(QUERIES[:2])
    scores = Comparison(model, stored).nearest(queries, problem, 9, there)
    for row in range(2):
        near = ranked(order[row], np.flatnonzero(there), 9)
        expected = truth(model, QUERIES[row], [TEXTS[position] for position in near])
        np.testing.assert_allclose(scores[row, near], expected, rtol=1e-5)
        assert set(np.delete(scores[row], near)) == {scores[row, near].min()}
    everything = Comparison(model, stored).nearest(queries, problem, 60, None)
    np.testing.assert_allclose(everything[1], truth(model, QUERIES[1], TEXTS), rtol=1e-4, atol=1e-5)
    assert not Comparison(model, stored).nearest(queries, problem, 9, np.zeros(60, bool)).any()


@pytest.mark.parametrize("model", [OneRow(), ManyRows()])
@pytest.mark.parametrize("same", [True, False])
def test_few_rows_are_in_memory_at_a_time(monkeypatch, model, same):
    stored = StoredVectors([model.encode_items(TEXTS[:50]), model.encode_items(TEXTS[50:])])
    queries = model.encode_queries(QUERIES)
    positions = np.stack(
        [np.random.default_rng(0 if same else n).permutation(60)[:30] for n in range(len(QUERIES))]
    )
    whole = Comparison(model, stored).scores(queries, positions)
    taken, take = [], StoredVectors.take

    def watched(self, positions):
        made = take(self, positions)
        taken.append(made.rows.nbytes)
        return made

    monkeypatch.setattr(comparison, "MEMORY", 400)
    monkeypatch.setattr(StoredVectors, "take", watched)
    np.testing.assert_allclose(Comparison(model, stored).scores(queries, positions), whole, rtol=1e-4, atol=1e-5)
    assert max(taken) <= (480 if model.per_item else 2 * 400)


def test_more_than_one_pass_deals_the_items_out(monkeypatch):
    """Candidates see each other within a pass: each pass has every so many-th item."""
    model = OneRow()
    stored = StoredVectors([model.encode_items(TEXTS)])
    monkeypatch.setattr(comparison, "LARGEST_PASS", 25)
    positions = np.random.default_rng(0).permutation(60)[None]
    scores = Comparison(model, stored).scores(model.encode_queries([QUERY]), positions)
    for number in range(3):
        part = positions[0, number::3]
        expected = truth(model, QUERY, [TEXTS[position] for position in part])
        np.testing.assert_allclose(scores[0, number::3], expected, rtol=1e-5)


# Changing, loading


def test_compare_models_follow_the_items(tmp_path):
    model = OneRow()
    index = make(items=ITEMS[:50], path=tmp_path / "x", compare=[model])
    assert index.compare == ("one-row",)
    index.add(ITEMS[50:])
    assert model.items == 60
    index.delete(["i1"])
    whole = make(compare=[OneRow()])
    whole.delete(["i1"])
    for pipeline in ("one-row:60", "dense:20 > one-row:10", "crosscut:20"):
        mine, theirs = (i.search(QUERIES, k=60, pipeline=pipeline) for i in (index, whole))
        for one, other in zip(mine, theirs, strict=True):
            assert [hit.id for hit in one] == [hit.id for hit in other]


def test_a_model_is_added_later_and_the_same_build_adds_it_too(tmp_path):
    index = make(path=tmp_path / "x", compare=None)
    with pytest.raises(CrosscutError, match="unknown stage 'one-row'"):
        index.search(QUERY, pipeline="one-row:3")
    model = OneRow()
    assert index.add_compare(model, signal=20) == "one-row"
    assert len(index.search(QUERY, pipeline="one-row:3")) == 3
    words, second = Words(), OneRow("second")
    again = make(words, path=tmp_path / "x", compare={"second": second})
    assert again.compare == ("one-row", "second") and not words.pairs
    assert (model.items, second.items) == (60, 60)
    make(words, path=tmp_path / "x", compare={"second": second})
    assert second.items == 60 and not words.pairs
    again.remove_compare("second")
    assert again.compare == ("one-row",)
    with pytest.raises(CrosscutError, match="unknown stage 'second'"):
        again.search(QUERY, pipeline="second:3")


@pytest.mark.parametrize("salt", ["", "other"])
def test_overwriting_continues_its_own_unfinished_vectors(tmp_path, salt):
    make(items=ITEMS[:9], path=tmp_path / "x", compare=[ManyRows()])
    model = OneRow(fail_at=1)
    model.error = CrosscutError("boom")
    words = Words()
    for comparer in (model, OneRow(salt)):
        settings = {"path": tmp_path / "x", "compare": [comparer], "overwrite": True}
        if comparer is model:
            with pytest.raises(CrosscutError, match="boom"):
                make(words, **settings)
            calls = len(words.pairs)
            assert calls == len(ANCHORS) * 60
        else:
            index = make(words, **settings)
    assert len(words.pairs) == calls  # only the vectors were left to make
    assert index.compare == ("one-row",)
    again = Words()
    make(again, path=tmp_path / "x", compare=[OneRow(salt)], overwrite=True)
    assert len(again.pairs) == calls  # finished, so it is replaced


def test_unfinished_vectors_are_told(tmp_path):
    index = make(path=tmp_path / "x", compare=None)
    model = OneRow(fail_at=1)
    model.error = CrosscutError("boom")
    with pytest.raises(CrosscutError, match="boom"):
        index.add_compare(model)
    loaded = load(tmp_path / "x", compare=None)
    assert loaded.compare == ()
    with pytest.raises(CrosscutError, match="'one-row' are not finished: add it again"):
        loaded.search(QUERY, pipeline="one-row:3")
    assert loaded.search(QUERY, budget=10).calls == 10
    loaded.add_compare(OneRow())
    assert len(loaded.search(QUERY, pipeline="one-row:3")) == 3


@pytest.mark.parametrize(
    ("compare", "message"),
    [
        (OneRow("other"), r"the vectors 'one-row' of this index were made by the one-row model 'one-row'"),
        ({"words": ManyRows(width=5)}, "have 8 dimensions, but this is the words model .* with 5"),
        ({"cmc": OneRow()}, "no vectors of the compare model .* it has: one-row: .*words: "),
        (3, "compare is a int"),
        ([3], "cannot compare with 3"),
        pytest.param("./no/such/folder", "there is no model folder", marks=pytest.mark.models),
    ],
)
def test_models_that_do_not_fit(folder, compare, message):
    with pytest.raises(CrosscutError, match=message):
        load(folder, compare=compare)


def test_an_index_that_names_its_compare_model_finds_nobody_elses(folder):
    """`one-row` was an object of a program: its name is not looked up anywhere."""
    index = Index.load(folder, scorer=Words().scorer(), encoder=Vectors())
    with pytest.raises(CrosscutError, match="an object of the program that built it: give it as compare="):
        index.search(QUERY)
    with pytest.raises(CrosscutError, match="give it as compare="):
        index.add([Item("new", "word1")])


def test_a_model_that_another_handle_has_replaced_is_noticed(tmp_path):
    make(path=tmp_path / "x.index")
    ours, theirs = load(tmp_path / "x.index"), load(tmp_path / "x.index")
    assert len(ours.search(QUERY, pipeline="one-row:3")) == 3
    theirs.remove_compare("one-row")
    theirs.add_compare(OneRow(salt="other"))
    ours.delete([IDS[0]])  # which reads the index anew
    with pytest.raises(CrosscutError, match="the vectors 'one-row' of this index were made by"):
        ours.search(QUERY, pipeline="one-row:3")
    with pytest.raises(CrosscutError, match="the vectors 'one-row' of this index were made by"):
        ours.search(QUERY)


def test_results_of_a_method_have_no_stages(index):
    assert index.search(QUERY, budget=10).stages is None
    assert found(index.search(QUERY, k=60, budget=60)) == best(QUERY)


def test_a_comparer_without_a_digest_is_known_by_its_name():
    class Nameless(Comparer):
        kind, width, per_item, name = "nameless", 1, 1, "mine"

        def _encode(self, texts, role, progress):
            return ItemVectors.single(np.array([[len(text)] for text in texts], np.float32))

        def _score(self, queries, candidates):
            return [items.rows[:, 0] * row[0] for row, items in zip(queries.rows, candidates, strict=True)]

    index = make(compare=Nameless())
    longest = max(range(60), key=lambda position: (len(TEXTS[position]), -position))
    assert index.search(QUERY, pipeline="nameless:1")[0].id == IDS[longest]
