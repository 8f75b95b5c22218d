"""Tiny random cross-encoders: agreement with sentence-transformers, truncation, models that will not do."""

import shutil

import numpy as np
import pytest

from crosscut.errors import CrosscutError
from crosscut.scorers import PredictScorer, TransformerScorer, as_scorer

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.models

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "blue", "whale", "sky", "grey", "##s", "a"]
LIMIT = 16


def save_model(folder, num_labels=1, headless=False, seed=0):
    from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizerFast.from_pretrained(str(folder)).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LIMIT,
        num_labels=num_labels,
        initializer_range=1.0,  # large weights, so that different pairs get clearly different scores
    )
    (BertModel if headless else BertForSequenceClassification)(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[5:9], size=size)) for size in [0, 1, 2, 3, 5, 8, 13, 40]]
    return [(query, item) for query in texts for item in texts]


def test_agrees_with_the_cross_encoder_in_raw_logits(folder, pairs):
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    raw = model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    ours = as_scorer(folder, batch_tokens=50, device="cpu").score(pairs)
    wrapped = as_scorer(model).score(pairs)
    assert raw.std() > 0.1
    np.testing.assert_allclose(ours, raw, atol=1e-4)
    np.testing.assert_allclose(wrapped, raw, atol=1e-4)


def test_cross_encoder_object(folder):
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    scorer = as_scorer(model)
    assert isinstance(scorer, PredictScorer)
    assert scorer.name == str(folder)
    before = scorer.digest()
    assert before == as_scorer(model).digest() != ""
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    assert as_scorer(model).digest() != before


def test_batching_changes_nothing(folder, pairs):
    one_by_one = TransformerScorer(folder, batch_tokens=1, device="cpu").score(pairs)
    together = TransformerScorer(str(folder), batch_tokens=10**6, device="cpu").score(pairs)
    np.testing.assert_allclose(one_by_one, together, atol=1e-4)


def test_truncation_is_counted(folder):
    scorer = TransformerScorer(folder, device="cpu")
    room = LIMIT - 3  # [CLS] and two [SEP]
    assert scorer.max_length == LIMIT
    scorer.score([("sky", " ".join(["blue"] * (room - 1)))])
    assert scorer.truncated == 0
    scorer.score([("sky", " ".join(["blue"] * room)), ("sky", "blue"), ("sky " * 50, "blue " * 50)])
    assert scorer.truncated == 2
    shorter = TransformerScorer(folder, max_length=8, device="cpu")
    shorter.score([("sky", "blue " * 5)])
    assert shorter.truncated == 1


def test_digest_follows_the_weights(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    other = save_model(tmp_path / "other", seed=1)
    digests = [TransformerScorer(path, device="cpu").digest() for path in (folder, copy, other)]
    assert digests[0] == digests[1] != digests[2]


def test_models_that_cannot_score(folder, tmp_path):
    with pytest.raises(CrosscutError, match="3 labels"):
        as_scorer(save_model(tmp_path / "labels", num_labels=3))
    with pytest.raises(CrosscutError, match="3 labels"):
        as_scorer(sentence_transformers.CrossEncoder(str(tmp_path / "labels"), device="cpu"))
    with pytest.raises(CrosscutError, match=r"lacks classifier\.bias, classifier\.weight"):
        as_scorer(save_model(tmp_path / "headless", headless=True))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CrosscutError, match=r"no config\.json"):
        as_scorer(tmp_path / "empty")
    weightless = shutil.copytree(folder, tmp_path / "weightless", ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(CrosscutError, match="safetensors"):
        as_scorer(weightless)
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(CrosscutError, match=f"cannot load '{damaged}': "):
        as_scorer(damaged)


def test_a_name_that_no_hub_knows(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CrosscutError, match="cannot load 'nobody/nothing': neither a folder nor on the"):
        as_scorer("nobody/nothing")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 3}, "at least 5 and at most 16"),
        ({"max_length": 17}, "at least 5 and at most 16"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1"),
        ({"dtype": "int8"}, "dtype must be one of"),
    ],
)
def test_bad_options(folder, options, message):
    with pytest.raises(CrosscutError, match=message):
        as_scorer(folder, **options)
