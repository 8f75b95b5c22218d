"""Tiny random cross-encoders: agreement with sentence-transformers, truncation, models that will not do."""

import json
import pickle
import shutil

import numpy as np
import pytest
from tiny_families import save, torch, transformers

from crosscut.errors import CrosscutError
from crosscut.scorers import PredictScorer, TransformerScorer, as_scorer

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
    with pytest.raises(CrosscutError, match="is no cross-encoder but a BertModel"):
        as_scorer(save_model(tmp_path / "headless", headless=True))
    # The same, but with a config.json that says otherwise.
    config = json.loads((tmp_path / "headless" / "config.json").read_text())
    config["architectures"] = ["BertForSequenceClassification"]
    (tmp_path / "headless" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CrosscutError, match=r"lacks classifier\.bias, classifier\.weight"):
        as_scorer(tmp_path / "headless")
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
        ({"max_length": "16"}, "max_length must be a whole number of at least 1, but is '16'"),
        ({"query_tokens": 0}, "query_tokens must be a whole number of at least 1, but is 0"),
        ({"item_tokens": True}, "item_tokens must be a whole number of at least 1, but is True"),
        ({"batch_tokens": 0}, "batch_tokens must be a whole number of at least 1, but is 0"),
        ({"dtype": "int8"}, "dtype must be one of float16, bfloat16, float32, but is 'int8'"),
        ({"device": "nonsense"}, "the device 'nonsense' is not available"),
        ({"device": "meta"}, "the device 'meta' is not available"),
        ({"device": "hpu"}, "the device 'hpu' is not available"),
        ({"label": 1}, "has no label 1: 0 is 'LABEL_0'"),
        ({"label": -1}, "has no label -1"),
        ({"label": "yes"}, "has no label 'yes'"),
        ({"tokens": 3}, "these are known: query_tokens, item_tokens, max_length, label"),
    ],
)
def test_bad_options(folder, options, message):
    with pytest.raises(CrosscutError, match=message):
        as_scorer(folder, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(folder):
    with pytest.raises(
        CrosscutError, match=r"the device 'cuda' is not available .*: use 'cpu', or leave the device"
    ):
        as_scorer(folder, device="cuda")
    assert as_scorer(folder).device == "cpu"


def test_models_with_other_heads(tmp_path):
    kinds = {
        "token": ("modernbert", "AutoModelForTokenClassification", "ModernBertForTokenClassification"),
        "masked": ("bert", "AutoModelForMaskedLM", "BertForMaskedLM"),
        "causal": ("bert", "AutoModelForCausalLM", "BertLMHeadModel"),
        "encoder": ("deberta-v2", "AutoModel", "DebertaV2Model"),
    }
    for name, (family, head, architecture) in kinds.items():
        save(tmp_path / name, family, getattr(transformers, head), is_decoder=name == "causal")
        with pytest.raises(CrosscutError, match=f"is no cross-encoder but a {architecture}: use one"):
            as_scorer(tmp_path / name)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_one_of_two_labels(tmp_path, family):
    names = {0: "irrelevant", 1: "relevant"}
    path = save(
        tmp_path / "model", family, num_labels=2, id2label=names, label2id={"irrelevant": 0, "relevant": 1}
    )
    with pytest.raises(
        CrosscutError, match=r"2 labels \(0 is 'irrelevant', 1 is 'relevant'\).*the option label=NUMBER"
    ):
        as_scorer(path)
    pairs = [("floods", "policy"), ("whale sky", "")]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    queries, items = map(list, zip(*pairs, strict=True))
    with torch.inference_mode():
        logits = model(**tokenizer(queries, items, padding=True, return_tensors="pt")).logits.numpy()
    for label in (0, 1):
        scores = as_scorer(path, label=label, device="cpu").score(pairs)
        np.testing.assert_allclose(scores, logits[:, label], atol=1e-4)


def test_no_tokenizer(folder, tmp_path):
    bare = shutil.copytree(folder, tmp_path / "bare", ignore=shutil.ignore_patterns("*token*", "vocab*"))
    with pytest.raises(CrosscutError, match=f"the model {bare} has no tokenizer: save its tokenizer there too"):
        as_scorer(bare)
    transformers.CanineTokenizer().save_pretrained(bare)
    with pytest.raises(CrosscutError, match="has no fast tokenizer"):
        as_scorer(bare)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("sky", None), "pair 1: its item is of type NoneType, not a string"),
        ((3, "sky"), "pair 1: its query is of type int, not a string"),
        (("sky", ("a", "b")), "pair 1: its item is of type tuple, not a string"),
        (("sky", ["a", "b"]), "pair 1: its item is of type list, not a string"),
        (
            ("sky", "blue \ud83d"),
            r"pair 1: its item 'blue \\ud83d' has half a character \(a lone surrogate, at place 5",
        ),
        (("sky",), r"pair 1 is not a pair: give \(query, item\)"),
    ],
)
def test_texts_that_are_none(folder, pair, message):
    scorer = as_scorer(folder, device="cpu")
    good = scorer.score([("sky", "blue")])
    with pytest.raises(CrosscutError, match=message):
        scorer.score([("sky", "blue"), pair])
    assert scorer.calls == 1
    np.testing.assert_array_equal(scorer.score([("sky", "blue")]), good)


def test_half_precision_that_overflows(folder, monkeypatch):
    scorer = as_scorer(folder, device="cpu", dtype="float16")
    monkeypatch.setattr(
        scorer._runner, "score", lambda sent, lengths, start, end: torch.full([end - start], np.nan)
    )
    with pytest.raises(
        CrosscutError, match=r"not a finite number.*float16.*try the option dtype=bfloat16 or dtype=float32"
    ):
        scorer.score([("sky", "blue")])
    scorer = as_scorer(folder, device="cpu")
    monkeypatch.setattr(
        scorer._runner, "score", lambda sent, lengths, start, end: torch.full([end - start], np.nan)
    )
    with pytest.raises(CrosscutError, match="not a finite number") as caught:
        scorer.score([("sky", "blue")])
    assert "float16" not in str(caught.value)


class Tight:
    """A runner with memory for so many tokens only."""

    def __init__(self, runner, room, error):
        self.runner, self.room, self.error, self.tried = runner, room, error, []
        self.send, self.end = runner.send, runner.end

    def score(self, sent, lengths, start, end):
        self.tried.append(int(lengths[start:end].sum()))
        if self.tried[-1] > self.room:
            raise self.error
        return self.runner.score(sent, lengths, start, end)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory(tmp_path, family, error):
    path = save(tmp_path / "model", family)
    # One long pair and many short ones.
    pairs = [
        ("whale", "sky"),
        ("floods " * 30, "policy " * 30),
        *[("a", "") for _ in range(30)],
        ("sky", "whale sky"),
    ]
    expected = as_scorer(path, device="cpu").score(pairs)
    scorer = as_scorer(path, device="cpu", batch_tokens=5000)
    scorer._runner = Tight(scorer._runner, 30, error)
    np.testing.assert_allclose(scorer.score(pairs), expected, atol=1e-4)
    assert max(scorer._runner.tried) > 30  # it did run out
    assert 15 <= scorer.batch_tokens <= 60
    assert len(scorer._runner.tried) < 40
    tried = len(scorer._runner.tried)
    scorer.score(pairs)
    assert max(scorer._runner.tried[tried:]) <= 30  # lesson learned

    scorer._runner.room = 20
    with pytest.raises(CrosscutError, match="not enough memory on cpu to score a single pair of 24 tokens"):
        scorer.score(pairs)


def test_a_lack_of_memory_may_be_hidden_by_another_error(folder, pairs):
    hidden = RuntimeError("the recording of a graph failed")
    hidden.__context__ = torch.cuda.OutOfMemoryError("CUDA out of memory")
    expected = as_scorer(folder, device="cpu").score(pairs)
    scorer = as_scorer(folder, device="cpu")
    scorer._runner = Tight(scorer._runner, 30, hidden)
    np.testing.assert_allclose(scorer.score(pairs), expected, atol=1e-4)
    assert max(scorer._runner.tried) > 30


def test_other_errors_are_not_taken_for_a_lack_of_memory(folder):
    scorer = as_scorer(folder, device="cpu")
    scorer._runner = Tight(scorer._runner, 0, RuntimeError("shapes do not fit"))
    with pytest.raises(CrosscutError, match="failed: RuntimeError: shapes do not fit"):
        scorer.score([("sky", "blue")])
    assert len(scorer._runner.tried) == 1


def test_options_that_change_scores_change_the_digest(folder):
    plain = as_scorer(folder, device="cpu")
    assert plain.options() == {}
    options = [{"query_tokens": 3}, {"item_tokens": 3}, {"max_length": 9}, {"label": 0}]
    digests = {as_scorer(folder, device="cpu", **one).digest() for one in options} | {plain.digest()}
    assert len(digests) == 5
    other = as_scorer(folder, device="cpu", item_tokens=3, batch_tokens=77, dtype="bfloat16")
    assert other.options() == {"item_tokens": 3}
    assert other.digest() == as_scorer(folder, device="cpu", item_tokens=3).digest()


def test_a_scorer_is_made_again_with_its_options(folder):
    scorer = as_scorer(folder, device="cpu", query_tokens=2, item_tokens=3)
    again = pickle.loads(pickle.dumps(scorer))
    assert (again.digest(), again.options()) == (scorer.digest(), scorer.options())
    pairs = [("blue sky whale", "grey whale blue sky"), ("", "sky")]
    np.testing.assert_array_equal(again.score(pairs), scorer.score(pairs))
    assert (again.truncated, scorer.truncated) == (1, 1)


def test_many_pairs_come_back_in_order(folder, pairs, monkeypatch):
    whole = as_scorer(folder, device="cpu").score(pairs)
    monkeypatch.setattr("crosscut.scorers.transformer.SLAB", 7)
    np.testing.assert_allclose(as_scorer(folder, device="cpu").score(pairs), whole, atol=1e-5)
