"""Every kind of compare model learns; what is trained is what is loaded; a killed run goes on; bad input."""

import inspect
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import tiny_data

from crosscut.cli import main
from crosscut.compare import KINDS, as_comparer
from crosscut.errors import CrosscutError
from crosscut.train import train_compare
from crosscut.train.candidates import Drawn, FirstStage, Sampled
from crosscut.train.data import Examples
from crosscut.types import Item, Query

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.models

QUICK = {"learning_rate": 3e-3, "layer_rate": 3e-3, "batch_size": 8, "device": "cpu", "weight_decay": 0.0}
SMALL = {"candidates": 16, "depth": 32, **QUICK}
TEXTS = [item.text for item in tiny_data.items()]
QUERIES = [query.text for query in tiny_data.queries()]


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_learns(kind, beir, base, tmp_path):
    # A base that knows nothing is nothing to hold on to.
    training = {"epochs": 5, "regularise_weight": 0.1, **SMALL}
    report = train_compare(beir, base=base, out=tmp_path / "out", model=kind, **training)
    losses = [loss for _, loss in report["losses"]]
    assert np.mean(losses[-5:]) < 0.75 * np.mean(losses[:5])
    figures = report["figures"]
    assert figures["mrr"] == max(value for _, value in report["evaluations"])
    assert figures["accuracy"] <= figures["mrr"] <= figures["found"] <= 1
    assert figures["normalised"] == pytest.approx(figures["accuracy"] / figures["found"])
    comparer = as_comparer(tmp_path / "out", device="cpu")
    assert comparer.kind == kind
    if kind != "deformer":  # it begins without any knowledge of what a score is
        assert first(comparer) > first(as_comparer(base, device="cpu")) + 0.3
    card = (tmp_path / "out" / "README.md").read_text()
    assert "as_comparer" in card and "| normalised |" in card


def first(comparer):
    """How many queries have their item first, of all items."""
    items = comparer.encode_items(TEXTS)
    scores = comparer.score(comparer.encode_queries(QUERIES), [items] * len(QUERIES))
    return np.mean([row.argmax() == place for place, row in enumerate(scores)])


@pytest.mark.parametrize(
    ("kind", "is_fixed"),
    [(kind, is_fixed) for kind in ("cmc", "sum-of-max", "mix") for is_fixed in (False, True)]
    + [("deformer", True)],
)
def test_scores_in_training_are_those_of_the_saved_model(kind, is_fixed, beir, base, tmp_path):
    """Also for queries with fewer candidates than others, and items that several queries share."""
    from crosscut.compare.base import ItemVectors
    from crosscut.compare.comparer import ModelComparer, save
    from crosscut.compare.registry import model_class
    from crosscut.compare.text_encoder import TextEncoder
    from crosscut.train.compare_task import CompareTask
    from crosscut.train.negatives import Row
    from crosscut.train.splits import read_examples
    from crosscut.train.vectors import load_base

    torch.manual_seed(0)
    encoders = [TextEncoder(load_base(base, (), 7, 0)) for _ in range(1 + is_fixed)]
    model = model_class(kind)(*encoders)
    for value in model.own_state().values():
        torch.nn.init.normal_(value, std=0.3)
    examples = read_examples(beir, "dev")
    more = {"regularise": "none", "weight": 0.0, "layer_rate": 1.0, "eval_batch": 2}
    if is_fixed:
        encoders[1].requires_grad_(False).inner.get_input_embeddings().weight.mul_(1.5)  # queries have learned
        rows = ModelComparer(model, device="cpu").encode_items(examples.items)
        more["fixed"] = (ItemVectors.single(np.zeros_like(rows.rows[: len(rows)])), rows)
    task = CompareTask(model.eval(), None, read_examples(beir, "dev"), None, examples, **more)
    table = [[3, 9, 4, 60, 71], [9, 3, 8, -1, -1], [5, -1, -1, -1, -1]]
    with torch.no_grad():
        made = task.scores([Row(query, np.array(items)) for query, items in enumerate(table)])
    save(model, tmp_path / "model")
    comparer = as_comparer(tmp_path / "model", device="cpu")
    items = comparer.encode_items(examples.items)
    lists = [[item for item in items if item >= 0] for items in table]
    queries = comparer.encode_queries(examples.queries[:3])
    for row, scores in zip(made, comparer.score(queries, [items.take(some) for some in lists]), strict=True):
        np.testing.assert_allclose(row[: len(scores)], scores, atol=0.02)
        assert np.isneginf(row[len(scores) :]).all()


def test_the_loss():
    """λ1 · cross-entropy + λ2 · KL, by hand, with a query that has a candidate less."""
    from crosscut.train.compare_task import CompareTask

    scores, stage = np.array([[1.0, 2.0, 0.5], [0.0, 1.0, 9.0]]), np.array([[3.0, 0.0, 1.0], [2.0, 2.0, 9.0]])
    there = np.array([[True, True, True], [True, True, False]])
    batch = {"inputs": {"there": torch.tensor(there)}, "first_stage": torch.tensor(stage)}
    parts = []
    for own, first_stage, kept in zip(scores, stage, there, strict=True):
        p, r = (np.exp(values[kept]) / np.exp(values[kept]).sum() for values in (own, first_stage))
        parts.append((-np.log(p[0]), (p * np.log(p / r)).sum(), (r * np.log(r / p)).sum()))
    entropy, paper, reverse = np.mean(parts, axis=0)
    task = CompareTask.__new__(CompareTask)
    for name, weight, expected in (
        ("paper", 0.3, 0.7 * entropy + 0.3 * paper),
        ("reverse", 0.3, 0.7 * entropy + 0.3 * reverse),
        ("none", 0.3, entropy),
        ("paper", 0.0, entropy),
    ):
        task.regularise, task.weight = name, weight
        output = torch.tensor(scores, requires_grad=True)
        loss = task.loss(output, batch)
        assert loss.item() == pytest.approx(expected)
        loss.backward()
        assert torch.isfinite(output.grad).all() and output.grad[1, 2] == 0


def examples_of(count):
    items = [Item(str(n), f"text {n}") for n in range(count)]
    return Examples.of([Query("q", "text 0")], items, {"q": {"0": 1}})


def test_candidates_are_drawn_by_the_softmax_of_the_first_stage():
    angles = np.linspace(0, 1.2, 21)
    stage = FirstStage(np.array([[1.0, 0.0]]), np.stack([np.cos(angles), np.sin(angles)], axis=1), 20.0)
    rows = Sampled(examples_of(21), stage, np.arange(1, 21)[None], count=6, top_share=0.4, seed=0)
    counts = np.zeros(21)
    for epoch in range(3000):
        rows.epoch = epoch
        row = rows[0]
        assert row.items[:3].tolist() == [0, 1, 2]  # the answer, and two of five that are always the first
        assert len(set(row.items.tolist())) == 6
        np.testing.assert_allclose(row.scores, 20 * np.cos(angles[row.items]), rtol=1e-5)
        counts[row.items[3:]] += 1
    rest = np.exp(20 * np.cos(angles[3:]))
    one = rest / rest.sum()
    # The first of a sample without replacement follows the softmax; all three follow its order.
    assert (np.diff(counts[3:12]) < 0).all() and counts[3] > 3000 * one[0]
    again = Sampled(examples_of(21), stage, np.arange(1, 21)[None], count=6, top_share=0.4, seed=0)
    again.epoch = 2999
    np.testing.assert_array_equal(again[0].items, row.items)


def test_a_short_ranking_gives_fewer_candidates():
    stage = FirstStage(np.ones((1, 1)), np.ones((4, 1)), 1.0)
    row = Sampled(examples_of(4), stage, np.array([[2, 3, -1, -1]]), count=6, top_share=0.5, seed=0)[0]
    assert row.items.tolist() == [0, 2, 3, -1, -1, -1] and row.scores.tolist() == [1, 1, 1, 0, 0, 0]
    with pytest.raises(CrosscutError, match="has only 3 items that do not answer it"):
        Drawn(examples_of(4), None, count=6, seed=0)


def test_pools_that_are_smaller_than_the_number_of_candidates(worlds, base, tmp_path):
    """A world has 36 entities."""
    report = train_compare(worlds, base=base, out=tmp_path / "out", steps=3, candidates=64, eval_every=3, **QUICK)
    assert report["figures"]["found"] == 1.0


def test_two_encoders_and_settings(beir, base, tmp_path):
    asked = {"model_settings": {"skip": "mean", "layers": 1, "marks": True}, "two_encoders": True}
    train_compare(beir, base=base, out=tmp_path / "out", steps=6, max_length=8, **asked, **SMALL)
    about = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert about["settings"] == {"layers": 1, "heads": 2, "skip": "mean", "marks": True}
    comparer = as_comparer(tmp_path / "out", device="cpu")
    query, item = comparer.encode_queries(TEXTS[:1]).rows, comparer.encode_items(TEXTS[:1]).rows
    assert np.abs(query - item).max() > 0.05  # they began alike, and learned apart
    assert comparer.model.encoder("query").model.max_seq_length == 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_length", [None, 32])  # without one the vectors of the first stage are taken
def test_items_may_stay_as_the_base_makes_them(kind, max_length, beir, base, tmp_path):
    """Then an index of these stays as it is, and only queries are read in training."""
    asked = {
        "fixed_items": True,
        "epochs": 5,
        "max_length": max_length,
        "precision": "bf16",
    }  # a CPU takes it, too
    report = train_compare(beir, base=base, out=tmp_path / "out", model=kind, **asked, **SMALL)
    losses = [loss for _, loss in report["losses"]]
    assert np.mean(losses[-5:]) < 0.95 * np.mean(losses[:5])
    from crosscut.compare.comparer import ModelComparer
    from crosscut.compare.registry import model_class
    from crosscut.compare.text_encoder import TextEncoder

    comparer = as_comparer(tmp_path / "out", device="cpu")
    fresh = model_class(kind)(*(TextEncoder.load(base) for _ in range(2)), **comparer.model.settings)
    plain = ModelComparer(fresh, device="cpu")
    np.testing.assert_allclose(plain.encode_items(TEXTS).rows, comparer.encode_items(TEXTS).rows, atol=2e-3)
    assert np.abs(plain.encode_queries(TEXTS).rows - comparer.encode_queries(TEXTS).rows).max() > 0.05


@pytest.mark.parametrize(("kind", "settings"), [("sum-of-max", {"dim": 2}), ("mix", {"contexts": 2})])
def test_what_learns_rows_of_items_cannot_leave_them(kind, settings, beir, base, tmp_path):
    asked = {"model": kind, "model_settings": settings, "fixed_items": True, "steps": 1}
    with pytest.raises(CrosscutError, match=f"fixed_items does not go with {next(iter(settings))}"):
        train_compare(beir, base=base, out=tmp_path / "out", **asked, **SMALL)
    assert not (tmp_path / "out").exists()


def test_the_own_layers_learn_at_their_own_rate(beir, base, tmp_path, monkeypatch):
    from crosscut.train.trainer import TaskTrainer

    seen, create = [], TaskTrainer.create_optimizer

    def watch(trainer, *given):
        optimizer = create(trainer, *given)
        seen.extend((group["lr"], len(group["params"])) for group in optimizer.param_groups)
        names = {id(value): name for name, value in trainer.model.named_parameters()}
        for group in optimizer.param_groups:
            own = [not names[id(value)].startswith("model.encoders.") for value in group["params"]]
            assert all(own) if group["lr"] == 0.5 else not any(own)
        return optimizer

    monkeypatch.setattr(TaskTrainer, "create_optimizer", watch)
    train_compare(beir, base=base, out=tmp_path / "out", steps=1, **(SMALL | {"layer_rate": 0.5}))
    assert {rate for rate, _ in seen} == {3e-3, 0.5}


def test_a_fresh_model_is_near_the_first_stage(beir, base, tmp_path, monkeypatch):
    """Before the first step the KL to the softmax of the base is small, and the figures are those of the base."""
    from crosscut.train.compare_task import CompareTask

    seen, loss = [], CompareTask.loss

    def watch(task, output, batch):
        if not seen:
            p, r = output.softmax(dim=1), batch["first_stage"].softmax(dim=1)
            seen.append((p * (p / r).log()).sum(dim=1).mean().item())
        return loss(task, output, batch)

    monkeypatch.setattr(CompareTask, "loss", watch)
    more = SMALL | {"scale": 32**0.5}
    train_compare(beir, base=base, out=tmp_path / "out", steps=1, **more)
    assert seen[0] < 0.02


def test_random_negatives_and_dialogues(base, tmp_path):
    """No ranking, and no regularisation: then no first stage is asked."""
    data = tmp_path / "dialogues"
    data.mkdir()
    pairs = list(zip(QUERIES, TEXTS, strict=True))
    for split, some in (("train", pairs[:60]), ("dev", pairs[60:])):
        lines = [{"id": f"{split}-{n}", "context": q, "reply": i} for n, (q, i) in enumerate(some)]
        (data / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    more = {"negatives": "random", "candidates": 8, "epochs": 2, **QUICK}
    report = train_compare(data, base=base, out=tmp_path / "out", regularise="none", **more)
    record = json.loads((tmp_path / "out" / "training.json").read_text())["arguments"]
    assert report["figures"]["found"] == 1.0 and "first_stage" not in record
    train_compare(data, base=base, out=tmp_path / "more", **more)
    (data / "dev.jsonl").write_text('{"id": 1, "context": "a"}\n')
    with pytest.raises(CrosscutError, match=r'dev.jsonl.*no "reply"'):
        train_compare(data, base=base, out=tmp_path / "bad", **more)


def test_a_stopped_run_continues_with_the_same_candidates(beir, base, tmp_path, monkeypatch):
    from crosscut.train.compare_task import CompareTask

    settings = {"base": base, "epochs": 3, "eval_every": 5, **SMALL}
    whole = train_compare(beir, out=tmp_path / "whole", **settings)
    losses, loss = [], CompareTask.loss

    def stop_once(task, *given):
        losses.append(0)
        if len(losses) == 12:  # in the middle of an epoch, which has 8 steps
            os.kill(os.getpid(), signal.SIGINT)
        return loss(task, *given)

    monkeypatch.setattr(CompareTask, "loss", stop_once)
    with pytest.raises(KeyboardInterrupt):
        train_compare(beir, out=tmp_path / "parts", **settings)
    assert not (tmp_path / "parts" / "compare.json").exists()
    parts = train_compare(beir, out=tmp_path / "parts", **settings)
    assert len(losses) == 24 and parts["figures"] == whole["figures"]
    one, other = (as_comparer(tmp_path / name, device="cpu") for name in ("whole", "parts"))
    np.testing.assert_allclose(one.encode_queries(TEXTS).rows, other.encode_queries(TEXTS).rows, atol=1e-4)
    assert not list((tmp_path / "parts").glob("checkpoint*"))


def test_a_killed_process_continues(beir, base, tmp_path):
    """kill -9 in the middle of training, then the same command to the end."""
    command = [
        "train",
        "compare",
        str(beir),
        "--base",
        str(base),
        "--out",
        str(tmp_path / "out"),
        "--device",
        "cpu",
    ]
    command += ["--candidates", "8", "--depth", "16", "--epochs", "4", "--eval-every", "4", "--batch-size", "8"]
    script = """
import os, signal, sys
from crosscut.cli import main
from crosscut.train.compare_task import CompareTask
loss, count = CompareTask.loss, []
def kill(task, *given):
    count.append(0)
    if len(count) == 11:
        os.kill(os.getpid(), signal.SIGKILL)
    return loss(task, *given)
CompareTask.loss = kill
main(sys.argv[1:])
"""
    done = subprocess.run([sys.executable, "-c", script, *command], capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "out" / "checkpoints" / "checkpoint-8").is_dir()
    assert main(command) == 0
    assert as_comparer(tmp_path / "out", device="cpu").kind == "cmc"


def test_the_defaults_are_the_papers():
    defaults = {name: one.default for name, one in inspect.signature(train_compare).parameters.items()}
    expected = {"model": "cmc", "candidates": 64, "depth": 1024, "top_share": 0.5, "regularise": "paper"}
    assert {name: defaults[name] for name in expected} == expected


def test_the_command(beir, base, tmp_path, capsys):
    common = ["train", "compare", str(beir), "--base", str(base), "--device", "cpu", "--steps", "2", "--json"]
    common += ["--candidates", "8"]
    assert main([*common, "--model", "cmc", "--skip", "none", "--heads", "4", "--out", str(tmp_path / "a")]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
    assert json.loads((tmp_path / "a" / "compare.json").read_text())["settings"]["heads"] == 4
    for more, message in (
        (["--model", "poly", "--skip", "none"], "the compare model poly has no setting 'skip': it has codes"),
        (["--model", "cnc"], "there is no compare model 'cnc'"),
        (["--top-share", "2"], "top_share must be a share between 0 and 1"),
        (["--depth", "6"], "depth 6 has too few items for 8 candidates: it must be at least 7"),
        (["--regularise", "both"], "there is no regularise 'both'"),
        (["--negatives", "bm25"], "there is no negatives 'bm25'"),
        (["--layer-rate", "0"], "layer_rate must be above 0"),
        (["--first-stage", "./nowhere"], "there is no model folder ./nowhere"),
        (["--model", "deformer", "--lower", "7"], "lower must be below 2"),
        (["--max-length", "99"], "max_length 99 does not suit"),
    ):
        assert main([*common, *more, "--out", str(tmp_path / "b")]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "b").exists()
