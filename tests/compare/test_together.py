"""Queries of several models in one batch are what each model makes of them alone."""

import numpy as np
import pytest

from crosscut.compare import encode_together
from crosscut.encoders import GivenVectors, as_encoder

torch = pytest.importorskip("torch")
sentence_transformers = pytest.importorskip("sentence_transformers")
from compare.tiny_compare import TEXTS, comparer_of, save_encoder  # noqa: E402
from crosscut.compare.together import Together  # noqa: E402

pytestmark = pytest.mark.models
KINDS = ("cmc", "poly", "sum-of-max", "deformer", "mix", "bi")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Of the same architecture, with other weights."""
    folder = save_encoder(tmp_path_factory.mktemp("models") / "other")
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    changed = {name: value + 0.1 * torch.randn_like(value) for name, value in weights.items()}
    save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def check(models, made):
    for model, vectors in zip(models, made, strict=True):
        if hasattr(model, "encode_queries"):
            alone = model.encode_queries(TEXTS)
            np.testing.assert_array_equal(vectors.starts, alone.starts)
            np.testing.assert_allclose(vectors.rows, alone.rows, atol=1e-5)
        else:
            np.testing.assert_allclose(vectors, model.encode(TEXTS, "query"), atol=1e-5)


def test_encoders_of_one_architecture_run_as_one(encoder, other):
    models = [as_encoder(other), *(comparer_of(kind, encoder) for kind in KINDS), comparer_of("cmc", other)]
    both = Together(models, stack=True)
    (group,) = both.groups.values()
    assert len(group.encoders) == 2 and group.stacked
    check(models, both.encode(TEXTS))


def test_a_shared_encoder_runs_once(encoder):
    models = [as_encoder(encoder), *(comparer_of(kind, encoder) for kind in KINDS)]
    (group,) = Together(models).groups.values()
    assert len(group.encoders) == 1 and not group.stacked
    check(models, encode_together(models, TEXTS))


class Loud(sentence_transformers.SentenceTransformer):
    """Encodes queries in a way of its own."""

    def encode_query(self, texts, **options):
        return self.encode([text.upper() + " whale" for text in texts], **options)


def test_encoders_that_encode_in_their_own_way_do_so(encoder):
    short = sentence_transformers.SentenceTransformer(str(encoder), device="cpu", truncate_dim=8)
    models = [as_encoder(short), as_encoder(Loud(str(encoder), device="cpu")), comparer_of("bi", encoder)]
    for stack in (None, True):
        both = Together(models, stack)
        assert not both.groups
        check(models, both.encode(TEXTS))


def test_others_run_one_after_the_other(encoder, other, tmp_path):
    small = save_encoder(tmp_path / "small", num_hidden_layers=1)
    given = GivenVectors(TEXTS, np.random.default_rng(0).normal(size=(len(TEXTS), 4)))
    models = [comparer_of("cmc", small), given, comparer_of("poly", encoder), comparer_of("poly", other)]
    assert not Together(models).groups
    check(models, encode_together(models, TEXTS))
    assert len(encode_together(models, [])) == 4
    check(models[:1], encode_together(models[:1], TEXTS))
