"""A tiny cross-encoder learns, is an ordinary model afterwards, and survives being stopped."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tiny_data

from crosscut.cli import main
from crosscut.data import write_run
from crosscut.errors import CrosscutError
from crosscut.scorers import as_scorer
from crosscut.train import train_cross_encoder

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.models

QUICK = {"negative_count": 7, "learning_rate": 4e-3, "batch_size": 8, "device": "cpu", "weight_decay": 0.0}
PAIRS = [(query.text, item.text) for query in tiny_data.queries()[:9] for item in tiny_data.items()[:9]]


@pytest.fixture(scope="module", params=["cls", "emb"])
def trained(request, beir, base, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / request.param
    report = train_cross_encoder(beir, base=base, out=out, head=request.param, steps=100, licence="mit", **QUICK)
    return request.param, out, report


def test_the_loss_falls_and_the_best_is_kept(trained):
    _, out, report = trained
    losses = [loss for _, loss in report["losses"]]
    assert losses[-1] < 0.4 * losses[0]
    assert report["figures"]["accuracy"] >= 0.75
    best = max(accuracy for _, accuracy in report["evaluations"])
    assert report["figures"]["accuracy"] == best
    assert report["best_step"] == next(step for step, accuracy in report["evaluations"] if accuracy == best)
    assert json.loads((out / "training.json").read_text())["figures"] == report["figures"]


def test_the_folder_is_an_ordinary_one(trained):
    head, out, report = trained
    names = {path.name for path in out.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "training.json"} <= names
    assert not any("checkpoint" in name or name.endswith((".bin", ".pt", ".pth")) for name in names)
    card = (out / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\n") and f"| head | {head} |" in card
    assert f"| accuracy | {report['figures']['accuracy']:.4f} |" in card
    assert str(out) not in card


def test_it_scores_as_it_did_in_training(trained, beir, base):
    """The module that was trained, rebuilt around the saved weights, against the scorer and the library."""
    from crosscut.train import pairs
    from crosscut.train.negatives import Groups, Row
    from crosscut.train.splits import read_examples

    head, out, _ = trained
    scorer = as_scorer(out, device="cpu")
    scores = scorer.score(PAIRS)
    assert scores.std() > 0.5

    examples = read_examples(beir, "dev")
    task = pairs.PairTask(
        pairs.load_base(out, head, (), seed=1),
        rows=Groups(examples, [], 7, 0),
        train=examples,
        dev=Groups(examples, [], 7, 0),
        dev_examples=examples,
        query_tokens=None,
        item_tokens=None,
        max_length=None,
        eval_batch=4,
    )
    task.module.eval()
    rows = [Row(query, np.arange(9)) for query in range(5)]
    with torch.no_grad():
        trained_scores = task.scores(examples, rows)
    expected = scorer.score([(examples.queries[q], item) for q in range(5) for item in examples.items[:9]])
    np.testing.assert_allclose(trained_scores.ravel(), expected, atol=1e-4)


def test_what_is_saved_is_what_was_trained(beir, base, tmp_path, monkeypatch):
    """Scores of the model in memory when training ends, against those of the folder."""
    from crosscut.train import pairs
    from crosscut.train.negatives import Row

    seen, save = {}, pairs.PairTask.save

    def watch(task, folder):
        task.module.eval()
        with torch.no_grad():
            seen["scores"] = task.scores(task.train, [Row(query, np.arange(9)) for query in range(5)])
        seen["train"] = task.train
        save(task, folder)

    monkeypatch.setattr(pairs.PairTask, "save", watch)
    train_cross_encoder(beir, base=base, out=tmp_path / "out", steps=30, **QUICK)
    pairs_seen = [(seen["train"].queries[q], item) for q in range(5) for item in seen["train"].items[:9]]
    scores = as_scorer(tmp_path / "out", device="cpu").score(pairs_seen)
    assert scores.std() > 0.1
    np.testing.assert_allclose(seen["scores"].ravel(), scores, atol=1e-4)


def test_sentence_transformers_gives_the_same_raw_scores(trained):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    head, out, _ = trained
    if head == "emb":
        pytest.skip("it knows no such head")
    model = sentence_transformers.CrossEncoder(str(out), device="cpu")
    np.testing.assert_allclose(model.predict(PAIRS), as_scorer(out, device="cpu").score(PAIRS), atol=1e-4)


def test_entity_linking_form(worlds, base, tmp_path):
    out = tmp_path / "linker"
    report = train_cross_encoder(
        worlds, base=base, out=out, head="emb", negatives="tfidf,random", steps=8, eval_every=8, **QUICK
    )
    assert 0 <= report["figures"]["mrr"] <= 1
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    assert tokenizer.tokenize("in the sea [M_s] whale [M_e] a [ENT]") == (
        ["in", "the", "sea", "[M_s]", "whale", "[M_e]", "a", "[ENT]"]
    )
    query, item = "in the sea [M_s] whale [M_e]", "whale [ENT] animal of the sea"
    assert np.isfinite(as_scorer(out, device="cpu").score([(query, item)])).all()


def test_the_limits_are_kept(beir, base, tmp_path):
    out = tmp_path / "model"
    limits = {"query_tokens": 3, "item_tokens": 4, "max_length": 12}
    train_cross_encoder(beir, base=base, out=out, steps=2, **limits, **QUICK)
    assert "query_tokens=3, item_tokens=4, max_length=12" in (out / "README.md").read_text()
    assert transformers.AutoTokenizer.from_pretrained(out).model_max_length == 12


def test_a_stopped_run_continues_as_if_nothing_had_happened(beir, base, tmp_path):
    settings = {"base": base, "epochs": 3, "eval_every": 5, **QUICK, "learning_rate": 1e-3}
    whole = train_cross_encoder(beir, out=tmp_path / "whole", **settings)

    with interrupted_after(step=12), pytest.raises(KeyboardInterrupt):
        train_cross_encoder(beir, out=tmp_path / "parts", **settings)
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["checkpoints"]
    assert (tmp_path / "parts" / "checkpoints" / "checkpoint-12").is_dir()
    parts = train_cross_encoder(beir, out=tmp_path / "parts", **settings)
    assert parts["figures"] == whole["figures"]
    assert parts["losses"][-1][1] == pytest.approx(whole["losses"][-1][1], abs=1e-5)
    scores = [as_scorer(tmp_path / name, device="cpu").score(PAIRS) for name in ("whole", "parts")]
    np.testing.assert_allclose(*scores, atol=1e-4)


class interrupted_after:
    """As a user who presses Ctrl-C during a step."""

    def __init__(self, step):
        self.step = step

    def __enter__(self):
        from crosscut.train.pairs import PairTask

        self.seen, self.loss = 0, PairTask.loss

        def loss(task, *given):
            self.seen += 1
            if self.seen == self.step:
                os.kill(os.getpid(), signal.SIGINT)
            return self.loss(task, *given)

        PairTask.loss = loss

    def __exit__(self, *_):
        from crosscut.train.pairs import PairTask

        PairTask.loss = self.loss


def test_a_killed_process_is_continued_by_the_same_command(beir, base, tmp_path, capsys):
    out = tmp_path / "model"
    command = ["train", "cross-encoder", str(beir), "--base", str(base), "--out", str(out), "--eval-every", "4"]
    command += ["--batch-size", "8", "--negative-count", "7", "--device", "cpu", "--steps"]
    python = [sys.executable, "-m", "crosscut.cli"]
    process = subprocess.Popen([*python, *command, "100000"], stderr=subprocess.DEVNULL)
    try:
        states = []
        while len(states) < 2 and process.poll() is None:
            states = list(out.glob("checkpoints/checkpoint-*/trainer_state.json"))
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    assert states, "it ended before its first checkpoint"
    # Half of a checkpoint, as a kill in the middle of writing leaves it.
    (out / "checkpoints" / "checkpoint-99999").mkdir()
    assert main([*command, "50"]) == 2
    error = capsys.readouterr().err
    assert "differs in: steps (100000 there, 50 here)" in error and "--overwrite" in error
    # The run is told to be nearly over, so that the test is.
    run = out / "checkpoints" / "run.json"
    last = max(int(path.parent.name.split("-")[1]) for path in out.glob("checkpoints/*/trainer_state.json"))
    run.write_text(run.read_text().replace("100000", str(last + 8)))
    assert main([*command, str(last + 8), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["steps"] == last + 8
    assert report["evaluations"][0][0] == 4, "the evaluations before the kill are remembered"
    assert not (out / "checkpoints").exists()
    assert main([*command, str(last + 8)]) == 2
    assert "holds a finished model" in capsys.readouterr().err


def test_a_base_in_half_precision_is_trained_in_full(beir, base, tmp_path):
    half = transformers.AutoModel.from_pretrained(base).half()
    half.save_pretrained(tmp_path / "half")
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path / "half")
    train_cross_encoder(beir, base=tmp_path / "half", out=tmp_path / "out", steps=1, **QUICK)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["dtype"] == "float32"


def test_words_can_stay_as_they_are(beir, base, tmp_path):
    def words(folder):
        return transformers.AutoModel.from_pretrained(folder).get_input_embeddings().weight.detach().numpy()

    for frozen in (True, False):
        out = tmp_path / str(frozen)
        train_cross_encoder(beir, base=base, out=out, steps=2, freeze_words=frozen, **QUICK)
        assert (words(out) == words(base)).all() == frozen


def test_negatives_of_a_run(beir, base, tmp_path):
    run = {query.id: [(item.id, 1.0) for item in tiny_data.items()[:9]] for query in tiny_data.queries()}
    write_run(tmp_path / "a.run.gz", run)
    report = train_cross_encoder(
        beir, base=base, out=tmp_path / "out", negatives=f"run:{tmp_path / 'a.run.gz'},random", steps=2, **QUICK
    )
    assert report["steps"] == 2


def test_several_processes_train_one_model(beir, base, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    command += ["-m", "crosscut.cli", "train", "cross-encoder", str(beir), "--base", str(base)]
    command += ["--out", str(tmp_path / "out"), "--batch-size", "4", "--steps", "6", "--eval-every", "3"]
    command += ["--negative-count", "7", "--device", "cpu", "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["steps"] == 6 and [step for step, _ in report["evaluations"]] == [3, 6]
    assert np.isfinite(as_scorer(tmp_path / "out", device="cpu").score(PAIRS)).all()


def test_a_base_with_the_weights_of_another_model(beir, base, tmp_path):
    shutil.copytree(base, tmp_path / "base")
    path = tmp_path / "base" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"num_hidden_layers": config["num_hidden_layers"] + 1}))
    with pytest.raises(CrosscutError, match="lacks 16 of the weights"):
        train_cross_encoder(beir, base=tmp_path / "base", out=tmp_path / "out", steps=2, **QUICK)
    assert not (tmp_path / "out").exists()


def test_scores_that_are_no_numbers_stop_the_run(beir, base, tmp_path):
    with pytest.raises(CrosscutError, match="try a lower learning_rate"):
        train_cross_encoder(
            beir, base=base, out=tmp_path / "out", steps=6, eval_every=3, **(QUICK | {"learning_rate": 1e30})
        )


def test_overwrite_begins_anew(beir, base, tmp_path):
    out = tmp_path / "model"
    train_cross_encoder(beir, base=base, out=out, steps=2, **QUICK)
    with pytest.raises(
        CrosscutError, match="holds a finished model: choose another folder, or set overwrite=True"
    ):
        train_cross_encoder(beir, base=base, out=out, steps=2, **QUICK)
    before = as_scorer(out, device="cpu").score(PAIRS)
    with interrupted_after(step=2), pytest.raises(KeyboardInterrupt):
        train_cross_encoder(beir, base=base, out=out, steps=9, seed=1, overwrite=True, **QUICK)
    np.testing.assert_array_equal(as_scorer(out, device="cpu").score(PAIRS), before)  # until the new one is there
    report = train_cross_encoder(beir, base=base, out=out, steps=9, seed=1, **QUICK)
    assert report["steps"] == 9
    assert (as_scorer(out, device="cpu").score(PAIRS) != before).any()
    assert not (out / "checkpoints").exists()


def test_a_run_that_was_killed_at_its_very_end(beir, base, tmp_path, monkeypatch):
    """All steps are done, but the model is not yet in its place; and the folder is moved before it goes on."""
    from crosscut.train import folder

    out, settings = tmp_path / "model", {"base": base, "steps": 10, "eval_every": 4, **QUICK}

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(folder, "finish", killed)
    with pytest.raises(KeyboardInterrupt):
        train_cross_encoder(beir, out=out, **settings)
    monkeypatch.undo()
    assert [path.name for path in out.iterdir()] == ["checkpoints"]
    moved = tmp_path / "moved"
    out.rename(moved)
    with interrupted_after(step=1):  # not a single step is left
        report = train_cross_encoder(beir, out=moved, **settings)
    whole = train_cross_encoder(beir, out=tmp_path / "whole", **settings)
    assert report == whole
    scores = [as_scorer(path, device="cpu").score(PAIRS) for path in (moved, tmp_path / "whole")]
    np.testing.assert_allclose(*scores, atol=1e-5)


def test_a_move_that_was_stopped_is_finished(beir, base, tmp_path, monkeypatch):
    from crosscut.train import folder

    out = tmp_path / "model"

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(folder, "remove", killed)  # the last thing of all
    with pytest.raises(KeyboardInterrupt):
        train_cross_encoder(beir, base=base, out=out, steps=2, **QUICK)
    monkeypatch.undo()
    (out / "README.md").rename(out / "checkpoints" / "finished" / "README.md")
    report = train_cross_encoder(beir, base=base, out=out, steps=2, **QUICK)
    assert report["steps"] == 2
    assert (out / "README.md").exists() and not (out / "checkpoints").exists()


def test_a_strangers_folder_is_left_alone(beir, base, tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    for overwrite in (False, True):
        with pytest.raises(CrosscutError, match="something else than a trained model"):
            train_cross_encoder(beir, base=base, out=tmp_path, overwrite=overwrite, **QUICK)
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head": "tail"}, "there is no head 'tail': use cls or emb"),
        ({"negatives": "bm52"}, "items come from random, bm25, tfidf, encoder:MODEL or run:FILE, not from 'bm52'"),
        ({"negative_count": 0}, "negative_count must be a whole number of at least 1, but is 0"),
        ({"negative_count": 72}, "has only 71 items that do not answer it, but 72 are asked for"),
        ({"epoch": 3}, "there is no setting 'epoch'"),
        ({"seed": 2**32}, "seed must be at most 4294967295, but is 4294967296"),
        ({"learning_rate": -1}, "learning_rate must be a number of at least 0"),
        ({"precision": "fp8"}, "precision must be one of auto, bf16, fp32"),
        ({"split": "trian"}, "has no split 'trian'; its splits are: dev, train"),
        ({"max_length": 99}, "max_length 99 does not suit"),
        ({"base": "./no/such/model"}, "there is no model folder ./no/such/model"),
    ],
)
def test_bad_arguments(beir, base, tmp_path, arguments, message):
    given = {**QUICK, "base": base, "out": tmp_path / "model", "steps": 1, **arguments}
    with pytest.raises(CrosscutError, match=message):
        train_cross_encoder(beir, **given)
    assert not (tmp_path / "model").exists()


def test_a_base_of_another_architecture(beir, tmp_path):
    def refused(model, message):
        with pytest.raises(CrosscutError, match=message):
            train_cross_encoder(beir, base=model, out=tmp_path / "out", steps=1, **QUICK)

    base = tiny_data.save_base(tmp_path / "base")
    config = json.loads((base / "config.json").read_text())

    def other(**keys):
        (base / "config.json").write_text(json.dumps(config | keys))
        return base

    labels = {str(number): name for number, name in enumerate("abc")}
    refused(other(architectures=["BertForSequenceClassification"], id2label=labels), "has 3 labels")
    refused(other(architectures=["BertLMHeadModel"]), "which generates text: begin with an encoder")
    form = {"head": "emb", "query_marker": "[Q]", "item_marker": "[I]"}
    refused(other(crosscut=form), "has the head emb: keep that head, or begin with another")
    refused(other(model_type="abacus"), "cannot load")


def test_a_checkpoint_of_another_architecture(beir, base, tmp_path):
    out = tmp_path / "model"
    settings = {"out": out, "epochs": 3, "eval_every": 5, **QUICK}
    with interrupted_after(step=6), pytest.raises(KeyboardInterrupt):
        train_cross_encoder(beir, base=base, **settings)
    small = tiny_data.save_base(tmp_path / "small", hidden_size=16)
    with pytest.raises(CrosscutError, match="holds an unfinished run that differs in: base"):
        train_cross_encoder(beir, base=small, **settings)
    run = out / "checkpoints" / "run.json"
    run.write_text(run.read_text().replace(str(base), str(small)))
    with pytest.raises(CrosscutError, match="checkpoint-6 is damaged, or of another architecture"):
        train_cross_encoder(beir, base=small, **settings)
