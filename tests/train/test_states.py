"""A small cross-encoder learns the hidden states of a larger one."""

import json

import numpy as np
import pytest
import tiny_data

from crosscut.errors import CrosscutError
from crosscut.scorers import as_scorer
from crosscut.train import distil, train_cross_encoder

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.models

QUICK = {"learning_rate": 3e-3, "batch_size": 8, "device": "cpu", "weight_decay": 0.0, "eval_every": 20}


@pytest.fixture(scope="module")
def teacher(beir, tmp_path_factory):
    base = tiny_data.save_base(tmp_path_factory.mktemp("wide"), num_hidden_layers=4)
    out = tmp_path_factory.mktemp("teacher") / "model"
    train_cross_encoder(beir, base=base, out=out, epochs=2, negatives="random", negative_count=3, **QUICK)
    return out


@pytest.fixture
def student(teacher, tmp_path):
    """Two layers of the teacher, and its words in another order."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerFast

    model = AutoModelForSequenceClassification.from_pretrained(teacher, dtype=torch.float32)
    layers = model.base_model.encoder.layer
    model.base_model.encoder.layer = torch.nn.ModuleList([layers[0], layers[3]])
    model.config.num_hidden_layers = 2
    tokenizer = AutoTokenizer.from_pretrained(teacher)
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    old = spec["model"]["vocab"]
    special = sorted(token["id"] for token in spec["added_tokens"])
    words = sorted(
        old, key=lambda word: (old[word] not in special, old[word] if old[word] in special else -old[word])
    )
    spec["model"]["vocab"] = {word: number for number, word in enumerate(words)}
    assert [spec["model"]["vocab"][word] for word in words[: len(special)]] == special
    rows = model.get_input_embeddings().weight.detach()[[old[word] for word in words]]
    model.set_input_embeddings(torch.nn.Embedding.from_pretrained(rows, freeze=False, padding_idx=0))
    model.config.vocab_size = len(rows)
    model.save_pretrained(tmp_path / "student")
    from tokenizers import Tokenizer

    named = {name: getattr(tokenizer, name) for name in tokenizer.special_tokens_map}
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(spec)), **named)
    made.model_input_names, made.model_max_length = tokenizer.model_input_names, tokenizer.model_max_length
    made.save_pretrained(tmp_path / "student")
    return tmp_path / "student"


def apart(teacher, model):
    """The share by which the states of the last layers differ, on some pairs."""
    from transformers import AutoModel, AutoTokenizer

    pairs = [(query.text, item.text) for query in tiny_data.queries()[:10] for item in tiny_data.items()[::9]]
    states = []
    for folder in (teacher, model):
        tokens = AutoTokenizer.from_pretrained(folder)(
            *map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt"
        )
        with torch.no_grad():
            said = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()(**tokens).last_hidden_state
        states.append(said[tokens["attention_mask"].bool()])
    return float((states[0] - states[1]).square().sum() / states[0].square().sum())


def test_states_come_closer_to_the_teachers(beir, teacher, student, tmp_path):
    before = apart(teacher, student)
    given = {"teacher": str(teacher), "base": student, "loss": "mse", "depth": 40, "epochs": 6}
    report = distil(beir, out=tmp_path / "with", states=10.0, **given, **QUICK)
    distil(beir, out=tmp_path / "without", **given, **QUICK)
    losses = [loss for _, loss in report["losses"]]
    assert losses[-1] < 0.7 * losses[0]
    after, alone = (apart(teacher, tmp_path / name) for name in ("with", "without"))
    assert after < 0.7 * before
    assert after < 0.7 * alone
    pairs = [(query.text, item.text) for query in tiny_data.queries()[:20] for item in tiny_data.items()[::7]]
    ours, theirs = (as_scorer(folder, device="cpu").score(pairs) for folder in (tmp_path / "with", teacher))
    assert np.corrcoef(ours, theirs)[0, 1] > 0.8


@pytest.mark.parametrize("candidates", ["bm25,random", "all"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_model_that_is_its_teachers_has_nothing_to_learn(beir, teacher, tmp_path, count, candidates):
    given = {"loss": "mse", "depth": 40, "states": 10.0, "candidates": candidates, **QUICK, "learning_rate": 1e-9}
    report = distil(beir, teacher=count * [str(teacher)], base=teacher, out=tmp_path / "o", steps=5, **given)
    assert report["losses"][0][1] < 0.2  # its own dropout aside


def test_scores_are_the_mean_of_all_teachers_and_states_of_the_first(beir, teacher, tmp_path):
    def other(query, texts):
        return [9.0 for _ in texts]

    given = {"loss": "mse", "depth": 40, "states": 1e-6, **QUICK, "learning_rate": 1e-9}
    report = distil(beir, teacher=[str(teacher), other], base=teacher, out=tmp_path / "o", steps=5, **given)
    pairs = [(query.text, item.text) for query in tiny_data.queries() for item in tiny_data.items()]
    expected = np.square((as_scorer(teacher, device="cpu").score(pairs) - 9) / 2).mean()
    assert report["losses"][0][1] == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"teacher": lambda query, texts: [0.0 for _ in texts]}, "from a cross-encoder that torch runs"),
        ({"teacher": "other first"}, "from a cross-encoder that torch runs"),
        ({"states": 0.0}, "states must be above 0, but is 0.0"),
        ({"loss": "match"}, "states are for a cross-encoder"),
        ({"teacher": "emb"}, "with the head cls, and .* has emb"),
        ({"base": "narrow"}, "states need one width, and no more layers"),
        ({"base": "words"}, "the teacher does not know the student's token 'unheard-of'"),
    ],
)
def test_what_cannot_be_learned_is_refused(beir, teacher, tmp_path, given, message):
    asked = {"teacher": str(teacher), "base": teacher, "loss": "mse", "states": 1.0, "steps": 1, **given}
    if asked["teacher"] == "other first":
        asked["teacher"] = [lambda query, texts: [0.0 for _ in texts], str(teacher)]
    if asked["teacher"] == "emb":
        base = tiny_data.save_base(tmp_path / "base")
        asked["teacher"] = str(tmp_path / "emb")
        quick = {"negatives": "random", "negative_count": 3, "steps": 1, **QUICK}
        train_cross_encoder(beir, base=base, out=tmp_path / "emb", head="emb", **quick)
    if asked["base"] == "narrow":
        asked["base"] = tiny_data.save_base(tmp_path / "narrow", hidden_size=16, intermediate_size=32)
    if asked["base"] == "words":
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        model, tokenizer = (
            kind.from_pretrained(teacher) for kind in (AutoModelForSequenceClassification, AutoTokenizer)
        )
        tokenizer.add_tokens(["unheard-of"])
        model.resize_token_embeddings(len(tokenizer))
        asked["base"] = tmp_path / "words"
        for part in (model, tokenizer):
            part.save_pretrained(asked["base"])
    with pytest.raises(CrosscutError, match=message):
        distil(beir, out=tmp_path / "o", depth=10, **asked, **QUICK)
