import json

import numpy as np
import pytest
from index_fakes import tree
from search_fakes import ANCHORS, ITEMS, QUERIES, Vectors, Words, best, found, words_score

from crosscut import CrosscutError, Index, Item, Query
from crosscut.scorers import MatrixScorer, as_scorer
from crosscut.search import METHODS

QUERY = QUERIES[0]


def make(words, items=ITEMS, **settings):
    settings = {"anchor_queries": ANCHORS, "encoder": Vectors(), "anchor_items": 6, **settings}
    return Index.build(items, scorer=words.scorer(), **settings)


@pytest.fixture(scope="module")
def words():
    return Words()


@pytest.fixture(scope="module")
def index(words):
    """In memory; searched only, never changed."""
    return make(words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same on disk."""
    path = tmp_path_factory.mktemp("index") / "words.index"
    make(Words(), path=path)
    return path


def bare(texts=("one two", "two three", "three four"), scorer=None, **settings):
    """No anchors and no encoder."""
    return Index.build(texts, scorer=scorer or Words().scorer(), encoder=False, **settings)


# Searching


@pytest.mark.parametrize("query", QUERIES)
def test_exact_is_a_plain_sort(index, query):
    assert found(index.search(query, k=100, method="exact")) == best(query)


@pytest.mark.parametrize("method", METHODS)
def test_calls_are_those_that_the_scorer_saw(index, words, method):
    words.pairs.clear()
    result = index.search(QUERY, k=5, budget=24, method=method)
    assert result.calls == len(words.pairs) == (60 if method == "exact" else 24)
    assert len(set(words.pairs)) == len(words.pairs)  # never paid for twice
    assert [hit.rank for hit in result] == [1, 2, 3, 4, 5]
    best_asked = sorted((words_score(*pair) for pair in words.pairs), reverse=True)[:5]
    assert [hit.score for hit in result] == pytest.approx(best_asked)
    assert all(hit.text == next(item.content for item in ITEMS if item.id == hit.id) for hit in result)


@pytest.mark.parametrize("method", METHODS)
def test_queries_together_find_what_each_finds_alone(index, method):
    together = index.search(QUERIES, k=5, budget=20, method=method)
    assert [result.query for result in together] == QUERIES
    for query, result in zip(QUERIES, together, strict=True):
        alone = index.search(query, k=5, budget=20, method=method)
        assert (found(result), result.calls, result.rounds) == (found(alone), alone.calls, alone.rounds)


def test_no_queries_no_results(index):
    assert index.search([]) == []
    assert len(index.search((query for query in QUERIES), budget=5)) == len(QUERIES)


def test_the_default_finds_the_best_with_a_third_of_the_calls(index):
    results = index.search(QUERIES, k=1, budget=20)
    assert [result[0].id for result in results] == [best(query)[0][0] for query in QUERIES]


@pytest.mark.parametrize("method", METHODS)
def test_a_budget_beyond_the_corpus_scores_everything_once(index, words, method):
    words.pairs.clear()
    result = index.search(QUERY, k=100, budget=1000, method=method)
    assert found(result) == best(QUERY)
    assert result.calls == len(words.pairs) == 60


@pytest.mark.parametrize("method", METHODS)
def test_k_beyond_the_budget_gives_what_was_scored(index, method):
    result = index.search(QUERY, k=50, budget=7, method=method)
    assert len(result) == result.calls if method != "exact" else len(result) == 50


@pytest.mark.parametrize("method", ["adacur", "crosscut"])
@pytest.mark.parametrize("selection", ["softmax", "random"])
def test_the_seed_decides_the_draws(index, method, selection):
    def ids(seed):
        result = index.search(
            QUERY, budget=20, method=method, first="random", selection=selection, seed=seed, trace=True
        )
        return [scored.ids for scored in result.trace]

    assert ids(1) == ids(1)
    assert ids(1)[0] != ids(2)[0] and ids(1)[1] != ids(2)[1]


def test_numpy_numbers_will_do(index):
    assert len(index.search(QUERY, k=np.int64(3), budget=np.int32(10), seed=np.int64(1))) == 3


# What a result tells


@pytest.mark.parametrize("method", METHODS)
def test_trace(index, words, method):
    words.pairs.clear()
    result = index.search(QUERY, k=60, budget=20, method=method, trace=True)
    rounds = result.trace
    contents = {item.id: item.content for item in ITEMS}
    assert len(rounds) == result.rounds
    assert [contents[id] for scored in rounds for id in scored.ids] == words.asked(QUERY)
    scores = {id: score for scored in rounds for id, score in zip(scored.ids, scored.scores, strict=True)}
    assert scores == dict(found(result))  # exact scores, not estimates
    for scored in rounds[1:]:
        assert len(scored.estimates) == len(scored.ids)
        assert all(isinstance(estimate, float) for estimate in scored.estimates)
    # Only what was learned can estimate scores before the first of them is known.
    assert (rounds[0].estimates is not None) == (method == "crosscut")
    assert index.search(QUERY, budget=20, method=method).trace is None


def test_a_random_first_batch_has_no_estimates(index):
    result = index.search(QUERY, budget=20, method="adacur", rounds=4, first="random", trace=True)
    assert [scored.estimates is None for scored in result.trace] == [True, False, False, False]
    assert [len(scored.ids) for scored in result.trace] == [5, 5, 5, 5]


def test_estimates_come_near_the_scores(index):
    last = index.search(QUERY, budget=40, rounds=8, trace=True).trace[-1]
    assert np.abs(np.subtract(last.estimates, last.scores)).mean() < 1.0


def test_seconds(index):
    one, *others = index.search(QUERIES, budget=20)
    seconds = one.seconds
    parts = seconds.scoring, seconds.fitting, seconds.selecting
    assert min(parts) > 0 and seconds.total == pytest.approx(sum(parts))
    assert all(other.seconds == seconds for other in others)  # shared equally


# Filters


@pytest.mark.parametrize("method", METHODS)
def test_what_is_out_of_the_question_is_not_scored(method):
    words = Words()
    index = make(words, anchor_items=0 if method not in ("itemcur", "fixeditem") else 6, seed=1)
    anchors = {ITEMS[position].id for position in np.random.default_rng(1).choice(60, 6, replace=False)}
    out = [item.id for item in ITEMS if item.id not in anchors][::3]
    deleted, excluded = out[:8], out[8:]
    index.delete(deleted)
    words.pairs.clear()
    result = index.search(QUERY, k=60, budget=60, method=method, exclude=excluded)
    left = [item for item in ITEMS if item.id not in out]
    assert found(result) == best(QUERY, left)
    assert sorted(words.asked(QUERY)) == sorted(item.content for item in left)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "fixeditem"])
def test_only(index, words, method):
    chosen = ITEMS[5:25]
    words.pairs.clear()
    result = index.search(QUERY, budget=10, method=method, only=[i.id for i in chosen], exclude=chosen[0].id)
    assert result.calls == len(words.pairs) == (19 if method == "exact" else 10)
    assert {text for _, text in words.pairs} <= {item.content for item in chosen[1:]}


def test_fixeditem_does_without_anchor_items_that_are_excluded(index):
    assert len(index.search(QUERY, method="fixeditem", exclude=[item.id for item in ITEMS[::2]]).hits) > 0


@pytest.mark.parametrize("method", METHODS)
def test_where_nothing_is_left_nothing_is_found_or_paid(index, words, method):
    words.pairs.clear()
    for filters in ({"only": []}, {"exclude": [item.id for item in ITEMS]}):
        result = index.search(QUERY, method=method, trace=True, **filters)
        assert (result.hits, result.calls, result.rounds, result.trace) == ((), 0, 0, ())
    assert [len(result) for result in index.search(QUERIES, method=method, only=())] == [0, 0, 0, 0]
    assert not words.pairs


@pytest.mark.parametrize("filters", [{"only": ["i1", "nobody"]}, {"exclude": ["nobody"]}, {"exclude": "nobody"}])
def test_unknown_ids_in_filters(index, words, filters):
    words.pairs.clear()
    with pytest.raises(CrosscutError, match="no item with the id 'nobody'"):
        index.search(QUERY, **filters)
    assert not words.pairs


# Requests that cannot be met


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"k": 0}, "k must be a whole number of at least 1, but is 0"),
        ({"k": -1}, "k must be"),
        ({"k": True}, "k must be"),
        ({"k": 2.0}, "k must be"),
        ({"k": None}, "k must be"),
        ({"budget": 0}, "budget must be a whole number of at least 1, but is 0"),
        ({"budget": -5}, "budget must be"),
        ({"budget": False}, "budget must be"),
        ({"budget": 10.5}, "budget must be"),
        ({"budget": "10"}, "budget must be"),
        ({"seed": -1}, "seed must be a whole number of at least 0, but is -1"),
        ({"seed": 0.5}, "seed must be"),
        ({"query": ""}, "query 0 is empty"),
        ({"query": " \n\t"}, "query 0 is empty"),
        ({"query": ["fine", " "]}, "query 1 is empty"),
        ({"query": ["fine", 7]}, "query 1 is a int, not a string"),
        ({"query": [None]}, "query 0 is a NoneType"),
        ({"query": None}, "queries must be a list, but there is one NoneType"),
        ({"query": 7}, "queries must be a list"),
        ({"query": b"bytes"}, "queries must be a list"),
        ({"query": {"text": "x"}}, "queries must be a list, but there is one dict"),
        ({"method": "best"}, "unknown method 'best': choose from exact, rerank"),
        ({"method": "best", "only": []}, "unknown method 'best'"),
        ({"method": "rerank", "rounds": 3}, "method 'rerank' has no setting 'rounds'; it knows: first"),
        ({"method": "exact", "first": "random"}, "'exact' has no setting 'first'; it knows: none"),
        ({"rouns": 3}, "has no setting 'rouns'"),
        ({"budget": 10, "rounds": 11}, "a budget of 10 calls cannot be spent in 11 rounds"),
        ({"method": "adacur", "budget": 10, "rounds": 11}, "a budget of 10 calls cannot be spent in 11 rounds"),
        ({"rounds": 0}, "rounds must be a whole number of at least 1"),
        ({"first": "dense"}, "unknown first stage 'dense'"),
        ({"method": "anncur", "anchor_share": 1.0}, "anchor_share must lie between 0 and 1"),
        ({"method": "anncur", "anchor_share": 1}, "anchor_share must lie between 0 and 1"),
        ({"method": "anncur", "anchor_share": "x"}, "anchor_share must lie between 0 and 1"),
        ({"method": "adacur", "rounds": 2.5}, "rounds must be a whole number of at least 1"),
        ({"method": "adacur", "selection": "best", "rounds": 1}, "unknown selection 'best'"),
        ({"method": ["adacur"]}, "unknown method"),
        ({"exclude": None}, "ids must be a list"),
        ({"only": 3}, "ids must be a list"),
    ],
)
def test_bad_requests_cost_nothing(index, words, request_, message):
    words.pairs.clear()
    with pytest.raises(CrosscutError, match=message):
        index.search(**{"query": QUERY, **request_})
    assert not words.pairs


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("anncur", "needs anchor queries"),
        ("adacur", "needs anchor queries"),
        ("itemcur", "build it with anchor_items"),
        ("fixeditem", "build it with anchor_items"),
    ],
)
def test_a_method_says_what_it_misses(method, message):
    with pytest.raises(CrosscutError, match=message):
        bare().search("two", method=method)


def test_odd_queries_are_searched(index):
    for query in ("?!", "the of", "新しい 🦊", "nowhere-seen", "half \ud83d pair", "long " * 5000):
        assert index.search(query, budget=10).calls == 10


# Scorers that fail


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 1e300])
def test_a_score_that_is_no_number_is_named(bad):
    def score(query, texts):
        return [bad if text == "two three" else 1.0 for text in texts]

    with pytest.raises(CrosscutError, match="to query 'why two' with item 'two three'"):
        bare(scorer=score).search("why two")


def test_wrong_number_of_scores():
    with pytest.raises(CrosscutError, match="short was asked for 3 scores but returned 2"):
        bare(scorer=as_scorer(lambda query, texts: [1.0] * (len(texts) - 1), name="short")).search("two")


def test_an_index_outlives_a_scorer_that_raises_in_the_middle():
    words = Words()
    failing = {"now": False}

    def score(query, texts):
        if failing["now"] and words.asked(query):
            raise RuntimeError("out of memory")
        return words(query, texts)

    index = Index.build(ITEMS, scorer=score, encoder=False, anchor_queries=ANCHORS)
    before = index.search(QUERY, budget=20)
    words.pairs.clear()
    failing["now"] = True
    with pytest.raises(CrosscutError, match="scorer score failed: RuntimeError: out of memory"):
        index.search(QUERY, budget=20)
    assert 0 < len(words.pairs) < 20
    failing["now"] = False
    assert found(index.search(QUERY, budget=20)) == found(before)


# Building


def test_items_as_texts_mappings_and_items():
    items = [
        "zero",
        {"id": "b", "text": "one", "title": "Title"},
        Item("c", "two", "T"),
        {"_id": 9, "text": "three"},
    ]
    items += [{"text": "four"}]
    index = bare(items)
    hits = {hit.id: hit.text for hit in index.search("one")}
    assert hits == {"0": "zero", "b": "Title one", "c": "T two", "9": "three", "4": "four"}


@pytest.mark.parametrize(
    ("items", "settings", "message"),
    [
        ([], {}, "there are no items"),
        ("one text", {}, "items must be a list, but there is one str"),
        ({"a": "one"}, {}, "items must be a list, but there is one dict"),
        (None, {}, "items must be a list, but there is one NoneType"),
        (["x", 5], {}, "item 1 is a int: give texts, mappings or Items"),
        ([{"id": "a"}], {}, "item 'a' has no text"),
        ([{"id": "a", "text": None}], {}, "item 'a' has no text"),
        ([Item("a", "x"), Item("a", "y")], {}, "more than one item has the id 'a'"),
        (["x"], {"anchor_queries": "why"}, "anchor queries must be a list, but there is one str"),
        (["x"], {"anchor_queries": [5]}, "anchor query 0 is a int"),
        (["x"], {"anchor_queries": [" "]}, "anchor query '0' has an empty text"),
        (["x"], {"lexical": "bm52"}, "unknown lexical weighting 'bm52': choose from bm25, tfidf, or None"),
        (["x"], {"scorer": 5}, "cannot score with 5"),
        (["x"], {"encoder": 5}, "cannot encode with 5"),
        (["x"], {"anchor_items": 2}, "anchor_items is 2"),
    ],
)
def test_bad_input_to_build(tmp_path, items, settings, message):
    with pytest.raises(CrosscutError, match=message):
        Index.build(items, path=tmp_path / "x.index", **{"scorer": Words().scorer(), **settings})


def test_one_item_and_items_without_words():
    assert found(bare(["only this"]).search("this", k=5)) == [
        ("0", pytest.approx(words_score("this", "only this")))
    ]
    for lexical in ("bm25", "tfidf", None):
        assert len(bare(["", "the", "", "?"], lexical=lexical).search("the", budget=3)) == 3


@pytest.mark.parametrize("method", ["exact", "rerank", "anncur", "adacur", "itemcur", "fixeditem", "crosscut"])
def test_neither_encoder_nor_words(method):
    words = Words()
    index = make(words, encoder=False, lexical=None)
    assert found(index.search(QUERY, k=60, budget=60, method=method)) == best(QUERY)
    assert index.search(QUERY, budget=10, method=method).calls == (60 if method == "exact" else 10)
    for first in ("encoder", "lexical", "rrf"):
        with pytest.raises(CrosscutError, match=r"not possible|is missing"):
            index.search(QUERY, method="rerank", first=first)


@pytest.mark.parametrize("method", ["exact", "rerank", "crosscut"])
def test_nothing_but_items(method):
    result = make(Words(), anchor_queries=(), encoder=False, lexical=None).search(QUERY, k=60, method=method)
    assert found(result) == best(QUERY)


def test_a_matrix_can_score(index):
    scores = np.random.default_rng(0).normal(size=(3, 60)).astype(np.float32)
    scorer = MatrixScorer(scores, queries=QUERIES[:3], items=[item.content for item in ITEMS])
    index = Index.build(ITEMS, scorer=scorer, encoder=Vectors(), anchor_queries=QUERIES[1:3])
    result = index.search(QUERY, k=3, method="exact")
    assert [hit.id for hit in result] == [ITEMS[position].id for position in np.argsort(-scores[0])[:3]]


# On disk


@pytest.mark.parametrize("method", METHODS)
def test_memory_disk_and_loaded_agree(index, folder, method):
    words = Words()
    loaded = Index.load(folder, scorer=words.scorer(), encoder=Vectors())
    assert len(loaded) == len(index) == 60
    assert not words.pairs  # to load costs no calls
    mine = loaded.search(QUERIES, k=10, budget=20, method=method, trace=True)
    theirs = index.search(QUERIES, k=10, budget=20, method=method, trace=True)
    assert [(r.hits, r.calls, r.trace) for r in mine] == [(r.hits, r.calls, r.trace) for r in theirs]
    assert len(words.pairs) == sum(result.calls for result in mine)


def test_the_same_build_again_calls_no_model(folder):
    words, before = Words(), tree(folder)
    make(words, path=folder)
    assert not words.pairs and tree(folder) == before


def test_another_lexical_weighting_takes_effect(tmp_path):
    path = tmp_path / "x.index"
    for lexical in ("bm25", "tfidf", "bm25", None):
        built = bare(path=path, lexical=lexical)
        for index in (built, Index.load(path, scorer=Words().scorer())):
            if lexical:
                assert index.search("one", k=1, budget=1, method="rerank", first="lexical")[0].id == "0"
                assert json.loads((path / "derived/lexical/terms.json").read_text())["weighting"] == lexical
            else:
                with pytest.raises(CrosscutError, match="the index has no lexical scores"):
                    index.search("one", method="rerank", first="lexical")
                assert not (path / "derived/lexical").exists()


def test_scores_are_exact_though_stored_ones_are_rounded(folder):
    hits = Index.load(folder, scorer=Words().scorer(), encoder=Vectors()).search(ANCHORS[0], k=60, budget=60)
    assert found(hits) == best(ANCHORS[0])


def other_scorer(query, texts):
    return [float(len(text)) for text in texts]


class OtherVectors(Vectors):
    pass


def test_other_models_are_refused_unless_meant(folder):
    words = Words()
    with pytest.raises(CrosscutError, match=r"built with scorer 'words' .* 'other_scorer' .*other_models=True"):
        Index.load(folder, scorer=other_scorer)
    with pytest.raises(CrosscutError, match=r"built with encoder 'Vectors' .* 'OtherVectors' .*other_models=True"):
        Index.load(folder, scorer=words.scorer(), encoder=OtherVectors())
    index = Index.load(folder, scorer=other_scorer, encoder=OtherVectors(), other_models=True)
    assert index.search(QUERY, k=1, method="exact")[0].score == max(len(item.content) for item in ITEMS)
    with pytest.raises(CrosscutError, match="built with scorer 'words'"):
        index.add(["new"])  # its scores would not go with those that are stored


def test_an_encoder_for_an_index_without_one(tmp_path):
    bare(path=tmp_path / "x.index")
    with pytest.raises(CrosscutError, match="built with no encoder"):
        Index.load(tmp_path / "x.index", scorer=Words().scorer(), encoder=Vectors())


def test_models_that_no_name_can_find_must_be_given(folder, monkeypatch):
    monkeypatch.setattr("crosscut.index.index.as_scorer", lambda name: pytest.fail(f"looked for {name}"))
    loaded = Index.load(folder, encoder=Vectors())
    assert len(loaded) == 60
    with pytest.raises(CrosscutError, match=r"built with scorer 'words', .*: give it as scorer="):
        loaded.search(QUERY)
    with pytest.raises(CrosscutError, match="give it as scorer="):
        loaded.add(["new"])
    monkeypatch.undo()
    with pytest.raises(CrosscutError, match=r"built with encoder 'Vectors', .*: give it as encoder="):
        Index.load(folder, scorer=Words().scorer()).search(QUERY)


# Changing


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_was_added_is_as_if_it_had_always_been_there(index, tmp_path, on_disk):
    words = Words()
    path = tmp_path / "x.index" if on_disk else None
    grown = make(words, ITEMS[:45], anchor_queries=ANCHORS[:6], anchor_items=0, path=path)
    words.pairs.clear()
    grown.add(ITEMS[45:])
    assert len(words.pairs) == 15 * 6
    grown.add_anchor_queries(ANCHORS[6:])
    assert len(words.pairs) == 15 * 6 + 8 * 60
    both = [grown]
    if on_disk:
        both.append(Index.load(path, scorer=words.scorer(), encoder=Vectors()))
    for changed in both:
        assert len(changed) == 60
        for method in ("exact", "rerank", "anncur", "adacur", "crosscut"):
            mine = changed.search(QUERY, budget=20, method=method, trace=True)
            theirs = index.search(QUERY, budget=20, method=method, trace=True)
            assert (mine.hits, mine.trace) == (theirs.hits, theirs.trace)


@pytest.mark.parametrize("on_disk", [False, True])
def test_delete_add_and_delete_again(tmp_path, on_disk):
    path = tmp_path / "x.index" if on_disk else None
    index = make(Words(), ITEMS[:30], path=path)
    index.delete(item.id for item in ITEMS[:10])
    index.add(ITEMS[30:40])
    index.add([ITEMS[3], Item("i5", "another text under an old id")])
    index.delete("i31")
    left = [*ITEMS[10:31], *ITEMS[32:40], ITEMS[3], Item("i5", "another text under an old id")]
    if on_disk:
        index = Index.load(path, scorer=Words().scorer(), encoder=Vectors())
    assert len(index) == len(left)
    for method in ("exact", "crosscut"):
        assert found(index.search(QUERY, k=60, budget=60, method=method)) == best(QUERY, left)
    fresh = make(Words(), left, anchor_items=0)
    assert found(fresh.search(QUERY, method="exact")) == found(index.search(QUERY, method="exact"))


def test_texts_that_are_added_get_ids_of_their_own():
    index = bare([Item("2", "a"), Item("3", "b")], anchor_queries=[Query("1", "why")])
    index.add(["c", "d", {"text": "e"}, Item("x", "f")])
    index.delete(["4"])
    index.add(["g"])
    index.add_anchor_queries(["who", "what"])
    assert {hit.id: hit.text for hit in index.search("c")} == {
        "2": "a", "3": "b", "5": "d", "6": "e", "x": "f", "7": "g"
    }  # fmt: skip


def test_changes_that_are_refused_change_nothing(folder):
    index = Index.load(folder, scorer=Words().scorer(), encoder=Vectors())
    before = tree(folder)
    for change, message in (
        (lambda: index.add([Item("i3", "x")]), "already has an item with the id 'i3'"),
        (lambda: index.add("text"), "items must be a list"),
        (lambda: index.add_anchor_queries("text"), "anchor queries must be a list"),
        (lambda: index.add_anchor_queries([Query("0", "x")]), "more than one anchor query has the id '0'"),
        (lambda: index.delete(["i1", "nobody"]), "no item with the id 'nobody'"),
        (lambda: index.delete(None), "ids must be a list"),
    ):
        with pytest.raises(CrosscutError, match=message):
            change()
    index.add([])
    index.delete([])
    assert tree(folder) == before and len(index) == 60


@pytest.mark.parametrize("method", METHODS)
def test_all_items_deleted(method):
    index = make(Words(), ITEMS[:12])
    index.delete([item.id for item in ITEMS[:12]])
    assert len(index) == 0
    assert len(index.search(QUERY, method=method)) == 0
    index.add(["back again"])
    assert [hit.text for hit in index.search(QUERY)] == ["back again"]


def test_changes_by_two_openers(tmp_path):
    path = tmp_path / "x.index"
    mine = make(Words(), ITEMS[:20], path=path)
    yours = Index.load(path, scorer=Words().scorer(), encoder=Vectors())
    yours.add(ITEMS[20:30])
    assert found(mine.search(QUERY, k=60)) == best(QUERY, ITEMS[:20])  # as it was opened
    mine.delete(["i0"])
    assert found(mine.search(QUERY, k=60)) == best(QUERY, ITEMS[1:30])
    assert found(yours.search(QUERY, k=60)) == best(QUERY, ITEMS[:30])


def test_deleting_does_not_learn_anew(monkeypatch):
    index = make(Words())
    monkeypatch.setattr("crosscut.index.derived.learn", lambda *_: pytest.fail("learned again"))
    index.delete(["i0"])
    assert index.search(QUERY, k=60, budget=60).calls == 59
