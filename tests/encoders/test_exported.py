"""Exported encoders: the vectors of sentence-transformers without it, and models that are refused."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from tiny_families import LIMIT, TEXTS, save, transformers

from crosscut import Index
from crosscut.encoders import ExportedEncoder, as_encoder
from crosscut.errors import CrosscutError
from crosscut.export import export_model
from crosscut.scorers import as_scorer

for package in ("onnx", "onnxscript", "onnxruntime", "openvino", "nncf"):
    pytest.importorskip(package)
sentence_transformers = pytest.importorskip("sentence_transformers", minversion="6.0")
pytestmark = pytest.mark.models

SIZE = 32  # of a token's vector
ROLES = ("query", "item")


def modules(kind):
    from sentence_transformers.sentence_transformer import modules

    if kind == "mean":
        return [modules.Pooling(SIZE, "mean"), modules.Normalize()]
    if kind == "dense":
        return [modules.Pooling(SIZE, ("max", "mean")), modules.Dense(2 * SIZE, 12)]
    return [modules.Pooling(SIZE, kind)]


def save_encoder(folder, kind, family="bert", **options):
    """A sentence-transformers model in `folder`, made of a tiny one of this family; `options` are its own."""
    from sentence_transformers.sentence_transformer.modules import Transformer

    save(folder / "base", family, transformers.AutoModel, num_hidden_layers=2)
    parts = [Transformer(str(folder / "base")), *modules(kind)]
    encoder = sentence_transformers.SentenceTransformer(modules=parts, device="cpu", **options)
    encoder.save(str(folder / kind), create_model_card=False)
    return folder / kind


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of encoders as sentence-transformers saves them, by what they do with the vectors of tokens."""
    root = tmp_path_factory.mktemp("encoders")
    prompts = {"query": "whale sky ", "document": "a "}
    return {
        "mean": save_encoder(root / "1", "mean", prompts=prompts),
        "cls": save_encoder(root / "2", "cls", family="roberta"),
        "dense": save_encoder(root / "3", "dense", family="modernbert", truncate_dim=9),
    }


@pytest.fixture(scope="module")
def exports(models, tmp_path_factory):
    """The folder of an encoder as exported; made when first asked for."""
    root = tmp_path_factory.mktemp("exports")

    def export(backend="onnx", kind="mean", int8=False):
        out = root / f"{kind}-{backend}-{int8}"
        texts = TEXTS if int8 else None
        return out if out.exists() else export_model(models[kind], out, backend=backend, int8=int8, texts=texts)

    return export


def original(folder):
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize(
    ("kind", "backend"), [("mean", "onnx"), ("mean", "openvino"), ("cls", "onnx"), ("dense", "openvino")]
)
def test_vectors_are_those_of_sentence_transformers(models, exports, kind, backend):
    folder, model = exports(backend, kind), original(models[kind])
    encoder = as_encoder(folder)
    assert isinstance(encoder, ExportedEncoder)
    for role, encode in zip(ROLES, (model.encode_query, model.encode_document), strict=True):
        raw = encode(TEXTS)
        assert raw.std(axis=0).mean() > 0.01
        lengths = np.linalg.norm(raw, axis=1, keepdims=True)
        np.testing.assert_allclose(encoder._encode(TEXTS, role) / lengths, raw / lengths, atol=1e-5)
        expected = encode(TEXTS, normalize_embeddings=True)
        np.testing.assert_allclose(encoder.encode(TEXTS, role), expected, atol=1e-5)
        # Whatever they are encoded with.
        for part in ([0], [7, 3], range(6, -1, -2)):
            texts = [TEXTS[place] for place in part]
            np.testing.assert_allclose(encoder.encode(texts, role), expected[list(part)], atol=1e-5)


def test_queries_and_items_have_their_prompts(models, exports):
    encoder = as_encoder(exports())
    manifest = json.loads((exports() / "crosscut.json").read_text())
    assert manifest["prompts"] == {"query": "whale sky ", "item": "a "}
    assert (manifest["kind"], manifest["max_length"]) == ("encoder", LIMIT)
    assert manifest["source"] == {"name": str(models["mean"]), "digest": as_encoder(models["mean"]).digest()}
    assert np.abs(encoder.encode(["grey"], "query") - encoder.encode(["grey"], "item")).max() > 0.01
    same = [encoder.encode(["grey"], "query"), encoder.encode(["whale sky grey"], "item")]
    assert np.abs(same[0] - same[1]).max() > 0.01  # that one got "a " in front
    cls = as_encoder(exports(kind="cls"))
    np.testing.assert_array_equal(cls.encode(TEXTS, "query"), cls.encode(TEXTS, "item"))


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
def test_int8_is_near(models, exports, backend):
    exact, encoder = as_encoder(models["mean"]), as_encoder(exports(backend, int8=True))
    for role in ROLES:
        vectors = encoder.encode(TEXTS, role)
        cosines = (vectors * exact.encode(TEXTS, role)).sum(axis=1)
        assert 0.98 < cosines.min() < 0.99999  # it is int8
        # A text has one vector: an index and a search must agree on it.
        for part in ([3], [6, 1, 3], range(0, 8, 3)):
            again = ExportedEncoder(exports(backend, int8=True), threads=1)
            np.testing.assert_array_equal(
                again.encode([TEXTS[place] for place in part], role), vectors[list(part)]
            )


def test_no_torch_and_no_transformers(exports):
    for backend in ("onnx", "openvino"):
        folder = exports(backend)
        code = (
            "import sys; from crosscut.encoders import as_encoder; "
            f"print(as_encoder({str(folder)!r}).encode(['whale'])[0, 0]); "
            "assert not {'torch', 'transformers', 'sentence_transformers', 'onnx', 'nncf'} & set(sys.modules)"
        )
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert float(ended.stdout) == pytest.approx(float(as_encoder(folder).encode(["whale"])[0, 0]), abs=1e-5)


def test_an_index_finds_its_encoder_again(exports, tmp_path):
    def length(query, texts):
        return [float(len(text)) for text in texts]

    items = [{"id": str(n), "text": text} for n, text in enumerate(TEXTS) if text]
    Index.build(items, scorer=length, encoder=exports(), path=tmp_path / "x.index")
    index = Index.load(tmp_path / "x.index", scorer=length)
    assert [hit.text for hit in index.search("whale", k=3, budget=5)]
    assert isinstance(index.encoder, ExportedEncoder)
    with pytest.raises(CrosscutError, match=r"the index was built with encoder .*, but this is encoder"):
        Index.load(tmp_path / "x.index", scorer=length, encoder=exports(kind="cls"))


def test_the_digest_follows_the_files(exports, tmp_path):
    copy = shutil.copytree(exports(), tmp_path / "copy")
    digest = as_encoder(exports()).digest()
    assert digest == as_encoder(str(copy)).digest() == ExportedEncoder(copy, threads=3).digest() != ""
    manifest = json.loads((copy / "crosscut.json").read_text())
    (copy / "crosscut.json").write_text(json.dumps(manifest | {"prompts": {}}))
    assert as_encoder(copy).digest() not in (digest, as_encoder(exports(kind="cls")).digest())


def test_scorers_are_scorers_and_encoders_encoders(exports, tmp_path):
    with pytest.raises(
        CrosscutError, match="is an exported encoder and cannot serve as scorer: name it as the enc"
    ):
        as_scorer(exports())
    copy = shutil.copytree(exports(), tmp_path / "copy")
    manifest = json.loads((copy / "crosscut.json").read_text())
    (copy / "crosscut.json").write_text(json.dumps(manifest | {"kind": "scorer"}))
    with pytest.raises(
        CrosscutError, match="is an exported scorer and cannot serve as encoder: name it as the sco"
    ):
        as_encoder(copy)


def test_texts_that_are_none(exports):
    encoder = as_encoder(exports())
    for text, message in ((None, "text 1 is of type NoneType, not a string"), ("\ud83d", "text 1 .* half a char")):
        with pytest.raises(CrosscutError, match=message):
            encoder.encode(["whale", text])
    with pytest.raises(CrosscutError, match="threads must be a whole number of at least 1, but is 0"):
        ExportedEncoder(exports(), threads=0)


def test_what_kind_a_folder_is(models, tmp_path):
    from crosscut.export.sources import load_source

    assert load_source(str(models["mean"]), None).kind == "encoder"
    old = shutil.copytree(models["mean"], tmp_path / "old")  # as it was saved when there was no other kind
    (old / "config_sentence_transformers.json").unlink()
    parts = json.loads((old / "modules.json").read_text())
    for part in parts:
        part["type"] = "sentence_transformers.models." + part["type"].rpartition(".")[2]
    (old / "modules.json").write_text(json.dumps(parts))
    (old / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 16, "do_lower_case": True}))
    source = load_source(str(old), None)
    assert (source.kind, source.max_length, source.prompts) == ("encoder", 16, {"query": "", "item": ""})
    plain = save(tmp_path / "plain")
    assert load_source(str(plain), None).kind == "scorer"
    sentence_transformers.CrossEncoder(str(plain), device="cpu").save(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "modules.json").is_file()
    assert load_source(str(tmp_path / "saved"), None).kind == "scorer"


def test_prompts_by_other_names(tmp_path):
    from crosscut.export.sources import load_source

    folder = save_encoder(tmp_path, "mean", prompts={"query": "whale ", "passage": "sky ", "other": "blue "})
    path = folder / "config_sentence_transformers.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"default_prompt_name": "other"}))
    encoder = original(folder)
    source = load_source(str(folder), None)
    assert source.prompts["query"] == "whale "
    np.testing.assert_allclose(
        encoder.encode([source.prompts["item"] + "grey"], prompt=""), encoder.encode_document(["grey"]), atol=1e-6
    )


def refused(folder, out, message, **options):
    with pytest.raises(CrosscutError, match=message):
        export_model(folder, out, **options)
    assert not out.exists()


def test_what_cannot_be_exported(models, tmp_path):
    out = tmp_path / "out"
    refused(models["mean"], out, "is an encoder and has no labels: leave label=0 out", label=0)
    copy = shutil.copytree(models["cls"], tmp_path / "copy")
    config, parts = copy / "config_sentence_transformers.json", json.loads((copy / "modules.json").read_text())
    for kind, message in (("SparseEncoder", r"is a SparseEncoder \(Transformer, Pooling\), which cannot"),):
        config.write_text(json.dumps({"model_type": kind}))
        refused(copy, out, message)
    config.write_text(json.dumps({"model_type": "CrossEncoder"}))
    refused(
        copy, out, r"is a CrossEncoder \(Transformer, Pooling\), which cannot be exported: give a cross-encoder"
    )
    config.unlink()
    dropout = {"idx": 2, "name": "2", "path": "", "type": "sentence_transformers.models.Dropout"}
    (copy / "modules.json").write_text(json.dumps([*parts, dropout]))
    refused(copy, out, "is made of Transformer, Pooling, Dropout, but only Transformer and Pooling, with Dense")
    (copy / "modules.json").write_text("{")
    refused(copy, out, "cannot load")


def test_an_encoder_that_does_more_than_its_modules_say(tmp_path):
    folder = save_encoder(tmp_path, "mean", prompts={"query": "whale "})
    path = folder / "1_Pooling" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"include_prompt": False}))
    refused(folder, tmp_path / "out", "does more with texts than its modules say .*: run it with torch")
