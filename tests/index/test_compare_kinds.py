"""Every kind of compare model in an index: real ones, tiny, with random weights, found again by their folders."""

from __future__ import annotations

import numpy as np
import pytest
from search_fakes import ANCHORS, Words

from crosscut import CrosscutError, Index
from crosscut.compare import KINDS, as_comparer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")
import tiny_families  # noqa: E402

from crosscut.compare.comparer import ModelComparer  # noqa: E402
from crosscut.compare.registry import model_class  # noqa: E402
from crosscut.compare.text_encoder import TextEncoder  # noqa: E402

pytestmark = pytest.mark.models
TEXTS = [" ".join(text.split()[:8]) for text in tiny_families.TEXTS] + ["blue sky", "the whale", "fire and floods"]
QUERY = "a policy for a whale"


def save(kind, encoder, folder, seed=0):
    torch.manual_seed(seed)
    model = model_class(kind)(TextEncoder.load(encoder))
    for name, parameter in model.named_parameters():
        if not name.startswith("encoders."):  # fresh layers begin as zeros
            torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    ModelComparer(model, device="cpu").save(folder)
    return folder


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders")
    tiny_families.save(folder / "small", "bert", transformers.AutoModel)
    tiny_families.save(folder / "wide", "bert", transformers.AutoModel, hidden_size=48, num_attention_heads=4)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_scores_as_the_model_does(encoders, tmp_path, kind):
    folder = save(kind, encoders / "small", tmp_path / "model")
    path = tmp_path / "x.index"
    Index.build(TEXTS[:-2], scorer=Words().scorer(), encoder=False, compare=folder, path=path)
    index = Index.load(path, scorer=Words().scorer())  # by its name in the index
    index.add(TEXTS[-2:])
    assert index.compare == (kind,)
    model = as_comparer(folder, device="cpu")
    (expected,) = model.score(model.encode_queries([QUERY]), [model.encode_items(TEXTS)])
    result = index.search(QUERY, k=len(TEXTS), pipeline=f"{kind}:{len(TEXTS)}")
    found = {int(hit.id): hit.score for hit in result}
    # A text's vectors differ in their last bits with what it is encoded together with, before they are float16.
    close = {"rtol": 2e-3, "atol": 2e-3 * np.abs(expected).max()}
    np.testing.assert_allclose([found[n] for n in range(len(TEXTS))], expected, **close)
    assert len(index.search(QUERY, pipeline=f"lexical:6 > {kind}:4 > cross:2")) == 2


def test_the_default_search_learns_from_a_real_model(encoders, tmp_path):
    folder = save("cmc", encoders / "small", tmp_path / "model")
    index = Index.build(TEXTS, scorer=Words().scorer(), encoder=False, compare=folder, anchor_queries=ANCHORS)
    assert index.search(QUERY, budget=5, first="cmc").calls == 5
    assert len(index._searcher.corpus.prior.coefficients) == 1 + 3 * 2


def test_a_model_that_another_handle_has_replaced_is_loaded_anew(encoders, tmp_path):
    one, two = (save("cmc", encoders / "small", tmp_path / f"model{seed}", seed=seed) for seed in (0, 1))
    path = tmp_path / "x.index"
    Index.build(TEXTS, scorer=Words().scorer(), encoder=False, compare=one, path=path)
    ours, theirs = (Index.load(path, scorer=Words().scorer()) for _ in range(2))
    before = [hit.score for hit in ours.search(QUERY, pipeline="cmc:3")]
    theirs.remove_compare("cmc")
    theirs.add_compare(two)
    ours.delete(["0"])  # which reads the index anew
    now = [hit.score for hit in ours.search(QUERY, pipeline="cmc:3")]
    fresh = Index.load(path, scorer=Words().scorer()).search(QUERY, pipeline="cmc:3")
    assert now == [hit.score for hit in fresh] != before


def test_another_model_in_the_same_folder_is_noticed(encoders, tmp_path):
    folder = save("cmc", encoders / "small", tmp_path / "model")
    path = tmp_path / "x.index"
    Index.build(TEXTS, scorer=Words().scorer(), encoder=False, compare=folder, path=path)
    save("cmc", encoders / "small", folder, seed=1)
    index = Index.load(path, scorer=Words().scorer())
    with pytest.raises(CrosscutError, match=r"the vectors 'cmc' of this index were made by the cmc model"):
        index.search(QUERY, pipeline="cmc:3")
    wide = save("cmc", encoders / "wide", tmp_path / "wide")
    with pytest.raises(CrosscutError, match=r"have 32 dimensions, but this is the cmc model .* with 48"):
        index.add_compare(wide)
    assert index.add_compare(wide, name="wide") == "wide"
    assert len(index.search(QUERY, pipeline="wide:3")) == 3
