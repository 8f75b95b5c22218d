"""A tiny random bi-encoder, by folder and as an object."""

import numpy as np
import pytest

from crosscut.encoders import as_encoder
from crosscut.errors import CrosscutError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.models

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "blue", "whale", "sky", "grey"]
TEXTS = ["blue whale", "", "grey grey sky"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizerFast.from_pretrained(str(folder)).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def test_folder_and_object_agree(folder):
    model = sentence_transformers.SentenceTransformer(str(folder))
    by_folder, by_object = as_encoder(folder), as_encoder(model)
    vectors = by_folder.encode(TEXTS)
    expected = model.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_allclose(by_object.encode(TEXTS, role="query"), expected, atol=1e-5)
    assert by_folder.name == str(folder)
    assert by_folder.digest() == by_object.digest() != ""


def test_digest_follows_the_weights(folder):
    model = sentence_transformers.SentenceTransformer(str(folder))
    before = as_encoder(model).digest()
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    assert as_encoder(model).digest() != before


def test_prompts_by_role(folder):
    model = sentence_transformers.SentenceTransformer(str(folder), prompts={"query": "grey ", "document": "blue "})
    encoder = as_encoder(model)
    np.testing.assert_allclose(
        encoder.encode(["sky"], "query"), as_encoder(folder).encode(["grey sky"]), atol=1e-5
    )
    np.testing.assert_allclose(encoder.encode(["sky"], "item"), as_encoder(folder).encode(["blue sky"]), atol=1e-5)


def test_folder_that_is_no_model(tmp_path):
    with pytest.raises(CrosscutError, match="cannot load"):
        as_encoder(tmp_path)
