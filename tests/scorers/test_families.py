"""A tiny random model of each family: agreement with sentence-transformers, by the path that it should take."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tiny_families import LIMIT, TEXTS, TOKENIZERS, byte_pairs, save, tokenizers, torch, transformers
from transformers import AutoModel, AutoTokenizer

from crosscut.errors import CrosscutError
from crosscut.scorers import TransformerScorer
from crosscut.scorers.torch_models import PackedRunner, PaddedRunner

sentence_transformers = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.models

PACKED = ["bert", "roberta", "xlm-roberta", "camembert"]
PADDED = ["electra", "distilbert", "modernbert", "deberta-v2"]
PAIRS = [(query, item) for query in TEXTS for item in TEXTS]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of a family's model, made when it is first asked for."""
    made = {}

    def folder(family):
        if family not in made:
            made[family] = save(tmp_path_factory.mktemp("models") / family, family)
        return made[family]

    return folder


def reference(folder, pairs, **options):
    model = sentence_transformers.CrossEncoder(
        str(folder), device="cpu", model_kwargs={"dtype": torch.float32}, **options
    )
    return model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)


@pytest.mark.parametrize(
    ("family", "path"), [*((f, PackedRunner) for f in PACKED), *((f, PaddedRunner) for f in PADDED)]
)
def test_scores_agree_with_sentence_transformers(folders, family, path):
    scorer = TransformerScorer(folders(family), device="cpu", batch_tokens=200)
    assert isinstance(scorer._runner, path)
    assert scorer.max_length == LIMIT
    raw = reference(folders(family), PAIRS)
    assert raw.std() > 0.1
    np.testing.assert_allclose(scorer.score(PAIRS), raw, atol=1e-4)
    assert 0 < scorer.truncated < len(PAIRS)


@pytest.mark.parametrize("family", PACKED)
def test_a_text_may_hold_the_padding_token(folders, family):
    pad = AutoTokenizer.from_pretrained(folders(family)).pad_token
    pairs = [(f"{pad} {query} {pad}", f"{item} {pad} {query}") for query, item in PAIRS[:20]]
    scores = TransformerScorer(folders(family), device="cpu").score(pairs)
    np.testing.assert_allclose(scores, reference(folders(family), pairs), atol=1e-4)


def test_threads_may_share_a_scorer(folders):
    scorer = TransformerScorer(folders("bert"), device="cpu")
    jobs = [[(f"{query} {job}", f"{item} {job}") for query, item in PAIRS[:12]] for job in range(40)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(scorer.score, jobs))
    alone = TransformerScorer(folders("bert"), device="cpu")
    for job, scores in zip(jobs, together, strict=True):
        np.testing.assert_allclose(scores, alone.score(job), atol=1e-5)


def test_the_digest_knows_the_tokenizer(folders, tmp_path):
    shutil.copytree(folders("bert"), tmp_path / "other")
    assert TransformerScorer(tmp_path / "other").digest() == TransformerScorer(folders("bert")).digest()
    path = tmp_path / "other" / "tokenizer.json"
    path.write_text(path.read_text().replace('"lowercase": true', '"lowercase": false'))
    assert TransformerScorer(tmp_path / "other").digest() != TransformerScorer(folders("bert")).digest()


@pytest.mark.parametrize("family", ["roberta", "modernbert"])
def test_a_lower_limit_agrees_too(folders, family):
    scores = TransformerScorer(folders(family), device="cpu", max_length=11).score(PAIRS)
    np.testing.assert_allclose(scores, reference(folders(family), PAIRS, max_length=11), atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert", "modernbert"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_near(folders, family, dtype):
    half = TransformerScorer(folders(family), device="cpu", dtype=dtype).score(PAIRS)
    whole = TransformerScorer(folders(family), device="cpu").score(PAIRS)
    assert np.corrcoef(half, whole)[0, 1] > (0.999 if dtype == "float16" else 0.95)
    # The head runs in float32: scores are not rounded to the coarse steps of the half precisions.
    rounded = torch.tensor(half).to(getattr(torch, dtype)).float().numpy()
    assert (rounded != half).mean() > 0.5


def test_a_decoder_takes_the_general_path(tmp_path):
    scorer = TransformerScorer(save(tmp_path / "decoder", is_decoder=True), device="cpu")
    assert isinstance(scorer._runner, PaddedRunner)
    assert np.isfinite(scorer.score(PAIRS[:3])).all()


def save_qwen(folder, pad, config_pad, ends=False):
    """A decoder, as newer rerankers are; its pairs have no special token, or one at the end."""
    tokenizer = byte_pairs(["<unused>", "<eos>", "<pad>"])
    if ends:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="$A <eos>", pair="$A $B <eos>", special_tokens=[("<eos>", 1)]
        )
    names = {"eos_token": "<eos>"} | ({"pad_token": pad} if pad else {})
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    return save(folder, "qwen2", tokenizer=tokenizer, num_key_value_heads=2, pad_token_id=config_pad)


@pytest.mark.parametrize(
    ("pad", "config_pad", "ends", "one_by_one"),
    [
        ("<pad>", 2, False, False),
        ("<pad>", None, False, False),
        ("<pad>", None, True, False),
        (None, 2, False, False),
        (None, None, False, True),
        ("<eos>", None, True, True),
    ],
)
def test_a_decoder_and_its_padding(tmp_path, pad, config_pad, ends, one_by_one):
    folder = save_qwen(tmp_path / "qwen", pad, config_pad, ends)
    pairs = [pair for pair in PAIRS if any(pair)]
    scorer = TransformerScorer(folder, device="cpu")
    assert (scorer._runner.end(np.array([3, 3, 3]), 0, 100) == 1) == one_by_one
    alone = np.concatenate([reference(folder, [pair]) for pair in pairs[::5]])
    np.testing.assert_allclose(scorer.score(pairs)[::5], alone, atol=1e-4)


def test_an_empty_pair_without_special_tokens(tmp_path):
    scorer = TransformerScorer(save_qwen(tmp_path / "qwen", "<pad>", 2), device="cpu")
    with pytest.raises(CrosscutError, match=r"a pair has neither a query nor an item .*leave empty texts out"):
        scorer.score([("a", ""), ("", "")])


def save_marked(folder, family, **form):
    """A model of the [EMB] form: two tokens more, and a word in its config.json."""
    tokenizer = TOKENIZERS[family]()
    tokenizer.add_special_tokens({"additional_special_tokens": ["[QUERY]", "[ITEM]"]})
    form = {"head": "emb", "query_marker": "[QUERY]", "item_marker": "[ITEM]"} | form
    return save(folder, family, AutoModel, tokenizer, crosscut=form)


@pytest.mark.parametrize(
    ("family", "path"),
    [
        ("bert", PackedRunner),
        ("roberta", PackedRunner),
        ("modernbert", PaddedRunner),
        ("deberta-v2", PaddedRunner),
    ],
)
def test_marked_vectors(tmp_path, family, path):
    folder = save_marked(tmp_path / "model", family)
    scorer = TransformerScorer(folder, device="cpu", batch_tokens=150)
    assert isinstance(scorer._runner, path)
    scores = scorer.score(PAIRS)
    assert scorer.truncated > 0

    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    marks = tokenizer.convert_tokens_to_ids(["[QUERY]", "[ITEM]"])
    compared = 0
    for (query, item), score in zip(PAIRS, scores, strict=True):
        # Marked in the text, one pair at a time.
        given = tokenizer([f"[QUERY]{query}"], [f"[ITEM]{item}"], return_tensors="pt")
        if given["input_ids"].shape[1] > LIMIT:
            continue  # the tokenizer would cut elsewhere, as it counts a marker as a token of the text
        with torch.inference_mode():
            state = model(**given).last_hidden_state[0]
        places = [(given["input_ids"][0] == mark).nonzero().item() for mark in marks]
        assert float(state[places[0]] @ state[places[1]]) == pytest.approx(float(score), abs=1e-3)
        compared += 1
    assert compared == len(PAIRS) - scorer.truncated > 10
    assert scores.std() > 1


def test_marked_vectors_need_no_pooler(tmp_path):
    """Trained without one, a model is saved without one; its score does not depend on it."""
    folder = save_marked(tmp_path / "model", "bert")
    model = AutoModel.from_pretrained(folder, add_pooling_layer=False)
    model.save_pretrained(tmp_path / "bare")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "bare")
    scores = [TransformerScorer(path, device="cpu").score(PAIRS) for path in (folder, tmp_path / "bare")]
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"query_marker": "[LOST]"}, r"does not know '\[LOST\]', the query_marker of its config\.json"),
        ({"item_marker": None}, "the one form that is known is"),
        ({"head": "pooled"}, "the one form that is known is"),
    ],
)
def test_markers_that_will_not_do(tmp_path, form, message):
    with pytest.raises(CrosscutError, match=message):
        TransformerScorer(save_marked(tmp_path / "model", "bert", **form), device="cpu")


def test_marked_vectors_have_no_labels(tmp_path):
    with pytest.raises(CrosscutError, match="has no labels"):
        TransformerScorer(save_marked(tmp_path / "model", "bert"), device="cpu", label=0)
