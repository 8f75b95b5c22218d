"""Tiny students learn from scores: bi-encoders with both losses, cross-encoders by regression."""

import json
import os
import signal

import numpy as np
import pytest
import tiny_data

from crosscut.cli import main
from crosscut.data import write_beir, write_blink
from crosscut.encoders import as_encoder
from crosscut.errors import CrosscutError
from crosscut.scorers import as_scorer
from crosscut.train import distil, train_cross_encoder, train_encoder
from crosscut.train.mining import finder, first_items, mine
from crosscut.train.settings import Settings
from crosscut.train.splits import read_splits
from crosscut.train.teacher import as_teacher, ask

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.models

QUICK = {"learning_rate": 3e-3, "batch_size": 8, "device": "cpu", "weight_decay": 0.0, "eval_every": 20}


class Teacher:
    """Likes the same animal, then the same place, then some items more than others; counts what it is asked."""

    def __init__(self, shift=0.0):
        self.calls, self.shift = 0, shift

    def __call__(self, query, texts):
        self.calls += len(texts)
        return [self.score(query.split(), text.split()) + self.shift for text in texts]

    def score(self, query, text):
        rank = tiny_data.ANIMALS.index(text[1]) + 12 * tiny_data.PLACES.index(text[-1])
        return 4.0 * (text[1] in query) + 2.0 * (text[-1] in query) + rank / 36 - 3


def losses_fall(report, by):
    losses = [loss for _, loss in report["losses"]]
    return losses[-1] < by * losses[0]


@pytest.mark.parametrize(
    ("loss", "options", "fall"),
    [
        ("match", {"candidates": "all", "depth": 40}, 0.6),
        ("match", {"depth": 40}, 0.6),
        ("pair", {"candidates": "all", "top": 10}, 1.0),  # its pairs grow harder as it learns
    ],
)
def test_a_bi_encoder_learns_what_the_teacher_ranks_first(beir, base, tmp_path, loss, options, fall):
    teacher, out = Teacher(), tmp_path / "student"
    report = distil(beir, teacher=teacher, base=base, out=out, loss=loss, epochs=10, **options, **QUICK)
    assert losses_fall(report, fall)
    recalls = [recall for _, recall in report["evaluations"]]
    assert report["figures"]["recall@10"] == max(recalls)
    assert teacher.calls == 72 * (72 if "candidates" in options else 40)
    assert len({path.name for path in out.iterdir()} & {"modules.json", "1_Pooling", "2_Normalize"}) == 3
    assert found(as_encoder(out)) > found(as_encoder(base)) + 0.1
    assert json.loads((out / "training.json").read_text())["arguments"]["loss"] == loss


def found(encoder):
    """Top-10-recall of the teacher's first items."""
    queries, items = ([entry.text for entry in entries] for entries in (tiny_data.queries(), tiny_data.items()))
    scores = encoder.encode(queries, "query") @ encoder.encode(items, "item").T
    wanted = np.array([Teacher()(query, items) for query in queries])
    best, right = (np.argsort(-table, axis=1)[:, :10] for table in (scores, wanted))
    return np.mean([np.isin(a, b).mean() for a, b in zip(right, best, strict=True)])


@pytest.mark.parametrize(("head", "epochs", "likeness"), [("cls", 16, 0.2), ("emb", 10, 0.0)])
def test_a_cross_encoder_learns_the_mean_of_two_teachers(beir, base, tmp_path, head, epochs, likeness):
    teachers, out = [Teacher(), Teacher(shift=4.0)], tmp_path / "student"
    report = distil(
        beir, teacher=teachers, base=base, out=out, loss="mse", depth=40, head=head, epochs=epochs, **QUICK
    )
    assert losses_fall(report, 0.7)
    assert report["figures"]["mse"] == min(mse for _, mse in report["evaluations"]) < 4
    pairs = [(query.text, item.text) for query in tiny_data.queries()[:20] for item in tiny_data.items()[::7]]
    expected = np.array([np.mean([teacher(query, [item])[0] for teacher in teachers]) for query, item in pairs])
    scores = as_scorer(out, device="cpu").score(pairs)
    assert abs(scores.mean() - expected.mean()) < 1
    assert np.corrcoef(scores, expected)[0, 1] > likeness


def test_an_encoder_teaches_its_cosines(beir, base, tmp_path, monkeypatch):
    examples, _ = read_splits(beir, Settings())
    teacher, asked = as_teacher(f"encoder:{base}", "cpu", scale=7), []
    encoder = as_encoder(base)
    vectors = encoder.encode(examples.queries, "query") @ encoder.encode(examples.items, "item").T
    encode = type(encoder).encode
    monkeypatch.setattr(type(encoder), "encode", lambda *given: asked.extend(given[1]) or encode(*given))
    rng = np.random.default_rng(0)
    for _ in range(5):
        queries, items = rng.integers(len(examples), size=200), rng.integers(len(examples.items), size=200)
        scores = teacher.scores(examples, queries, items)
        np.testing.assert_allclose(scores, 7 * vectors[queries, items], atol=0.02)  # kept in half precision
    assert len(asked) <= len(examples) + len(examples.items), "each text is encoded once"


def test_a_cross_encoder_learns_from_a_cross_encoder_and_a_bi_encoder(beir, base, tmp_path):
    out = tmp_path / "student"
    common = {"base": base, "loss": "mse", "depth": 40, "epochs": 16, **QUICK}
    report = distil(beir, teacher=[Teacher(), f"encoder:{base}"], out=out, scale=10, **common)
    assert losses_fall(report, 0.7)
    pairs = [(query.text, item.text) for query in tiny_data.queries()[:20] for item in tiny_data.items()[::7]]
    sides = (as_encoder(base).encode(list(texts)) for texts in zip(*pairs, strict=True))
    cosines = np.einsum("nd,nd->n", *sides)
    expected = (np.array([Teacher()(query, [item])[0] for query, item in pairs]) + 10 * cosines) / 2
    scores = as_scorer(out, device="cpu").score(pairs)
    assert abs(scores.mean() - expected.mean()) < 1
    record = json.loads((out / "training.json").read_text())["arguments"]
    assert record["teacher"] == ["Teacher", f"encoder:{base.name}"] and record["scale"] == 10


def test_the_losses_are_those_of_the_paper(beir, base):
    """On numbers that one can follow: two queries, three items."""
    from crosscut.train.students import MatchTask, PairwiseTask

    vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.0], [0.0, 1.0]])
    places, teacher = torch.tensor([[0, 1], [2, 1]]), torch.tensor([[1.0, 2.0], [0.0, 3.0]])
    batch = {"places": places, "target": teacher, "there": torch.ones(2, 2, dtype=torch.bool)}
    student = torch.tensor([[0.6, 1.0], [1.0, 0.0]]) * 2.0
    match, pair = object.__new__(MatchTask), object.__new__(PairwiseTask)
    match.scale = pair.scale = 2.0
    expected = -(teacher.softmax(1) * student.log_softmax(1)).sum(1).mean()
    assert match.loss(vectors, batch).item() == pytest.approx(expected.item(), abs=1e-6)
    # H([0, 1], softmax([negative, positive])), of the first item with the second.
    both = torch.stack([student[:, 1], student[:, 0]], dim=1)
    expected = -both.log_softmax(1)[:, 1].mean()
    assert pair.loss(vectors, batch).item() == pytest.approx(expected.item(), abs=1e-6)


def test_queries_with_few_items_count_for_what_they_have():
    from crosscut.train.students import MatchTask, PairwiseTask

    vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.0], [0.0, 1.0]])
    both, one = torch.tensor([True, True]), torch.tensor([True, False])
    whole = {"places": torch.tensor([[0, 1], [2, 1]]), "target": torch.tensor([[1.0, 2.0], [0.0, 3.0]])}
    match, pair = object.__new__(MatchTask), object.__new__(PairwiseTask)
    match.scale = pair.scale = 2.0
    first = {name: part[:1] for name, part in whole.items()} | {"there": both[None]}
    alone = match.loss(vectors[[0, 2, 3, 4]], first)
    # Of one item the softmax is 1, and nothing can be learned; the other query's loss is as it was.
    loss = match.loss(vectors, whole | {"there": torch.stack([both, one])})
    assert loss.item() == pytest.approx(alone.item() / 2, abs=1e-6)
    expected = pair.loss(vectors[[0, 2, 3, 4]], first)
    some = pair.loss(vectors, whole | {"there": torch.stack([both, ~both])})
    assert some.item() == pytest.approx(expected.item(), abs=1e-6)
    assert pair.loss(vectors, whole | {"there": torch.stack([~both, ~both])}).item() == 0.0


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """A world of 72 entities, and one of 4."""
    folder = tmp_path_factory.mktemp("uneven")
    (folder / "entities").mkdir(), (folder / "mentions").mkdir()
    for world, items in (("large", tiny_data.items()), ("small", tiny_data.items()[:4])):
        lines = [{"_id": item.id, "title": item.id.split("-")[0], "text": item.text} for item in items]
        (folder / "entities" / f"{world}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    mentions = tiny_data.mentions("large", tiny_data.ANIMALS) + tiny_data.mentions("small", ["whale"])[:4]
    write_blink(folder / "mentions" / "train.jsonl", mentions)
    return folder


class Lengths:
    def __call__(self, query, texts):
        return [float(len(text) % 7 + len(query) % 3) for text in texts]


@pytest.mark.parametrize(("loss", "top"), [("match", None), ("pair", 10), ("pair", 3), ("mse", None)])
def test_a_small_world_does_not_starve_the_others(uneven, base, tmp_path, monkeypatch, loss, top):
    from crosscut.train import students

    task = {"match": students.MatchTask, "pair": students.PairwiseTask, "mse": students.RegressionTask}[loss]
    widths, collate = [], task.collate

    def watch(self, rows):
        widths.extend((row.items >= 0).sum() for row in rows)
        return collate(self, rows)

    monkeypatch.setattr(task, "collate", watch)
    given = {"teacher": Lengths(), "base": base, "out": tmp_path / "out", "candidates": "all", "top": top}
    report = distil(uneven, loss=loss, depth=30, epochs=2, **given, **QUICK)
    assert np.isfinite([loss for _, loss in report["losses"]]).all()
    assert max(widths) == {"match": 30, "mse": 16}.get(loss, 2 * (top or 0))
    # The four of the small world: all items, or no pair, or three of the teacher's and again and again the other.
    assert min(widths) == {"match": 4, "mse": 4}.get(loss, 0 if top == 10 else 6)


def test_pairs_need_items_that_are_not_the_teachers_first(beir, base, tmp_path):
    with pytest.raises(CrosscutError, match=r"no query has more than 72 items, .* lower top"):
        distil(
            beir, teacher=Teacher(), base=base, out=tmp_path / "o", loss="pair", top=72, depth=72, steps=1, **QUICK
        )
    assert not (tmp_path / "o").exists()


def test_queries_need_no_labels(beir, base, tmp_path):
    folder, queries = tmp_path / "data", tiny_data.queries()
    judged = {"test": {query.id: {"cat-sea": 1} for query in queries[:12]}}
    write_beir(folder, tiny_data.items(), queries, judged)
    teacher = Teacher()
    report = distil(folder, teacher=teacher, base=base, out=tmp_path / "a", depth=10, epochs=1, **QUICK)
    assert teacher.calls == 60 * 10  # neither the queries of the split test, nor those set apart twice
    assert report["steps"] == 7
    # With a file of the split it is the queries that this names, relevant or not.
    write_beir(folder, tiny_data.items(), queries, {"train": {query.id: {"cat-sea": 0} for query in queries[20:]}})
    teacher = Teacher()
    distil(folder, teacher=teacher, base=base, out=tmp_path / "b", depth=10, epochs=1, **QUICK)
    assert teacher.calls == 52 * 10
    with pytest.raises(CrosscutError, match="no query has an item that answers it"):
        train_encoder(folder, base=base, out=tmp_path / "c", **QUICK)
    with pytest.raises(CrosscutError, match="has no split 'trian'"):
        distil(folder, teacher=teacher, base=base, out=tmp_path / "c", split="trian", **QUICK)


def test_another_learning_rate_does_not_ask_the_teacher_again(beir, base, tmp_path, monkeypatch):
    from crosscut.scorers.transformer import TransformerScorer

    train_cross_encoder(beir, base=base, out=tmp_path / "teacher", steps=2, negative_count=7, **QUICK)
    asked, score = [], TransformerScorer._score

    def watch(self, pairs):
        asked.append(len(pairs))
        return score(self, pairs)

    monkeypatch.setattr(TransformerScorer, "_score", watch)
    given = {"teacher": tmp_path / "teacher", "base": base, "out": tmp_path / "out", "depth": 10, "steps": 4}
    given |= {"loss": "mse", **QUICK}
    with monkeypatch.context() as patch:
        patch.setattr("crosscut.train.folder.finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            distil(beir, **given)
    assert sum(asked) == 72 * 10
    with pytest.raises(CrosscutError, match="differs in: learning_rate"):
        distil(beir, **(given | {"learning_rate": 1e-3}))
    report = distil(beir, overwrite=True, **(given | {"learning_rate": 1e-3}))
    assert sum(asked) == 72 * 10
    assert report["steps"] == 4 and not (tmp_path / "out" / "checkpoints").exists()
    distil(beir, overwrite=True, **(given | {"depth": 11}))
    assert sum(asked) == 72 * (10 + 11)


def test_pairs_are_of_the_teachers_first_and_others(beir, base, tmp_path, monkeypatch):
    from crosscut.train.students import PairwiseTask

    seen, begin_epoch = [], PairwiseTask.begin_epoch

    def watch(task, epoch, spread):
        begin_epoch(task, epoch, spread)
        seen.append(np.stack([task.rows[query].items for query in range(len(task.rows))]))

    monkeypatch.setattr(PairwiseTask, "begin_epoch", watch)
    distil(
        beir,
        teacher=Teacher(),
        base=base,
        out=tmp_path / "o",
        loss="pair",
        candidates="all",
        top=7,
        epochs=2,
        **QUICK,
    )
    assert len(seen) == 2
    assert (seen[0][:, :7] == seen[1][:, :7]).all()
    assert (seen[0][:, 7:] != seen[1][:, 7:]).any()
    for row in np.concatenate(seen):
        assert len(set(row.tolist())) == 14


def test_a_stopped_run_does_not_ask_again(beir, base, tmp_path, monkeypatch):
    from crosscut.train.students import RegressionTask

    losses, loss = [], RegressionTask.loss

    def stop_once(task, *given):
        losses.append(0)
        if len(losses) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(task, *given)

    monkeypatch.setattr(RegressionTask, "loss", stop_once)
    first, second = Teacher(), Teacher()
    settings = {"base": base, "out": tmp_path / "out", "loss": "mse", "depth": 20, "epochs": 2, **QUICK}
    with pytest.raises(KeyboardInterrupt):
        distil(beir, teacher=as_scorer(first, name="teacher"), **settings)
    distil(beir, teacher=as_scorer(second, name="teacher"), **settings)
    assert first.calls == 72 * 20
    assert second.calls == 0
    assert len(losses) == 16


def test_a_matrix_teaches_the_queries_that_it_knows(beir, base, tmp_path):
    queries, items = tiny_data.queries()[:40], tiny_data.items()[::-1]
    scores = np.array([Teacher()(query.text, [item.text for item in items]) for query in queries], np.float32)
    ids = {"query_ids": [query.id for query in queries], "item_ids": [item.id for item in items]}
    np.savez(tmp_path / "m.npz", scores=scores, anchors=10, **ids)
    report = distil(
        beir, teacher=tmp_path / "m.npz", base=base, out=tmp_path / "out", candidates="all", epochs=5, **QUICK
    )
    assert losses_fall(report, 0.9)
    assert report["steps"] == 5 * 5  # 33 queries of the matrix are in the split, 8 a step
    np.savez(tmp_path / "m.npz", scores=scores[:, :9], anchors=10, **(ids | {"item_ids": ids["item_ids"][:9]}))
    with pytest.raises(CrosscutError, match="it is of another data set"):
        distil(beir, teacher=tmp_path / "m.npz", base=base, out=tmp_path / "b", candidates="all", **QUICK)
    np.savez(tmp_path / "m.npz", scores=scores, anchors=10, **(ids | {"query_ids": list("abcdefghij" * 4)}))
    with pytest.raises(CrosscutError, match="no query of the split 'train' is in the teacher's score matrix"):
        distil(beir, teacher=tmp_path / "m.npz", base=base, out=tmp_path / "b", candidates="all", **QUICK)
    assert not (tmp_path / "b").exists()


def test_teachers_are_asked_in_blocks_and_never_twice(beir, tmp_path):
    examples, _ = read_splits(beir, Settings())
    asked = []

    def teacher(query, texts):
        asked.append(query)
        return [float(len(text)) for text in texts]

    candidates = first_items(examples, ["bm25"], depth=7, seed=0)
    candidates[3, 2:] = -1
    reference = ask([as_teacher(teacher)], examples, candidates, 5, tmp_path / "whole")
    assert (reference.items[3] >= 0).tolist() == [True, True, False, False, False]
    assert (np.diff(reference.scores[:3], axis=1) <= 0).all()
    small = as_teacher(teacher)
    small.pairs = 40
    parts = ask([small], examples, candidates, 5, tmp_path / "parts")
    files = sorted(tmp_path.glob("parts-*/*"))
    assert len(files) == 12
    # Some are lost, and the machine that goes on takes larger blocks.
    for file in files[2:5]:
        file.unlink()
    asked.clear()
    again = ask([as_teacher(teacher)], examples, candidates, 5, tmp_path / "parts")
    assert len(set(asked)) == 15
    for made in (parts, again):
        np.testing.assert_array_equal(made.items, reference.items)
        np.testing.assert_array_equal(made.scores, reference.scores)


def test_a_bi_encoder_learns_the_vectors_of_another(beir, base, tmp_path):
    teacher = tmp_path / "teacher"
    train_encoder(beir, base=base, out=teacher, epochs=4, **QUICK)
    other = tiny_data.save_base(tmp_path / "other", seed=1)
    out = tmp_path / "student"
    report = distil(
        beir, teacher=teacher, base=other, out=out, loss="vectors", epochs=12, **(QUICK | {"batch_size": 32})
    )
    assert report["steps"] == 12 * 5  # 60 queries and 72 items, 32 a step
    assert losses_fall(report, 0.5)
    assert set(report["figures"]) == {"recall@1", "recall@10", "cosine"}
    assert report["figures"]["recall@10"] == max(recall for _, recall in report["evaluations"])
    texts = [item.text for item in tiny_data.items()]
    vectors = {name: as_encoder(name).encode(texts) for name in (teacher, other, out)}
    before, after = ((vectors[teacher] * vectors[name]).sum(axis=1).mean() for name in (other, out))
    assert after > before + 0.3
    assert report["figures"]["cosine"] > 0.4


def test_each_process_has_its_own_device(monkeypatch):
    assert Settings().own_device is None
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert Settings().own_device is None  # there is no GPU here
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert Settings().own_device == Settings(device="cuda").own_device == "cuda:2"
    assert Settings(device="cpu").own_device == "cpu"


def test_a_teacher_runs_where_the_student_does(beir, base, tmp_path, monkeypatch):
    from crosscut.scorers import torch_models

    train_cross_encoder(beir, base=base, out=tmp_path / "teacher", steps=1, negative_count=7, **QUICK)
    asked, pick = [], torch_models.pick_device
    monkeypatch.setattr(torch_models, "pick_device", lambda device: asked.append(device) or pick(device))
    as_teacher(tmp_path / "teacher", "cpu")
    as_teacher(Teacher(), "cpu")  # a function runs where it likes
    given = ["--base", str(base), "--out", str(tmp_path / "out"), "--steps", "1", "--depth", "9", "--loss", "mse"]
    command = ["train", "distil", str(beir), "--teacher", str(tmp_path / "teacher"), *given, "--device", "cpu"]
    assert main(command) == 0
    assert asked == ["cpu", "cpu"]


def test_vectors_need_an_encoder_of_the_same_size(beir, base, tmp_path):
    given = {"base": base, "out": tmp_path / "out", "loss": "vectors", "steps": 1, **QUICK}
    wide = tiny_data.save_base(tmp_path / "wide", hidden_size=64)
    with pytest.raises(CrosscutError, match="have 64 dimensions and those of the student 32"):
        distil(beir, teacher=wide, **given)
    train_cross_encoder(beir, base=base, out=tmp_path / "cross", steps=1, negative_count=7, **QUICK)
    with pytest.raises(CrosscutError, match="is a cross-encoder, but the loss vectors learns from an encoder"):
        distil(beir, teacher=tmp_path / "cross", **given)
    with pytest.raises(CrosscutError, match="cannot encode with"):
        distil(beir, teacher=Teacher(), **given)
    with pytest.raises(CrosscutError, match="learns from one teacher, but there are 2"):
        distil(beir, teacher=[base, base], **given)
    for name, value in {"candidates": "all", "depth": 9, "top": 3, "sample": 2, "scale": 5.0}.items():
        with pytest.raises(CrosscutError, match=f"{name} cannot be set with the loss vectors"):
            distil(beir, teacher=base, **given, **{name: value})
    assert not (tmp_path / "out").exists()


def test_a_stopped_run_does_not_encode_again(beir, base, tmp_path, monkeypatch):
    from crosscut.encoders import Encoder
    from crosscut.train.imitation import ImitationTask

    class Letters(Encoder):
        texts = 0

        def _encode(self, texts, role):
            Letters.texts += len(texts)
            return [[text.count(letter) + 0.1 for letter in "abcdefghijklmnopqrstuvwxyz ?.,!-"] for text in texts]

    losses, loss = [], ImitationTask.loss

    def stop_once(task, *given):
        losses.append(0)
        if len(losses) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(task, *given)

    monkeypatch.setattr(ImitationTask, "loss", stop_once)
    given = {"base": base, "out": tmp_path / "out", "loss": "vectors", "epochs": 1, **QUICK}
    with pytest.raises(KeyboardInterrupt):
        distil(beir, teacher=Letters(), **given)
    assert Letters.texts == 60 + 72 + 12 + 1
    distil(beir, teacher=Letters(), **given)
    assert Letters.texts == 60 + 72 + 12 + 2
    assert len(losses) == 17


def test_from_the_shell_with_a_trained_teacher(beir, base, tmp_path, capsys):
    teacher, out = tmp_path / "teacher", tmp_path / "student"
    train_cross_encoder(beir, base=base, out=teacher, steps=2, negative_count=7, **QUICK)
    command = ["train", "distil", str(beir), "--teacher", str(teacher), "--scorer-option", "device=cpu"]
    command += ["--base", str(base), "--out", str(out), "--loss", "mse", "--depth", "10", "--steps", "2"]
    assert main([*command, "--device", "cpu", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["figures"]) == {"mse", "same_first"}
    assert main([*command, "--device", "cpu", "--loss", "guess", "--overwrite"]) == 2
    assert "there is no loss 'guess': use match, pair or vectors" in capsys.readouterr().err
    assert (out / "model.safetensors").exists(), "a wrong argument does not cost the old model"
    assert main([*command, "--device", "cpu", "--teacher", f"encoder:{base}", "--overwrite"]) == 0
    assert len(json.loads((out / "training.json").read_text())["arguments"]["teacher"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "guess"}, "there is no loss 'guess'"),
        ({"head": "tail", "loss": "mse"}, "there is no head 'tail'"),
        ({"head": "emb"}, "are for a cross-encoder: match trains an encoder"),
        (
            {"candidates": "none"},
            "items come from all, random, bm25, tfidf, encoder:MODEL or run:FILE, not from 'none'",
        ),
        ({"candidates": "all,bm25"}, "candidates are all items, or come from other sources, not both"),
        ({"teacher": []}, "there is no teacher"),
        ({"teacher": "no.npz"}, "there is no file no.npz"),
        ({"teacher": "encoder:./no/such"}, "there is no model folder ./no/such"),
        ({"teacher": lambda query, texts: [float("nan")] * len(texts)}, "not a finite number"),
    ],
)
def test_bad_arguments(beir, base, tmp_path, arguments, message):
    given = {"teacher": Teacher(), "base": base, "out": tmp_path / "model", "steps": 1, "depth": 10}
    with pytest.raises(CrosscutError, match=message):
        distil(beir, **{**QUICK, **given, **arguments})
    assert not (tmp_path / "model").exists()


def test_the_teacher_is_asked_about_the_first_items_whatever_the_labels_say(beir):
    examples, _ = read_splits(beir, Settings())
    first = first_items(examples, ["bm25"], depth=9, seed=0)
    ranked = mine(examples, finder("bm25"), depth=9, answers_too=True)
    np.testing.assert_array_equal(first, ranked)
    both = first_items(examples, ["bm25", "random"], depth=9, seed=0)
    np.testing.assert_array_equal(both[:, 0], ranked[:, 0])
    assert all(
        len(set(row)) == 9 and len(set(row) & set(best[:5])) >= 5 for row, best in zip(both, ranked, strict=True)
    )
    np.testing.assert_array_equal(both, first_items(examples, ["bm25", "random"], depth=9, seed=0))
    whole = first_items(examples, ["bm25", "random"], depth=99, seed=0)
    assert {len(set(row[row >= 0])) for row in whole} == {len(examples.pools[0])}
