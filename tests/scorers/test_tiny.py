"""crosscut-tiny, the models that come with crosscut: what is there, and that it knows what belongs together."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from crosscut import CrosscutError, Index
from crosscut.encoders import as_encoder
from crosscut.scorers import as_scorer
from crosscut.scorers.exported import manifest

FOLDER = manifest.TINY_FOLDER
ROOT = Path(__file__).parents[2]
# Questions, each with a passage that answers it and some that have its words, or its subject, and do not.
QUESTIONS = {
    "how do I copy a folder and everything in it": [
        "Recursively copy a directory tree and return the destination directory.",
        "Return the size of a file in bytes.",
        "Everything that she had ever written was green.",
    ],
    "what causes rain": [
        "Rain falls when water vapour in the air cools, condenses into drops and these grow too heavy to float.",
        "The causes of the war are disputed among historians.",
        "She left her umbrella on the train.",
    ],
    "how long do whales live": [
        "Bowhead whales can reach an age of more than 200 years.",
        "Whales are hunted for their oil and their meat.",
        "The bridge is 200 metres long.",
    ],
    "install a package from the command line": [
        "To install software, open a terminal and type apt install followed by the name of the package.",
        "The package arrived on Tuesday, a day late.",
        "A line is drawn between two points.",
    ],
    "choose a random element from a list": [
        "Return a random element from the non-empty sequence seq.",
        "Sort the list in ascending order and return None.",
        "Elements of a list are parted by commas.",
    ],
}


def test_the_folder_is_small_and_says_what_it_is():
    names = {path.name for path in FOLDER.iterdir()}
    assert names >= {"README.md", "scorer.onnx", "encoder.onnx", "words.bin", "tokenizer.json"}
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 20_000_000
    card = (FOLDER / "README.md").read_text()
    assert "Apache-2.0" in card and "recipes/tiny" in card
    for kind, file in manifest.PAIR.items():
        content = json.loads((FOLDER / file).read_text())
        assert (content["kind"], content["precision"]) == (kind, "int8-rows")
        assert "/" not in content["source"]["name"]  # nothing of the machine that it was made on


def test_neither_torch_nor_transformers():
    code = """
import sys
for name in ("torch", "transformers", "sentence_transformers", "onnx", "openvino", "huggingface_hub"):
    sys.modules[name] = None
from crosscut import Index
index = Index.build(["Rain falls when vapour cools.", "A line has two ends."], anchor_queries=["why does it rain"])
print(len(index.search("what causes rain", k=2)))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2\n", "")


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_above_what_is_none(question):
    passages = QUESTIONS[question]
    scores = as_scorer().score([(question, passage) for passage in passages])
    assert scores.argmax() == 0
    similar = as_encoder().encode(passages) @ as_encoder().encode([question], "query")[0]
    assert similar.argmax() == 0


def test_other_questions_passages_are_far():
    passages = [passages[0] for passages in QUESTIONS.values()]
    pairs = [(question, passage) for question in QUESTIONS for passage in passages]
    scores = as_scorer().score(pairs).reshape(len(QUESTIONS), -1)
    assert (scores.argmax(axis=1) == np.arange(len(QUESTIONS))).all()
    vectors, asked = as_encoder().encode(passages), as_encoder().encode(list(QUESTIONS), "query")
    assert ((asked @ vectors.T).argmax(axis=1) == np.arange(len(QUESTIONS))).all()


def test_a_text_has_one_result_whatever_it_is_run_with():
    texts = [text for passages in QUESTIONS.values() for text in passages]
    pairs = [(question, text) for question in QUESTIONS for text in texts]
    scorer, encoder = as_scorer(), as_encoder()
    scores, vectors = scorer.score(pairs), encoder.encode(texts)
    order = np.random.default_rng(0).permutation(len(pairs))
    np.testing.assert_array_equal(as_scorer(threads=1).score([pairs[p] for p in order]), scores[order])
    np.testing.assert_array_equal([scorer.score([pair])[0] for pair in pairs[::7]], scores[::7])
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    np.testing.assert_allclose(alone, vectors, atol=1e-6)


def test_long_and_empty_texts():
    scorer = as_scorer()
    assert np.isfinite(scorer.score([("", ""), ("word " * 600, "word " * 600)])).all()
    assert scorer.truncated == 1
    assert as_scorer(item_tokens=4).digest() != scorer.digest()
    assert np.linalg.norm(as_encoder().encode(["", "word " * 600]), axis=1) == pytest.approx(1.0)


def test_an_index_finds_them_again_wherever_it_is(tmp_path, monkeypatch):
    items = [text for passages in QUESTIONS.values() for text in passages]
    Index.build(items, anchor_queries=list(QUESTIONS)[:2], path=tmp_path / "x.index")
    models = json.loads((tmp_path / "x.index" / "index.json").read_text())
    assert models["scorer"] == {"name": "crosscut-tiny", "digest": as_scorer().digest()}
    assert models["encoder"] == {"name": "crosscut-tiny", "digest": as_encoder().digest()}
    (tmp_path / "elsewhere" / "crosscut-tiny").mkdir(parents=True)  # not what the name means
    monkeypatch.chdir(tmp_path / "elsewhere")
    index = Index.load(tmp_path / "x.index")
    assert index.search("how long do whales live", k=3, budget=10).calls == 10
    assert index.scorer.name == index.encoder.name == "crosscut-tiny"


def test_a_scorer_alone_takes_the_encoder_along():
    def length(query, texts):
        return [float(len(text)) for text in texts]

    assert Index.build(["one", "two"], scorer=length).encoder.name == "crosscut-tiny"
    assert Index.build(["one", "two"], scorer=length, encoder=False).encoder is None


def test_an_installation_that_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "TINY_FOLDER", tmp_path / "tiny")
    with pytest.raises(
        CrosscutError, match=r"cannot read .*scorer\.json \(FileNotFoundError\): install crosscut again"
    ):
        as_scorer()
    shutil.copytree(FOLDER, tmp_path / "tiny")
    (tmp_path / "tiny" / "words.bin").write_bytes(b"")
    with pytest.raises(CrosscutError, match=r"words\.bin is damaged or was changed: install crosscut again"):
        as_scorer()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two students that the recipe made, with the same words, and a stranger with other words, all very small."""
    transformers = pytest.importorskip("transformers")
    sentence_transformers = pytest.importorskip("sentence_transformers", minversion="6.0")
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package)
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tiny_families import TOKENIZERS, save

    folder, tokenizer = tmp_path_factory.mktemp("trained"), TOKENIZERS["bert"]()
    save(folder / "large", tokenizer=tokenizer)
    save(folder / "base", "bert", transformers.AutoModel, tokenizer, initializer_range=0.1)
    (folder / "texts.txt").write_text("\n".join(text for passages in QUESTIONS.values() for text in passages))
    given = ["--layers", "1,0", "--wide", "40", "--texts", folder / "texts.txt"]
    ended = recipe("student", folder / "large", *given, "--out", folder / "scorer")
    assert "40 of 48 channels" in ended.stdout and "2 layers" in ended.stdout, ended.stderr
    for name, more in (("encoder", ["--words-of", folder / "large"]), ("stranger", [])):
        ended = recipe("student", folder / "base", "--layers", "1", *more, "--out", folder / f"student-{name}")
        assert ended.returncode == 0, ended.stderr
        inner = Transformer(str(folder / f"student-{name}"))
        parts = [inner, Pooling(inner.get_embedding_dimension(), "mean")]
        encoder = sentence_transformers.SentenceTransformer(modules=parts, device="cpu")
        encoder.save(str(folder / name), create_model_card=False)
    return folder


def recipe(name, *given):
    command = [sys.executable, ROOT / f"recipes/tiny/{name}.py", *given]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


@pytest.mark.models
def test_the_recipe_puts_two_models_into_one_folder(trained, tmp_path):
    ended = recipe("bundle", trained / "scorer", trained / "encoder", "--out", tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    assert "error" in ended.stdout and "cosine" in ended.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {path.name for path in FOLDER.iterdir()} - {"README.md"}
    config = json.loads((trained / "scorer" / "config.json").read_text())
    # Half a byte for each number of a word, and a scale.
    assert (tmp_path / "out" / "words.bin").stat().st_size == config["vocab_size"] * (
        config["hidden_size"] // 2 + 4
    )
    texts = [text for passages in QUESTIONS.values() for text in passages]
    pairs = [(query, item) for query in texts[:5] for item in texts]
    exact = as_scorer(trained / "scorer", device="cpu").score(pairs)
    assert np.corrcoef(as_scorer(tmp_path / "out").score(pairs), exact)[0, 1] > 0.9
    vectors = as_encoder(tmp_path / "out").encode(texts)
    assert (vectors * as_encoder(trained / "encoder").encode(texts)).sum(axis=1).min() > 0.98


@pytest.mark.models
def test_the_recipe_averages_models(trained, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(trained / "scorer", tmp_path / "other")
    one = load_file(trained / "scorer" / "model.safetensors")
    save_file({name: 3 * value for name, value in one.items()}, tmp_path / "other" / "model.safetensors")
    ended = recipe("average", trained / "scorer", tmp_path / "other", "--out", tmp_path / "mean")
    assert ended.returncode == 0, ended.stderr
    mean = load_file(tmp_path / "mean" / "model.safetensors")
    assert all(np.allclose(mean[name], 2 * value) for name, value in one.items())
    assert as_scorer(tmp_path / "mean", device="cpu").score([("rain", "water")]).shape == (1,)
    ended = recipe("average", trained / "scorer", trained / "large", "--out", tmp_path / "none")
    assert ended.returncode == 1 and "different weights" in ended.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.models
@pytest.mark.parametrize(
    ("models", "message"),
    [
        (("scorer", "stranger"), "the word tables of the two models differ"),
        (("encoder", "scorer"), "the cross-encoder comes first"),
    ],
)
def test_what_the_recipe_refuses(trained, tmp_path, models, message):
    ended = recipe("bundle", *(trained / name for name in models), "--out", tmp_path / "out")
    assert ended.returncode == 1 and message in ended.stderr
    assert not (tmp_path / "out").exists()
