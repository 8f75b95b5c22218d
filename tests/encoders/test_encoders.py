"""Encoders that need no model: unit length, roles, lookups, and what is refused."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from crosscut.encoders import Encoder, GivenVectors, ModelEncoder, as_encoder
from crosscut.errors import CrosscutError


def encoder_returning(value) -> Encoder:
    class Fixed(Encoder):
        name = "fixed"

        def _encode(self, texts, role):
            if isinstance(value, BaseException):
                raise value
            return value

    return Fixed()


class ByRole:
    def encode(self, texts):
        raise AssertionError("has methods by role")

    def encode_query(self, texts):
        return [[1.0, 0.0] for _ in texts]

    def encode_document(self, texts):
        return [[0.0, 1.0] for _ in texts]


class Chatty:
    def encode(self, texts, batch_size=32, show_progress_bar=None):
        assert show_progress_bar is False
        return np.ones((len(texts), 4), dtype=np.float16)


@given(arrays.arrays(np.float32, (3, 4), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_rows_get_unit_length_and_keep_their_direction(vectors):
    encoded = encoder_returning(vectors).encode(["a", "b", "c"])
    assert encoded.dtype == np.float32
    for row, original in zip(encoded.astype(np.float64), vectors.astype(np.float64), strict=True):
        if original.any():
            assert np.linalg.norm(row) == pytest.approx(1, abs=1e-5)
            np.testing.assert_allclose(row, original / np.linalg.norm(original), atol=1e-6)
        else:
            assert not row.any()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0, 2.0]], r"fixed must return a table of numbers with 2 rows.*\(1, 2\)"),
        ([1.0, 2.0], r"2 rows.*shape \(2,\)"),
        ([["a"], ["b"]], "table of numbers"),
        ([[1.0], [2.0, 3.0]], "array of numbers"),
        ([[1.0, 0.0], [np.nan, 0.0]], "1 of 2 texts a vector that is not finite.*'whale'"),
        (RuntimeError("no power"), "encoder fixed failed: RuntimeError: no power"),
    ],
)
def test_bad_vectors_are_refused(value, message):
    with pytest.raises(CrosscutError, match=message):
        encoder_returning(value).encode(["sky", "whale"])


def test_bad_arguments_are_refused():
    encoder = GivenVectors(["sky"], [[1.0, 0.0]])
    with pytest.raises(CrosscutError, match="put it in a list"):
        encoder.encode("sky")
    with pytest.raises(CrosscutError, match="'query' or 'item'"):
        encoder.encode(["sky"], role="document")


def test_no_texts_no_rows():
    assert GivenVectors(["sky"], [[1.0, 0.0]]).encode([]).shape == (0, 2)
    assert as_encoder(Chatty()).encode([]).shape[0] == 0


def test_objects_with_encode():
    encoder = as_encoder(ByRole())
    assert isinstance(encoder, ModelEncoder)
    assert encoder.encode(["sky"], role="query").tolist() == [[1, 0]]
    assert encoder.encode(["sky"], role="item").tolist() == [[0, 1]]
    assert as_encoder(Chatty()).encode(["sky", "sea"]).tolist() == [[0.5] * 4] * 2
    assert (encoder.name, encoder.digest()) == ("ByRole", "")


def test_what_is_accepted(tmp_path, monkeypatch):
    ready = GivenVectors(["sky"], [[1.0]])
    assert as_encoder(ready) is ready
    for wrong in [3, Chatty, lambda texts: texts]:
        with pytest.raises(CrosscutError, match=r"model name or folder.*\.encode\(texts\)"):
            as_encoder(wrong)
    with pytest.raises(CrosscutError, match="no model folder"):
        as_encoder(tmp_path / "nowhere")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(CrosscutError, match=r'pip install "crosscut\[torch\]"'):
        as_encoder(tmp_path)


@given(st.lists(st.text(max_size=4), min_size=1, max_size=6, unique=True), st.randoms())
def test_given_vectors_are_found_by_text(texts, random):
    encoder = GivenVectors(texts, np.eye(len(texts), dtype=np.float16))
    asked = [random.choice(texts) for _ in range(4)]
    assert encoder.encode(asked).argmax(axis=1).tolist() == [texts.index(text) for text in asked]


def test_given_vectors_that_do_not_do():
    with pytest.raises(CrosscutError, match=r"\(1, 2\) do not fit 2 texts"):
        GivenVectors(["sky", "sea"], [[1.0, 0.0]])
    with pytest.raises(CrosscutError, match="'sky' is given two different vectors, in rows 0 and 2"):
        GivenVectors(["sky", "sea", "sky"], [[1.0], [1.0], [2.0]])
    repeated = GivenVectors(["sky", "sky"], [[1.0], [1.0]])
    with pytest.raises(CrosscutError, match="no vector was given for the text 'whale'"):
        repeated.encode(["sky", "whale"])


def test_given_digest_follows_the_content():
    first = GivenVectors(["sky"], [[1.0, 0.0]]).digest()
    assert first == GivenVectors(["sky"], np.array([[1, 0]], np.float16)).digest() != ""
    assert first != GivenVectors(["sea"], [[1.0, 0.0]]).digest()
    assert first != GivenVectors(["sky"], [[1.0, 0.5]]).digest()
