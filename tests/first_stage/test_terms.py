"""BM25 and TF-IDF against their formulas written out slowly, and the saved form."""

import json
import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.errors import CrosscutError
from crosscut.first_stage import BM25, TFIDF, TermIndex

word = st.sampled_from(["blue", "whale", "sky", "grey", "the", "of", "x", "Äpfel", "naïve"])
text = st.lists(word, max_size=8).map(" ".join)
corpus = st.lists(text, min_size=1, max_size=8)
makers = pytest.mark.parametrize("maker", [BM25, TFIDF])


def words_of(text: str) -> list[str]:
    return re.findall(r"\w\w+", text.lower())


def document_frequency(texts: list[str]) -> Counter:
    return Counter(word for text in texts for word in set(words_of(text)))


def slow_bm25(texts: list[str], query: str, k1: float = 1.5, b: float = 0.75) -> list[float]:
    df, n = document_frequency(texts), len(texts)
    average = sum(len(words_of(text)) for text in texts) / n

    def weight(word: str, text: str) -> float:
        tf = words_of(text).count(word)
        if tf == 0:
            return 0.0
        idf = math.log(1 + (n - df[word] + 0.5) / (df[word] + 0.5))
        return idf * tf / (tf + k1 * (1 - b + b * len(words_of(text)) / average))

    return [sum(weight(word, text) for word in words_of(query)) for text in texts]


def slow_tfidf(texts: list[str], query: str) -> list[float]:
    df, n = document_frequency(texts), len(texts)

    def vector(text: str) -> dict[str, float]:
        counts = Counter(word for word in words_of(text) if word in df)
        weights = {w: (1 + math.log(tf)) * (1 + math.log((1 + n) / (1 + df[w]))) for w, tf in counts.items()}
        length = math.sqrt(sum(weight**2 for weight in weights.values()))
        return {word: weight / length for word, weight in weights.items()}

    query_vector = vector(query)
    return [sum(query_vector.get(word, 0) * weight for word, weight in vector(text).items()) for text in texts]


@settings(deadline=None)
@given(corpus, text)
def test_bm25_is_the_lucene_formula(texts, query):
    scores = BM25(texts, stopwords=None).scores(query)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, slow_bm25(texts, query), rtol=1e-5, atol=1e-6)


@settings(deadline=None)
@given(corpus, text)
def test_tfidf_is_a_cosine(texts, query):
    scores = TFIDF(texts, stopwords=None).scores(query)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, slow_tfidf(texts, query), rtol=1e-5, atol=1e-6)


@settings(deadline=None)
@given(st.sampled_from([BM25, TFIDF]), corpus, text)
def test_term_scores_sum_to_scores(maker, texts, query):
    index = maker(texts)
    parts = index.term_scores(query)
    total = np.zeros(len(texts))
    for positions, weights in parts:
        assert np.all(np.diff(positions) > 0)
        assert np.all(weights > 0)
        total[positions] += weights
    np.testing.assert_allclose(total, index.scores(query), rtol=1e-5)
    known = set(words_of(" ".join(texts))) & set(words_of(query)) - {"the", "of"}
    assert len(parts) == len(known)


@makers
def test_bm25_options_and_stop_words(maker):
    texts = ["the blue whale", "of the sky"]
    assert maker(texts).scores("the of").tolist() == [0, 0]
    assert maker(texts, stopwords=None).scores("the of").all()
    assert maker(texts, stopwords=["blue"]).scores("blue").tolist() == [0, 0]
    with pytest.raises(CrosscutError, match="no stop words for 'klingon'"):
        maker(texts, stopwords="klingon")


def test_bm25_takes_k1_and_b():
    texts = ["blue blue whale", "blue"]
    np.testing.assert_allclose(BM25(texts, k1=0.9, b=0.4).scores("blue"), slow_bm25(texts, "blue", 0.9, 0.4), 1e-5)


@makers
@pytest.mark.parametrize("texts", [[], [""], ["", "the"], ["blue whale", ""]])
def test_empty_texts_and_queries_score_zero(maker, texts, tmp_path):
    index = maker(texts)
    for query in ["", "!?", "the", "unheard"]:
        assert index.scores(query).tolist() == [0.0] * len(texts)
        assert index.term_scores(query) == []
    index.save(tmp_path)
    assert TermIndex.load(tmp_path).scores("unheard").tolist() == [0.0] * len(texts)


@makers
def test_input_that_is_not_a_list_of_texts(maker):
    with pytest.raises(CrosscutError, match="put it in a list"):
        maker("blue whale")
    with pytest.raises(CrosscutError, match="text 1 is a NoneType"):
        maker(["blue whale", None])


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([BM25, TFIDF]), corpus, text, st.sampled_from(["en", None, ("blue",)]))
def test_saved_index_gives_the_same_scores(tmp_path_factory, maker, texts, query, stopwords):
    folder = tmp_path_factory.mktemp("terms") / "made" / "for it"
    index = maker(texts, stopwords=stopwords)
    index.save(folder)
    loaded = TermIndex.load(folder)
    assert len(loaded) == len(texts)
    assert loaded.scores(query).tobytes() == index.scores(query).tobytes()


@makers
def test_loaded_arrays_stay_on_disk(maker, tmp_path):
    maker(["blue whale"]).save(tmp_path)
    loaded = TermIndex.load(tmp_path)
    assert isinstance(loaded.weights, np.memmap)
    assert isinstance(loaded.positions, np.memmap)


@pytest.mark.parametrize("name", ["terms.json", "starts.npy", "positions.npy", "weights.npy", "idf.npy"])
def test_missing_and_damaged_files(name, tmp_path):
    TFIDF(["blue whale", "sky"]).save(tmp_path)
    content = (tmp_path / name).read_bytes()
    for broken in [b"", content[: len(content) // 2], content[:-3]]:
        (tmp_path / name).write_bytes(broken)
        with pytest.raises(CrosscutError, match="damaged"):
            TermIndex.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(CrosscutError, match=f"{name} is missing"):
        TermIndex.load(tmp_path)


def test_files_of_different_indexes_do_not_mix(tmp_path):
    TFIDF(["blue whale", "sky"]).save(tmp_path)
    about = json.loads((tmp_path / "terms.json").read_text())
    (tmp_path / "terms.json").write_text(json.dumps({**about, "terms": about["terms"][:-1]}))
    with pytest.raises(CrosscutError, match="damaged"):
        TermIndex.load(tmp_path)


def test_saving_where_no_folder_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CrosscutError, match="cannot make the folder"):
        BM25(["blue"]).save(tmp_path / "file" / "terms")
