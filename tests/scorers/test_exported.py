"""Exported models: the scores of torch without torch, in folders that appear whole and are read only whole."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from tiny_families import LIMIT, TEXTS, TOKENIZERS, save, transformers

from crosscut import Index
from crosscut.errors import CrosscutError
from crosscut.export import export_model
from crosscut.export.folder import check_free, new_folder
from crosscut.index.executors import as_executor
from crosscut.index.executors.base import TILES
from crosscut.scorers import TransformerScorer, as_scorer

for package in ("onnx", "onnxscript", "onnxruntime", "openvino", "nncf"):
    pytest.importorskip(package)
pytestmark = pytest.mark.models

PAIRS = [(query, item) for query in TEXTS for item in TEXTS]
FILES = {"onnx": ["model.onnx"], "openvino": ["model.bin", "model.xml"]}


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """The folder of a tiny model as exported, and that of the model; made when first asked for."""
    made = {}
    root = tmp_path_factory.mktemp("exports")

    def export(backend, family="bert", int8=False):
        out, model = root / f"{family}-{backend}-{int8}", root / family
        if not model.exists():
            # Tracing takes a while: one layer where the second is no different.
            save(model, family, num_hidden_layers=2 if family in ("bert", "modernbert") else 1)
        if out not in made:
            texts = TEXTS if int8 else None
            made[out] = export_model(model, out, backend=backend, int8=int8, texts=texts)
        return out, model

    return export


@pytest.fixture(params=["onnx", "openvino"])
def backend(request):
    return request.param


@pytest.fixture
def exported(exports, backend):
    return exports(backend)[0]


@pytest.fixture
def copy(exported, tmp_path):
    """An export to damage."""
    return shutil.copytree(exported, tmp_path / "copy")


def rewrite(folder, **changes):
    path = folder / "crosscut.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("family", "backend"),
    [
        ("bert", "onnx"),
        ("bert", "openvino"),
        ("roberta", "openvino"),
        ("electra", "onnx"),
        ("modernbert", "onnx"),
        ("deberta-v2", "openvino"),
    ],
)
def test_scores_are_those_of_torch(exports, family, backend):
    folder, model = exports(backend, family)
    exported, torch = as_scorer(folder), TransformerScorer(model, device="cpu")
    expected = torch.score(PAIRS)
    assert expected.std() > 0.1
    np.testing.assert_allclose(exported.score(PAIRS), expected, atol=1e-4)
    assert (exported.truncated, exported.calls) == (torch.truncated, len(PAIRS))
    assert exported.max_length == LIMIT
    # Whatever they are scored with.
    order = np.random.default_rng(0).permutation(len(PAIRS))
    np.testing.assert_allclose(exported.score([PAIRS[p] for p in order]), expected[order], atol=1e-4)
    alone = [exported.score([pair])[0] for pair in PAIRS[::5]]
    np.testing.assert_allclose(alone, expected[::5], atol=1e-4)


def test_what_a_folder_holds(exports, backend):
    folder, model = exports(backend)
    assert sorted(path.name for path in folder.iterdir()) == ["crosscut.json", *FILES[backend], "tokenizer.json"]
    manifest = json.loads((folder / "crosscut.json").read_text())
    assert manifest["format"] == 1
    assert manifest["source"] == {"name": str(model), "digest": TransformerScorer(model, device="cpu").digest()}
    for name in manifest["files"]:  # nothing about the machine that it was made on
        content = (folder / name).read_bytes()
        assert str(model.parent).encode() not in content and b"site-packages" not in content


def test_limits_cut_as_with_torch(exports, backend):
    folder, model = exports(backend)
    for limits in ({"query_tokens": 3, "item_tokens": 5}, {"max_length": 11}):
        exported, torch = as_scorer(folder, **limits), TransformerScorer(model, device="cpu", **limits)
        np.testing.assert_allclose(exported.score(PAIRS), torch.score(PAIRS), atol=1e-4)
        assert exported.truncated == torch.truncated > 0
        assert exported.options() == limits


@pytest.mark.parametrize(
    ("backend", "family", "least"),
    [("onnx", "bert", 0.97), ("onnx", "modernbert", 0.95), ("openvino", "bert", 0.85)],
)
def test_int8_ranks_nearly_as_the_model(exports, backend, family, least):
    folder, model = exports(backend, family, int8=True)
    exact = TransformerScorer(model, device="cpu").score(PAIRS)
    scorer = as_scorer(folder)
    scores = scorer.score(PAIRS)
    assert np.abs(scores - exact).max() > 1e-3  # it is int8
    assert spearmanr(scores, exact).statistic > least
    # A pair has one score: an index and a search must agree on it.
    for part in ([3], [9, 40, 3], range(0, 64, 7)):
        again = as_scorer(folder, threads=1).score([PAIRS[p] for p in part])
        np.testing.assert_array_equal(again, scores[list(part)])


def test_the_first_int8_exports_run_one_pair_at_a_time(exports, tmp_path):
    """ONNX Runtime's own quantiser takes one range for all that is run together."""
    from onnxruntime.quantization import quantize_dynamic

    folder, _ = exports("onnx")
    copy = shutil.copytree(folder, tmp_path / "copy")
    quantize_dynamic(folder / "model.onnx", copy / "model.onnx")
    rewrite(copy, files={}, precision="int8")
    scorer = as_scorer(copy)
    scores = scorer.score(PAIRS)
    np.testing.assert_array_equal(scores, [scorer.score([pair])[0] for pair in PAIRS])


def test_no_torch_and_no_transformers(exported):
    code = (
        "import sys; from crosscut.scorers import as_scorer; "
        f"print(as_scorer({str(exported)!r}).score([('whale', 'sky')])[0]); "
        "assert not {'torch', 'transformers', 'onnx', 'nncf'} & set(sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert float(ended.stdout) == pytest.approx(float(as_scorer(exported).score([("whale", "sky")])[0]), abs=1e-5)


def test_weights_beyond_one_file(exports, tmp_path):
    """ONNX files end at 2 GB; torch puts larger weights beside them, and so do we."""
    import onnx

    from crosscut.export.onnx import convert

    folder, _ = exports("onnx")
    traced = tmp_path / "traced" / "model.onnx"
    traced.parent.mkdir()
    onnx.save(
        onnx.load(folder / "model.onnx"),
        traced,
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=0,
    )
    scores = as_scorer(folder).score(PAIRS)
    for samples, least in (([], 0.9999), ([{}], 0.9)):
        out = shutil.copytree(folder, tmp_path / f"{len(samples)}", ignore=shutil.ignore_patterns("model*"))
        convert(traced, out, samples)
        assert (out / "model.onnx.data").stat().st_size > (out / "model.onnx").stat().st_size / 4
        rewrite(out, files={}, precision="int8" if samples else "fp32")
        assert np.corrcoef(as_scorer(out).score(PAIRS), scores)[0, 1] > least


def test_an_index_finds_its_scorer_again(exported, tmp_path):
    items = [{"id": str(n), "text": text} for n, text in enumerate(TEXTS) if text]
    path = tmp_path / "x.index"
    Index.build(items, scorer=as_scorer(exported, item_tokens=5), anchor_queries=TEXTS[:2], path=path)
    index = Index.load(path)
    assert [hit.text for hit in index.search("whale", k=3, budget=5)]
    assert index.scorer.options() == {"item_tokens": 5}


def test_it_counts_as_a_cpu(exported):
    assert as_executor("local").tile(as_scorer(exported)) == TILES["cpu"]


def test_to_another_process(exported):
    scorer = as_scorer(exported, query_tokens=3, threads=2)
    again = pickle.loads(pickle.dumps(scorer))
    assert (again.digest(), again.options(), again.threads) == (scorer.digest(), {"query_tokens": 3}, 2)
    np.testing.assert_allclose(again.score(PAIRS), scorer.score(PAIRS), atol=1e-5)


def test_the_digest_follows_files_and_options(exported, copy):
    plain = as_scorer(exported).digest()
    assert plain == as_scorer(copy).digest() == as_scorer(str(exported), threads=3).digest()
    others = [as_scorer(exported, **{name: 9}).digest() for name in ("query_tokens", "item_tokens", "max_length")]
    rewrite(copy, max_length=LIMIT - 1)
    assert len({plain, as_scorer(copy).digest(), *others}) == 5


def test_files_that_are_not_as_they_were(copy, backend):
    model = copy / FILES[backend][0]
    content = model.read_bytes()
    model.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CrosscutError, match=f"the file {model} is damaged or was changed: export the model again"):
        as_scorer(copy)
    model.unlink()
    with pytest.raises(CrosscutError, match=f"the exported model {copy} lacks its file {model.name}: export the"):
        as_scorer(copy)


@pytest.mark.parametrize("name", ["model", "tokenizer.json"])
def test_files_that_no_runtime_reads(copy, backend, name):
    path = copy / (FILES[backend][-1] if name == "model" else name)
    path.write_bytes(b"not a model")
    rewrite(copy, files={})
    with pytest.raises(CrosscutError, match=f"^cannot load '{copy}': ."):
        as_scorer(copy)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"cannot read .*crosscut\.json \(JSONDecodeError\): export the model again"),
        ("[]", "has format None, but this version of crosscut reads format 1: update crosscut, or export"),
        ({"format": 2}, "has format 2, but this version of crosscut reads format 1: update crosscut, or export"),
        ({"backend": "abacus"}, "names the backend 'abacus', but there are only onnx and openvino"),
        ({"kind": "abacus"}, "names the kind 'abacus', but there are only scorer and encoder"),
        ({"backend": None}, r"crosscut\.json is damaged \(see backend\): export the model again"),
        ({"files": []}, r"is damaged \(see files\)"),
        ({"max_length": "24", "pad": None}, r"is damaged \(see max_length, pad\)"),
        ({"colour": "blue"}, r"is damaged \(see colour\)"),
    ],
)
def test_manifests_that_will_not_do(exports, tmp_path, content, message):
    copy = shutil.copytree(exports("onnx")[0], tmp_path / "copy")
    if isinstance(content, dict):
        rewrite(copy, **content)
    else:
        (copy / "crosscut.json").write_text(content)
    with pytest.raises(CrosscutError, match=message):
        as_scorer(copy)


def test_the_first_manifests(exported, copy):
    """Those of crosscut before it exported encoders."""
    path = copy / "crosscut.json"
    content = json.loads(path.read_text())
    assert content.pop("kind") == "scorer" and content.pop("prompts") == {}
    path.write_text(json.dumps(content))
    np.testing.assert_array_equal(as_scorer(copy).score(PAIRS), as_scorer(exported).score(PAIRS))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": LIMIT + 1}, f"max_length {LIMIT + 1} does not suit .*: it must be at most {LIMIT}"),
        ({"max_length": 4}, "max_length must be at least 5, but is 4"),
        ({"max_length": "16"}, "max_length must be a whole number of at least 1, but is '16'"),
        ({"item_tokens": 0}, "item_tokens must be a whole number of at least 1, but is 0"),
        ({"threads": 0}, "threads must be a whole number of at least 1, but is 0"),
        ({"label": 0}, "these are known: query_tokens, item_tokens, max_length, threads"),
    ],
)
def test_bad_options(exports, options, message):
    with pytest.raises(CrosscutError, match=message):
        as_scorer(exports("onnx")[0], **options)


def test_texts_that_are_none(exported):
    scorer = as_scorer(exported)
    with pytest.raises(CrosscutError, match="pair 1: its item is of type NoneType, not a string"):
        scorer.score([("whale", "sky"), ("whale", None)])
    assert (scorer.calls, scorer.truncated) == (0, 0)


def test_packages_that_are_missing(exports, monkeypatch, tmp_path):
    folder, model = exports("openvino")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "openvino", None)
        with pytest.raises(CrosscutError, match=r'needs more packages .*openvino.*"crosscut\[openvino\]"'):
            as_scorer(folder)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.delitem(sys.modules, "crosscut.export.graph", raising=False)
    monkeypatch.delattr("crosscut.export.graph", raising=False)
    with pytest.raises(CrosscutError, match=r'exporting a model needs .*onnxscript.*"crosscut\[export\]"'):
        export_model(model, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def refused(model, out, message, **options):
    with pytest.raises(CrosscutError, match=message):
        export_model(model, out, **options)
    assert not out.exists()


def test_what_cannot_be_exported(exports, tmp_path):
    folder, model = exports("onnx")
    out = tmp_path / "out"
    refused(tmp_path / "none", out, "there is no model folder")
    refused(folder, out, "is an exported model already: export the one that it was made of")
    refused(model, out, "there is no backend 'abacus' to export to: use onnx or openvino", backend="abacus")
    refused(model, out, "has no label 3", label=3)
    refused(model, out, "texts are of use for int8 only: set int8=True", texts=TEXTS)
    for texts in ([], ["", " "]):
        refused(model, out, "there are no texts to measure int8 ranges on", texts=texts, int8=True)
    refused(model, out, "texts cannot be read: .* lone surrogate", texts=["blue \ud83d"], int8=True)
    for texts in (["a", 3], "whale"):
        refused(model, out, "texts must be a list of strings", texts=texts, int8=True)


def test_marked_vectors_are_refused(tmp_path):
    tokenizer = TOKENIZERS["bert"]()
    tokenizer.add_special_tokens({"additional_special_tokens": ["[QUERY]", "[ITEM]"]})
    form = {"head": "emb", "query_marker": "[QUERY]", "item_marker": "[ITEM]"}
    model = save(tmp_path / "model", "bert", transformers.AutoModel, tokenizer, crosscut=form)
    refused(model, tmp_path / "out", r"is of the \[EMB\] form, which cannot be exported: run it with torch")


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (
            RuntimeError("\n no such operation\nin line 7"),
            CrosscutError,
            r"of type bert, cannot be exported to onnx \(no",
        ),
        (OSError(28, "No space left on device"), CrosscutError, "cannot write .*out: No space left on device"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
)
def test_a_failure_leaves_nothing(exports, tmp_path, monkeypatch, error, raised, message):
    def write(graph, path, samples):
        path.write_text("half")
        raise error

    monkeypatch.setattr("crosscut.export.graph.write_graph", write)
    with pytest.raises(raised, match=message):
        export_model(exports("onnx")[1], tmp_path / "out")
    assert not list(tmp_path.iterdir())


def fill(out, content, overwrite=False):
    with new_folder(out, overwrite) as folder:
        (folder / "crosscut.json").write_text(content)


def test_only_exports_are_overwritten(tmp_path):
    out = tmp_path / "out"
    fill(out, "old")
    with pytest.raises(CrosscutError, match="out already exists: choose another folder, or set overwrite=True"):
        fill(out, "new")
    fill(out, "new", overwrite=True)
    assert (out / "crosscut.json").read_text() == "new"
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(CrosscutError, match=r"out holds thesis\.tex, which no export wrote, so it is not overwr"):
        fill(out, "newer", overwrite=True)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for other in (tmp_path, tmp_path / "file", tmp_path / "link"):
        with pytest.raises(CrosscutError, match="is not an exported model, so it is not overwritten"):
            check_free(other, overwrite=True)
    with pytest.raises(CrosscutError, match=r"cannot write .*file/out: "):
        fill(tmp_path / "file" / "out", "new")
    assert {path.name for path in tmp_path.iterdir()} == {"out", "file", "link"}
    assert {path.name for path in out.iterdir()} == {"crosscut.json", "thesis.tex"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("no")])
def test_the_old_export_survives_a_failed_exchange(tmp_path, monkeypatch, error):
    out = tmp_path / "out"
    fill(out, "old")
    rename = Path.rename

    def fails(path, target):
        if Path(target) == out and not failed:
            failed.append(path)
            raise error
        return rename(path, target)

    failed = []
    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises((KeyboardInterrupt, CrosscutError)):
        fill(out, "new", overwrite=True)
    assert failed and (out / "crosscut.json").read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


SEVERAL_MODELS_THEN_CTRL_C = """
import faulthandler, os, signal, sys
from crosscut.scorers import as_scorer
faulthandler.enable()  # gives the thread a stack for signals, as a user's program may
models = [as_scorer(sys.argv[1]) for _ in range(3)]
while models:
    models.pop(0)
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_after_models_have_gone(exported):
    command = [sys.executable, "-c", SEVERAL_MODELS_THEN_CTRL_C, str(exported)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "interrupted\n")
