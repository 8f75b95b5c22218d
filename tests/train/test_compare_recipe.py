"""The recipe for compare models runs from data to tables, with models that know nothing."""

import doctest
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_data

from crosscut.data import read_beir, write_beir, write_blink

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.models

RECIPES = Path(__file__).parents[2] / "recipes"
QUICK = {"steps": 2, "encoder-steps": 2, "cross-steps": 2, "batch-size": 4, "encoder-batch": 8, "candidates": 4}
QUICK |= {"depth": 8, "negative-count": 3, "dev-queries": 8, "largest": 64}
QUICK = [word for name, value in QUICK.items() for word in (f"--{name}", str(value))]


@pytest.fixture
def recipe(monkeypatch):
    """Run a recipe as its command line does."""
    monkeypatch.syspath_prepend(RECIPES)

    def run(name, *args):
        monkeypatch.setattr(sys, "argv", [name, *map(str, args)])
        # Not by its name, which a folder of tests has too.
        spec = importlib.util.spec_from_file_location(f"{name}_recipe", RECIPES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.main()

    return run


@pytest.fixture(scope="module")
def linking_data(tmp_path_factory):
    data = tmp_path_factory.mktemp("linking")
    tiny_data.save_worlds(data)
    found = {"wild": tiny_data.ANIMALS[:6], "tame": tiny_data.ANIMALS[6:]}
    for split, world in (("train", "wild"), ("dev", "tame"), ("test", "tame")):
        write_blink(data / "mentions" / f"{split}.jsonl", tiny_data.mentions(world, found[world]))
    return data


@pytest.fixture(scope="module")
def long_base(tmp_path_factory):
    """An encoder that reads as many tokens as the recipe asks for."""
    from transformers import BertConfig, BertModel, BertTokenizer

    folder, words = tmp_path_factory.mktemp("models") / "base", [*tiny_data.SPECIAL, *tiny_data.WORDS]
    BertTokenizer(vocab={word: n for n, word in enumerate(words)}, model_max_length=256).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(words), max_position_embeddings=256, **tiny_data.SIZES)
    BertModel(config).save_pretrained(folder)
    return folder


def units(results):
    return json.loads((results / "settings.json").read_text())["times"]


@pytest.mark.parametrize("name", ["compare", "compare_data", "compare_results", "compare_report"])
def test_examples(recipe, name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_scores_are_those_of_the_model(recipe, tmp_path, long_base):
    from crosscut.compare import KINDS, as_comparer
    from crosscut.compare.comparer import save
    from crosscut.compare.registry import model_class
    from crosscut.compare.text_encoder import TextEncoder

    scoring = importlib.import_module("compare_scoring")
    queries, items = [q.text for q in tiny_data.queries()[:5]], [i.content for i in tiny_data.items()]
    items[3] = "the whale"  # shorter than the others
    candidates = np.random.default_rng(0).permuted(np.tile(np.arange(len(items)), (5, 1)), axis=1)[:, :9]
    for kind in KINDS:
        save(model_class(kind)(TextEncoder.load(long_base)), tmp_path / kind)
        comparer = as_comparer(tmp_path / kind, device="cpu")
        compared = scoring.Compared.of(comparer, queries, items)
        vectors = comparer.encode_items(items)
        queries_of = comparer.encode_queries(queries)
        if kind == "cmc":  # candidates see each other
            expected = np.stack(comparer.score(queries_of, [vectors.take(row) for row in candidates]))
        else:
            alone = [
                comparer.score(queries_of, [vectors.take([item]) for item in column]) for column in candidates.T
            ]
            expected = np.concatenate(alone, axis=None).reshape(candidates.T.shape).T
        assert np.allclose(compared.scores(candidates), expected, atol=1e-4), kind
        assert np.allclose(compared.scores(candidates[3:], np.array([3, 4])), expected[3:], atol=1e-4)


def test_ranks(recipe):
    data = importlib.import_module("compare_data")
    items, queries = tiny_data.items(), tiny_data.queries()
    examples = data.Examples.of(
        queries[:2], items, {queries[0].id: {items[0].id: 1}, queries[1].id: {items[1].id: 1}}
    )
    part = data.Part("all", examples)
    assert part.right(np.array([[0, 1, -1], [0, 1, -1]])).tolist() == [[True, False, False], [False, True, False]]
    drawn = data.drawn_candidates(part, 10, seed=0)
    assert drawn.shape == (2, 10) and part.right(drawn).sum(axis=1).tolist() == [1, 1]
    assert all(len(set(row)) == 10 for row in drawn.tolist())


def test_linking(recipe, linking_data, long_base, tmp_path, monkeypatch):
    out = tmp_path / "run"
    command = ["train", "linking", linking_data, "--base", long_base, "--out", out, *QUICK]
    monkeypatch.setattr(importlib.import_module("compare_times"), "QUERIES", 1)
    names = "encoder,first,cmc,poly,cross,final,cmc-no-kl,cmc-from-encoder,time-cpu,curve-cpu,join"
    recipe("compare", *command, "--units", names, "--anchors", "20", "--test", "10")
    results = out / "results"
    assert set(names.split(",")) <= set(units(results))
    with np.load(results / "cmc.npz") as ranks, np.load(results / "first.npz") as first:
        assert (ranks["tame/64"] > 0).all()  # there are fewer entities than that
        assert first["tame/1024"].max() <= 36
    with np.load(results / "final.npz") as final:
        assert (final["tame/cmc-64/64"] >= 2).all()

    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.npz")}
    recipe("compare", *command, "--units", "cmc,final,join")  # all is there
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*.npz")}

    report = importlib.import_module("compare_report")
    run = importlib.import_module("compare_results").Results(results)
    assert "| + CMC |" in report.retrieval_table(run) and "100.0" in report.candidates_table(run)
    assert report.calls_table(run).count("\n") == 12
    assert "without regularisation" in report.ablation_table(run) and "CMC" in report.starts_table(run)
    assert "| cross-encoder |" in report.rerankers_table({"linking": run})
    assert "CMC" in report.time_table(run.curves())

    matrices = tmp_path / "matrices"
    experiment = importlib.import_module("experiment")
    with np.load(results / "join-tame.npz") as joined:
        shared = {"query_ids": joined["query_ids"], "item_ids": joined["item_ids"], "anchors": np.array(20)}
        truth = joined["scores"].astype(np.float32)
    matrices.mkdir()
    rng = np.random.default_rng(0)
    shared |= {"item_embeddings": rng.normal(size=(36, 8)), "query_embeddings": rng.normal(size=(30, 8))}
    experiment.save(matrices / "tame.npz", **shared)
    experiment.save(matrices / "tame-cls.npz", **experiment.in_half(truth))
    join = importlib.import_module("compare_join")
    args = type("Args", (), {"matrices": matrices, "worlds": linking_data, "like": None})
    (one,) = join.linking_matrices(args, run)
    found = one.measure("rerank, CMC", 20, {})
    assert np.mean(found["16"]["10"]) == 1.0  # the scorer is CMC itself
    assert "crosscut, both" in join.tables(args, {"linking": run})["compare-join-linking-none"]


def test_passages_and_replies(recipe, beir, long_base, tmp_path):
    data, dialogues = tmp_path / "beir", tmp_path / "dialogues"
    train, dev = read_beir(beir, "train"), read_beir(beir, "dev")
    for splits in ({s: dev.qrels for s in ("valid", "test")}, {"train": train.qrels}):
        write_beir(data, train.items, train.queries + dev.queries, splits)
    ids = [query.id for query in [*train.queries[:4], *dev.queries]]
    np.savez(tmp_path / "like.npz", query_ids=np.array(ids), anchors=4)
    command = ["train", "passages", data, "--base", long_base, "--out", tmp_path / "passages", *QUICK]
    recipe("compare", *command, "--units", "cmc,join", "--like", tmp_path / "like.npz", "--nearest", "10")
    with np.load(tmp_path / "passages" / "results" / "join-passages.npz") as joined:
        assert joined["positions"].shape == joined["scores"].shape == (16, 10)

    dialogues.mkdir()
    for split in ("train", "dev", "test"):
        lines = [
            {"id": q.id, "context": q.text, "reply": i.content}
            for q, i in zip(tiny_data.queries(), tiny_data.items(), strict=True)
        ]
        (dialogues / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["train", "replies", dialogues, "--base", long_base, "--out", tmp_path / "replies", *QUICK]
    recipe("compare", *command, "--units", "bi,final", "--minutes", "5")
    results = tmp_path / "replies" / "results"
    with np.load(results / "bi.npz") as bi, np.load(results / "cross.npz") as cross:
        assert bi["replies/100"].min() >= 1 and cross["replies/100"].max() <= 72


def test_a_unit_that_fails_leaves_the_others(recipe, linking_data, long_base, tmp_path, capsys):
    command = ["train", "linking", linking_data, "--base", long_base, "--encoder", long_base, "--out", tmp_path]
    recipe("compare", *command, *QUICK, "--units", "cmc-from-vanilla,first")
    assert "--vanilla" in capsys.readouterr().err
    assert (tmp_path / "results" / "first.npz").exists()
    with pytest.raises(SystemExit, match="holds a run with another start"):
        recipe("compare", *command, *QUICK, "--units", "first", "--start", "encoder")
    with pytest.raises(SystemExit, match="there is no unit 'cnc'"):
        recipe("compare", *command, "--units", "cnc")
