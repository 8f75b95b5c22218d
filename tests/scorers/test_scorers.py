"""Scorers that need no model: what is accepted, what is refused, what is counted."""

import functools
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosscut.errors import CrosscutError
from crosscut.scorers import FunctionScorer, MatrixScorer, PredictScorer, Scorer, as_scorer

PAIRS = [("q1", "a"), ("q1", "bb"), ("q2", "ccc")]


def lengths(query, texts):
    return [len(text) for text in texts]


def scorer_returning(value) -> Scorer:
    class Fixed(Scorer):
        name = "fixed"

        def _score(self, pairs):
            return value

    return Fixed()


class Predicts:
    def predict(self, pairs):
        return np.array([len(item) for _, item in pairs])


class PredictsAndIsCallable(Predicts):
    def __call__(self, *arguments):
        raise AssertionError("must be used by .predict")


@pytest.mark.parametrize("values", [[1, 2, 3], (1.0, 2.0, 3.0), np.array([1, 2, 3], np.float16)])
def test_scores_come_back_as_float32(values):
    scores = scorer_returning(values).score(PAIRS)
    assert scores.dtype == np.float32
    assert scores.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.0], "fixed was asked for 3 scores but returned 2"),
        ([[1.0], [2.0], [3.0]], r"one number per pair.*\(3, 1\)"),
        (1.0, r"one number per pair.*\(\)"),
        (["a", "b", "c"], "must return numbers"),
        ([1 + 2j, 0, 0], "must return numbers"),
        (None, "must return numbers"),
        ([[1.0], [2.0, 3.0], []], "array of numbers"),
        ([1.0, np.nan, np.inf], "gave 2 of 3 pairs.*first nan to query 'q1' with item 'bb'"),
        ([1.0, 2.0, 1e300], "gave 1 of 3 pairs.*first inf to query 'q2' with item 'ccc'"),
    ],
)
def test_bad_scores_are_refused(values, message):
    with pytest.raises(CrosscutError, match=message):
        scorer_returning(values).score(PAIRS)


def test_long_texts_are_shortened_in_messages():
    with pytest.raises(CrosscutError) as caught:
        scorer_returning([np.nan]).score([("q" * 10_000, "i" * 10_000)])
    assert len(str(caught.value)) < 400


def test_calls_count_only_pairs_whose_scores_came_back():
    def moody(query, texts):
        if query == "q2":
            raise RuntimeError("out of breath")
        return lengths(query, texts)

    scorer = as_scorer(moody)
    scorer.score(PAIRS[:2])
    with pytest.raises(CrosscutError, match="scorer moody failed: RuntimeError: out of breath") as caught:
        scorer.score(PAIRS)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert scorer.calls == 2


def test_an_interrupt_is_left_alone():
    def interrupted(query, texts):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        as_scorer(interrupted).score(PAIRS)


def test_no_pairs_no_call():
    def never(query, texts):
        raise AssertionError

    scores = as_scorer(never).score([])
    assert scores.shape == (0,)
    assert scores.dtype == np.float32


def test_function_is_called_once_per_run_of_equal_queries():
    seen = []

    def spy(query, texts):
        seen.append((query, texts))
        return lengths(query, texts)

    assert as_scorer(spy).score([*PAIRS, ("q1", "")]).tolist() == [1, 2, 3, 0]
    assert seen == [("q1", ["a", "bb"]), ("q2", ["ccc"]), ("q1", [""])]


def test_function_that_mixes_up_lengths_across_queries_is_caught():
    with pytest.raises(CrosscutError, match="asked for 2 scores but returned 1"):
        as_scorer(lambda query, texts: [0.0] * (1 if query == "q1" else 2)).score(PAIRS)


def test_digest_of_functions():
    def closure(query, texts):
        return PAIRS_OF[query]

    PAIRS_OF: dict = {}
    assert as_scorer(lengths).digest() == FunctionScorer(lengths).digest() != ""
    for unknown in [lambda q, t: [], functools.partial(lengths), closure]:
        assert as_scorer(unknown).digest() == ""
    assert as_scorer(closure, name="mine").digest() != ""


@pytest.mark.parametrize("model", [Predicts(), PredictsAndIsCallable()])
def test_objects_with_predict(model):
    scorer = as_scorer(model)
    assert isinstance(scorer, PredictScorer)
    assert scorer.score(PAIRS).tolist() == [1, 2, 3]
    assert (scorer.name, scorer.digest(), scorer.calls) == (type(model).__name__, "", 3)


def test_what_is_accepted():
    ready = as_scorer(lengths)
    assert as_scorer(ready) is ready
    for wrong in [3, [lengths], Predicts]:
        with pytest.raises(CrosscutError, match=r"model name or folder.*\.predict\(pairs\).*f\(query, texts\)"):
            as_scorer(wrong)


def test_unknown_options_are_refused():
    with pytest.raises(CrosscutError, match=r"colour.*known: name"):
        as_scorer(lengths, colour="blue")
    with pytest.raises(CrosscutError, match="takes no options"):
        as_scorer(as_scorer(lengths), name="other")


def test_missing_folder_and_missing_extra(monkeypatch, tmp_path):
    with pytest.raises(CrosscutError, match="no model folder"):
        as_scorer(tmp_path / "nowhere")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "crosscut.scorers.torch_models", raising=False)  # doctests import it
    monkeypatch.delattr("crosscut.scorers.torch_models", raising=False)
    with pytest.raises(CrosscutError, match=r'needs more packages \(.*torch.*\): pip install "crosscut\[torch\]"'):
        as_scorer(tmp_path)


@given(st.data())
def test_matrix_looks_scores_up(data):
    queries = data.draw(st.lists(st.text(max_size=3), min_size=1, max_size=4, unique=True))
    items = data.draw(st.lists(st.text(max_size=3), min_size=1, max_size=5, unique=True))
    matrix = np.arange(len(queries) * len(items), dtype=np.float16).reshape(len(queries), len(items))
    scorer = MatrixScorer(matrix, queries, items)
    pairs = [(query, item) for item in items for query in queries]
    assert scorer.score(pairs).tolist() == matrix.T.ravel().tolist()


def test_matrix_errors():
    matrix = np.zeros((2, 1))
    with pytest.raises(CrosscutError, match=r"\(2, 1\).*1 queries.*1 items"):
        MatrixScorer(matrix, ["q"], ["a"])
    with pytest.raises(CrosscutError, match=r"queries.*'q' occurs more than once"):
        MatrixScorer(matrix, ["q", "q"], ["a"])
    scorer = MatrixScorer(matrix, ["q", "r"], ["a"])
    with pytest.raises(CrosscutError, match="no item 'b'"):
        scorer.score([("q", "b")])
    with pytest.raises(CrosscutError, match="no query 'x'"):
        scorer.score([("x", "a")])


def test_matrix_digest_follows_the_content():
    first = MatrixScorer(np.zeros((1, 1), np.float16), ["q"], ["a"]).digest()
    assert first == MatrixScorer(np.zeros((1, 1), np.float32), ["q"], ["a"]).digest() != ""
    assert first != MatrixScorer(np.ones((1, 1)), ["q"], ["a"]).digest()
    assert first != MatrixScorer(np.zeros((1, 1)), ["q"], ["b"]).digest()
