"""Tiny encoders, and every kind of compare model on one of them."""

import pytest


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    pytest.importorskip("sentence_transformers")
    from compare.tiny_compare import save_encoder

    return save_encoder(tmp_path_factory.mktemp("models") / "encoder")


@pytest.fixture(scope="session", params=["cmc", "poly", "sum-of-max", "deformer", "mix", "bi"])
def comparer(request, encoder):
    from compare.tiny_compare import comparer_of

    return comparer_of(request.param, encoder)
