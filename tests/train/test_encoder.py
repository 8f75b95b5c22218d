"""A tiny bi-encoder learns from negatives that it finds itself; afterwards it is a sentence-transformers model."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
import tiny_data

from crosscut.encoders import as_encoder
from crosscut.errors import CrosscutError
from crosscut.train import train_encoder

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
sentence_transformers = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.models

QUICK = {"learning_rate": 3e-3, "batch_size": 8, "device": "cpu", "weight_decay": 0.0}
TEXTS = [item.text for item in tiny_data.items()]


@pytest.fixture(scope="module")
def trained(beir, base, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "encoder"
    return out, train_encoder(beir, base=base, out=out, epochs=8, eval_every=16, depth=20, **QUICK)


def test_it_learns_to_find(trained, beir, base):
    out, report = trained
    losses = [loss for _, loss in report["losses"]]
    assert losses[-1] < 0.2 * losses[0]
    assert report["figures"]["recall@10"] == max(recall for _, recall in report["evaluations"]) >= 0.9
    before, after = (found(as_encoder(path)) for path in (base, out))
    assert after > before + 0.3


def found(encoder):
    """How many queries find their item first."""
    queries = tiny_data.queries()
    scores = encoder.encode([query.text for query in queries], "query") @ encoder.encode(TEXTS, "item").T
    return (scores.argmax(axis=1) == np.arange(len(queries))).mean()


def test_the_folder_is_a_sentence_transformers_model(trained):
    out, _ = trained
    model = sentence_transformers.SentenceTransformer(str(out), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Normalize"]
    vectors = model.encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors, as_encoder(out).encode(TEXTS), atol=1e-5)
    assert as_encoder(out).digest() == as_encoder(out).digest()
    assert "sentence-similarity" in (out / "README.md").read_text()
    assert not list(out.glob("checkpoint*"))


def test_vectors_in_training_are_those_of_the_saved_model(trained, beir):
    from crosscut.train.splits import read_examples
    from crosscut.train.vectors import VectorTask, load_base

    class OnlyVectors(VectorTask):
        collate = loss = None

    out, _ = trained
    encoder = load_base(out, (), max_length=6, seed=0)
    examples = read_examples(beir, "dev")
    task = OnlyVectors(encoder, None, examples, examples, scale=1.0)
    encoder.eval()
    texts = ["the cat", "a", *TEXTS[:20]]
    with torch.no_grad():
        vectors = task.vectors(task.numbers(("item", texts))[0])
    np.testing.assert_allclose(vectors, encoder.encode(texts), atol=1e-5)
    assert encoder.max_seq_length == 6


def test_what_is_saved_is_what_was_trained(beir, base, tmp_path, monkeypatch):
    """Vectors of the model in memory when training ends, against those of the folder."""
    from crosscut.train.vectors import VectorTask

    seen, save = {}, VectorTask.save

    def watch(task, folder):
        task.module.eval()
        with torch.no_grad():
            seen["vectors"] = task.vectors(task.numbers(("item", TEXTS))[0])
        save(task, folder)

    monkeypatch.setattr(VectorTask, "save", watch)
    train_encoder(beir, base=base, out=tmp_path / "out", steps=20, depth=20, **QUICK)
    np.testing.assert_allclose(seen["vectors"], as_encoder(tmp_path / "out").encode(TEXTS), atol=1e-4)


def test_negatives_are_found_anew_in_every_epoch(beir, base, tmp_path, monkeypatch):
    from crosscut.train.vectors import InBatchTask

    seen, begin_epoch = {}, InBatchTask.begin_epoch

    def watch(task, epoch, spread):
        begin_epoch(task, epoch, spread)
        seen[epoch] = task.rows.mined[-1].copy()
        answers = [set(positives) for positives in task.train.positives]
        assert not any(set(row.tolist()) & a for row, a in zip(seen[epoch], answers, strict=True))

    monkeypatch.setattr(InBatchTask, "begin_epoch", watch)
    train_encoder(beir, base=base, out=tmp_path / "out", epochs=3, depth=9, negatives="self,bm25", **QUICK)
    assert sorted(seen) == [0, 1, 2]
    assert seen[0].shape == (60, 9)
    assert (seen[0] != seen[1]).any() and (seen[1] != seen[2]).any()


def test_a_stopped_run_continues_with_the_same_negatives(beir, base, tmp_path, monkeypatch):
    from crosscut.train.vectors import InBatchTask

    settings = {"base": base, "epochs": 3, "eval_every": 5, "depth": 20, **QUICK}
    whole = train_encoder(beir, out=tmp_path / "whole", **settings)
    losses, loss = [], InBatchTask.loss

    def stop_once(task, *given):
        losses.append(0)
        if len(losses) == 12:  # in the middle of an epoch, which has 8 steps
            os.kill(os.getpid(), signal.SIGINT)
        return loss(task, *given)

    monkeypatch.setattr(InBatchTask, "loss", stop_once)
    with pytest.raises(KeyboardInterrupt):
        train_encoder(beir, out=tmp_path / "parts", **settings)
    parts = train_encoder(beir, out=tmp_path / "parts", **settings)
    assert len(losses) == 24
    assert parts["figures"] == whole["figures"]
    vectors = [as_encoder(tmp_path / name).encode(TEXTS) for name in ("whole", "parts")]
    np.testing.assert_allclose(*vectors, atol=1e-4)


def test_mentions(worlds, base, tmp_path):
    train_encoder(worlds, base=base, out=tmp_path / "out", steps=4, max_length=16, **QUICK)
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert model.max_seq_length == 16
    assert model.tokenizer.tokenize("[M_s] cat [M_e]") == ["[M_s]", "cat", "[M_e]"]


def test_a_base_with_the_weights_of_another_model(beir, base, trained, tmp_path):
    for number, source in enumerate((base, trained[0])):  # a plain model, and one of sentence-transformers
        folder = tmp_path / f"base-{number}"
        shutil.copytree(source, folder)
        config = json.loads((folder / "config.json").read_text())
        more = {"num_hidden_layers": config["num_hidden_layers"] + 1}
        (folder / "config.json").write_text(json.dumps(config | more))
        with pytest.raises(CrosscutError, match="lacks 16 of the weights"):
            train_encoder(beir, base=folder, out=tmp_path / "out", steps=2, **QUICK)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": 0}, "scale must be above 0"),
        (
            {"negatives": "mine"},
            "items come from self, random, bm25, tfidf, encoder:MODEL or run:FILE, not from 'mine'",
        ),
        ({"negative_count": 99}, "has only 71 items that do not answer it, but 99 are asked for"),
        ({"max_length": 99}, "max_length 99 does not suit"),
        ({"base": "./no/such/model"}, "there is no model folder"),
    ],
)
def test_bad_arguments(beir, base, tmp_path, arguments, message):
    given = {**QUICK, "base": base, "out": tmp_path / "model", "steps": 1, **arguments}
    with pytest.raises(CrosscutError, match=message):
        train_encoder(beir, **given)
    assert not (tmp_path / "model").exists()
