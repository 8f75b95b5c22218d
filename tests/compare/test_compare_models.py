"""What holds for every kind of compare model: order, padding, chunks, folders, bad input."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.compare import ItemVectors, as_comparer
from crosscut.errors import CrosscutError

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
from compare.tiny_compare import TEXTS, comparer_of, make, save_encoder  # noqa: E402

pytestmark = pytest.mark.models
few = settings(max_examples=15, deadline=None)
WORDS = ["a", "whale", "is", "blue", "and", "the", "sky", "is", "grey"]
CLOSE = {"atol": 2e-5, "rtol": 1e-5}


@pytest.fixture(scope="module")
def known(comparer):
    return comparer.encode_queries(TEXTS), comparer.encode_items(TEXTS)


@given(data=st.data())
@few
def test_permuting_candidates_permutes_scores_and_nothing_else(comparer, known, data):
    queries, items = known
    order = data.draw(st.permutations(range(len(TEXTS))))
    query = queries.take([data.draw(st.integers(0, len(TEXTS) - 1))])
    scores, permuted = (comparer.score(query, [items.take(some)])[0] for some in (range(len(TEXTS)), order))
    np.testing.assert_allclose(permuted, scores[order], **CLOSE)


@given(data=st.data())
@few
def test_other_queries_and_other_numbers_of_candidates_change_nothing(comparer, known, data):
    queries, items = known
    place = st.integers(0, len(TEXTS) - 1)
    asked = data.draw(st.lists(place, min_size=1, max_size=5))
    lists = [data.draw(st.lists(place, max_size=9)) for _ in asked]
    together = comparer.score(queries.take(asked), [items.take(some) for some in lists])
    for query, some, scores in zip(asked, lists, together, strict=True):
        alone = comparer.score(queries.take([query]), [items.take(some)])[0]
        np.testing.assert_allclose(scores, alone, **CLOSE)
        assert scores.dtype == np.float32


def test_candidates_of_like_lengths_in_any_order_keep_their_scores(comparer):
    """They share a pass, in which the longest come first."""
    texts = [" ".join([WORDS[n % 9] for n in range(k, k + 6 + k % 2)]) for k in range(7)]
    queries, items = comparer.encode_queries(["a blue sky"]), comparer.encode_items(texts)
    scores, backwards = (comparer.score(queries, [items.take(some)])[0] for some in (range(7), range(6, -1, -1)))
    np.testing.assert_allclose(backwards[::-1], scores, **CLOSE)
    if comparer.kind != "cmc":  # of which the others are part of a score
        alone = [comparer.score(queries, [items.take([place])])[0][0] for place in range(7)]
        np.testing.assert_allclose(scores, alone, **CLOSE)


@given(data=st.data())
@few
def test_padding_changes_no_score(comparer, known, data):
    """Rows that are not there may hold anything, in queries, in candidates, and as whole candidates."""
    queries, items = known
    count, more, longer = (data.draw(st.integers(1, 5)) for _ in range(3))
    if comparer.per_item is not None:
        longer = 0
    filled = 0 if comparer.kind != "mix" else comparer.model.upper  # a query of it has so many rows per token
    with torch.inference_mode():
        query, query_there = comparer._padded(queries.take([0]))
        rows, there = comparer._padded(items.take(range(count)))
        expected = comparer.model.compare(query, query_there, rows[None], None if there is None else there[None])
        query_there = torch.ones(query.shape[:2], dtype=torch.bool)
        there = torch.ones(rows.shape[:2], dtype=torch.bool) if there is None else there
        if comparer.kind in ("sum-of-max", "deformer", "mix"):
            query = torch.nn.functional.pad(query, (0, 0, 0, 2 * max(1, filled)), value=7.0)
            query_there = torch.nn.functional.pad(query_there, (0, 2 * max(1, filled)))
        rows = torch.nn.functional.pad(rows, (0, 0, 0, longer, 0, more), value=7.0)
        there = torch.nn.functional.pad(there, (0, longer, 0, more))
        padded = comparer.model.compare(query, query_there, rows[None], there[None])
    np.testing.assert_allclose(padded[:, :count], expected, **CLOSE)


def test_a_text_is_encoded_the_same_in_any_batch(comparer, known):
    queries, items = known
    for place, text in enumerate(TEXTS):
        alone, among = comparer.encode_items([text]).rows, items.take([place]).rows
        np.testing.assert_allclose(alone.astype(np.float32), among.astype(np.float32), atol=4e-3)
        np.testing.assert_allclose(comparer.encode_queries([text]).rows, queries.take([place]).rows, atol=2e-5)
    assert items.rows.dtype == np.float16 and queries.rows.dtype == np.float32
    assert len(items) == len(TEXTS) and items.rows.shape[1] == comparer.width
    if comparer.per_item is not None:
        assert (items.counts == comparer.per_item).all()
    else:
        assert items.counts[3] == 2  # an empty text has its two special tokens


def test_chunks(comparer, encoder, known):
    queries, items = known
    queries, candidates = queries.take([0, 1, 2]), [items, items.take(range(7)), items.take(range(5))]
    whole = comparer.score(queries, candidates)
    for chunk in (4, 13, 100):
        chunked = comparer_of(comparer.kind, encoder, chunk=chunk).score(queries, candidates)
        for scores, expected in zip(chunked, whole, strict=True):
            if comparer.kind == "cmc" and len(expected) > chunk:
                assert np.abs(scores - expected).max() > 1e-3  # they saw other candidates
            else:
                np.testing.assert_allclose(scores, expected, **CLOSE)


@pytest.mark.parametrize("room", [32_768, 8])
def test_chunks_of_cmc_are_compared_apart(encoder, room, monkeypatch):
    """Also where chunks of several queries share a pass, or a pass has no room for all of one query."""
    from crosscut.compare import comparer as module

    monkeypatch.setitem(module.ROWS, "cpu", room)
    whole, chunked = comparer_of("cmc", encoder), comparer_of("cmc", encoder, chunk=4)
    queries, items = whole.encode_queries(TEXTS[:2]), whole.encode_items(TEXTS)
    parts = np.array_split(np.arange(len(TEXTS)), -(-len(TEXTS) // 4))  # no chunk is left with few
    lists = [items, items.take(range(len(TEXTS))[::-1])]
    for number, (scores, own) in enumerate(zip(chunked.score(queries, lists), lists, strict=True)):
        apart = [whole.score(queries.take([number]), [own.take(part)])[0] for part in parts]
        np.testing.assert_allclose(scores, np.concatenate(apart), **CLOSE)


def test_more_candidates_than_cmc_takes_are_always_divided(encoder, monkeypatch):
    whole = comparer_of("cmc", encoder)
    assert whole.model.largest == 16_384
    query, items = whole.encode_queries(TEXTS[:1]), whole.encode_items(TEXTS)
    chunked = comparer_of("cmc", encoder, chunk=5).score(query, [items])[0]
    monkeypatch.setattr(whole.model, "largest", 5)
    np.testing.assert_allclose(whole.score(query, [items])[0], chunked, **CLOSE)


@pytest.mark.parametrize("two", [False, True])
def test_save_and_load_keep_scores(comparer, encoder, two, tmp_path):
    comparer = comparer_of(comparer.kind, encoder, two=two)
    comparer.save(tmp_path / "model")
    again = as_comparer(tmp_path / "model", device="cpu")
    assert again.kind == comparer.kind and again.digest() == comparer.digest() != ""
    assert (tmp_path / "model" / "query-encoder").is_dir() == two
    queries, items = comparer.encode_queries(TEXTS[:2]), comparer.encode_items(TEXTS)
    np.testing.assert_array_equal(again.encode_items(TEXTS).rows, items.rows)
    for one, other in zip(again.score(queries, [items] * 2), comparer.score(queries, [items] * 2), strict=True):
        np.testing.assert_array_equal(one, other)


def test_float16_rows_score_as_float32_ones(comparer):
    queries, items = comparer.encode_queries(TEXTS[:1]), comparer.encode_items(TEXTS)
    exact = comparer._checked(TEXTS, "item", False)
    rounded, whole = comparer.score(queries, [items])[0], comparer.score(queries, [exact])[0]
    np.testing.assert_allclose(rounded, whole, atol=5e-3 * max(1, np.abs(whole).max()))


def test_the_digest_follows_weights_and_settings(comparer, encoder):
    other = comparer_of(comparer.kind, encoder)
    assert other.digest() == comparer.digest()
    with torch.no_grad():
        next(other.model.parameters()).add_(1.0)
    assert comparer_of("cmc", encoder, skip="mean").digest() != comparer_of("cmc", encoder).digest()
    other._digest = None
    assert other.digest() != comparer.digest()


def test_the_digest_follows_the_words(encoder, tmp_path):
    comparer_of("cmc", encoder).save(tmp_path / "cmc")
    digest = as_comparer(tmp_path / "cmc", device="cpu").digest()
    path = tmp_path / "cmc" / "encoder" / "tokenizer.json"
    about = json.loads(path.read_text())
    words = about["model"]["vocab"]
    one, other = list(words)[-2:]
    words[one], words[other] = words[other], words[one]
    path.write_text(json.dumps(about))
    assert as_comparer(tmp_path / "cmc", device="cpu").digest() != digest
    for file in path.parent.glob("*token*"):
        file.unlink()
    with pytest.raises(CrosscutError, match=r"encoder has no tokenizer: save it there too|cannot load"):
        as_comparer(tmp_path / "cmc", device="cpu")


def test_a_folder_holds_the_last_model_that_was_saved_there(encoder, tmp_path):
    from crosscut.compare.comparer import ModelComparer

    ModelComparer(make("cmc", encoder, two=True), device="cpu").save(tmp_path / "model")
    last = comparer_of("bi", encoder)
    last.save(tmp_path / "model")
    assert as_comparer(tmp_path / "model", device="cpu").digest() == last.digest()


def test_a_pass_has_room_for_the_query_before_every_candidate(encoder, monkeypatch):
    from crosscut.compare import comparer as module

    monkeypatch.setitem(module.ROWS, "cpu", 64)
    model, seen = comparer_of("deformer", encoder), []
    compare = model.model.compare
    monkeypatch.setattr(
        model.model, "compare", lambda *given: (seen.append(given[2].shape[1]), compare(*given))[1], raising=False
    )
    query = model.encode_queries(["blue sky " * 12])
    items = model.encode_items(["whale"] * 20)
    (scores,) = model.score(query, [items])
    rows = len(query.rows) + items.counts[0]
    assert max(seen) <= max(1, 64 // rows) and sum(seen) == 20
    np.testing.assert_allclose(scores, scores[0], atol=1e-5)


def test_too_little_memory_is_said(encoder, monkeypatch):
    model = comparer_of("cmc", encoder)

    def full(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")

    monkeypatch.setattr(model.model, "compare", full, raising=False)
    with pytest.raises(CrosscutError, match=r"not enough memory on cpu to compare 2 candidates .*chunk=1024"):
        model.score(model.encode_queries(["whale"]), [model.encode_items(["sky", "a"])])


def test_a_cross_encoder_is_no_compare_model(tmp_path):
    import tiny_families
    import transformers

    folder = tiny_families.save(
        tmp_path / "cross",
        "bert",
        transformers.AutoModelForSequenceClassification,
        tiny_families.tokenizer_of("bert"),
        num_labels=1,
    )
    with pytest.raises(CrosscutError, match=r"ForSequenceClassification, which scores pairs: it is for --scorer"):
        as_comparer(folder)


def test_a_fresh_model_ranks_about_as_its_encoder(encoder):
    from crosscut.compare.comparer import ModelComparer
    from crosscut.compare.registry import model_class
    from crosscut.compare.text_encoder import TextEncoder
    from crosscut.encoders import as_encoder

    bi = as_encoder(encoder, device="cpu")
    cosines = bi.encode(TEXTS, "query") @ bi.encode(TEXTS, "item").T
    kinds = [("cmc", {"skip": skip}) for skip in ("add", "mean", "none")] + [("mix", {}), ("poly", {}), ("bi", {})]
    for kind, options in kinds:
        model = model_class(kind)(TextEncoder.load(encoder), **options)
        comparer = ModelComparer(model, device="cpu")
        items = comparer.encode_items(TEXTS)
        scores = np.stack(comparer.score(comparer.encode_queries(TEXTS), [items] * len(TEXTS)))
        assert np.corrcoef(scores.ravel(), cosines.ravel())[0, 1] > 0.97, kind
        if kind != "bi":
            slope = np.polyfit(cosines.ravel(), scores.ravel(), 1)[0]
            assert 0.7 < slope / comparer.width**0.5 < 1.3, kind


def test_texts_and_lists_that_are_empty(comparer):
    nothing = comparer.encode_items([])
    assert len(nothing) == 0 and nothing.rows.shape == (0, comparer.width)
    assert comparer.score(comparer.encode_queries([]), []) == []
    scores = comparer.score(comparer.encode_queries(["whale", "sky"]), [nothing, comparer.encode_items(["a"])])
    assert [len(some) for some in scores] == [0, 1] and scores[0].dtype == np.float32


def test_bad_input(comparer):
    queries, items = comparer.encode_queries(["whale"]), comparer.encode_items(["sky", "a"])
    with pytest.raises(CrosscutError, match="1 queries have 2 lists of candidates"):
        comparer.score(queries, [items, items])
    other = ItemVectors.single(np.zeros((2, comparer.width + 1), np.float16))
    with pytest.raises(CrosscutError, match=f"has {comparer.width} dimensions: encode them with this model"):
        comparer.score(queries, [other])
    with pytest.raises(CrosscutError, match="put it in a list"):
        comparer.encode_items("whale")
    with pytest.raises(CrosscutError, match="text 1 is of type int"):
        comparer.encode_queries(["whale", 3])
    with pytest.raises(CrosscutError, match="half a character"):
        comparer.encode_queries(["\ud800"])
    if comparer.per_item is not None:
        rows = np.zeros((7, comparer.width), np.float16)
        with pytest.raises(CrosscutError, match="2 candidates have 7 vectors"):
            comparer.score(queries, [ItemVectors(rows, np.array([0, 3, 7]))])


def test_folders_that_are_no_compare_models(encoder, tmp_path):
    with pytest.raises(CrosscutError, match="there is no model folder"):
        as_comparer(tmp_path / "nothing")
    with pytest.raises(CrosscutError, match="is not the folder of a compare model"):
        as_comparer(tmp_path)
    with pytest.raises(CrosscutError, match="cannot compare with 3"):
        as_comparer(3)
    comparer_of("cmc", encoder).save(tmp_path / "cmc")
    with pytest.raises(CrosscutError, match="is a compare model, and no bi-encoder: leave 'bi:' out"):
        as_comparer(f"bi:{tmp_path / 'cmc'}")
    about = json.loads((tmp_path / "cmc" / "compare.json").read_text())
    for change, message in (
        ({"kind": "cnc"}, "there is no compare model 'cnc'"),
        ({"format": 2}, "has format 2"),
        ({"settings": 3}, "damaged"),
        ({"settings": {"tail": 3}}, "has no setting 'tail'"),
        ({"settings": {"layers": 3}}, "has not the weights of a cmc"),
        ({"settings": {**about["settings"], "heads": 5}}, "cannot be divided among 5 heads"),
    ):
        (tmp_path / "cmc" / "compare.json").write_text(json.dumps(about | change))
        with pytest.raises(CrosscutError, match=message):
            as_comparer(tmp_path / "cmc", device="cpu")
    (tmp_path / "cmc" / "compare.json").write_text("{")
    with pytest.raises(CrosscutError, match="damaged"):
        as_comparer(tmp_path / "cmc", device="cpu")


def test_a_model_on_the_hub(encoder, tmp_path, monkeypatch):
    """The hub as this machine would have it after a download; and one that cannot be reached."""
    from crosscut.compare import comparer as module

    comparer_of("poly", encoder).save(tmp_path / "poly")
    monkeypatch.setattr(module, "cached_file", lambda name, file, **_: str(tmp_path / "poly" / file))
    monkeypatch.setattr(module, "snapshot_download", lambda name, **_: str(tmp_path / "poly"))
    model = as_comparer("someone/poly", device="cpu")
    assert (model.kind, model.name) == ("poly", "someone/poly")

    def unreachable(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(module, "cached_file", unreachable)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CrosscutError, match="cannot load 'someone/poly'"):
        as_comparer("someone/poly", device="cpu")


def test_a_plain_encoder_is_the_plain_bi_encoder(encoder):
    from crosscut.encoders import as_encoder

    named, plain, bi = (
        as_comparer(f"bi:{encoder}", device="cpu"),
        as_comparer(encoder, device="cpu"),
        as_encoder(encoder),
    )
    assert named.kind == plain.kind == "bi" and named.digest() == plain.digest()
    np.testing.assert_allclose(plain.encode_queries(TEXTS).rows, bi.encode(TEXTS, "query"), atol=1e-5)
    scores = plain.score(plain.encode_queries(TEXTS), [plain.encode_items(TEXTS)] * len(TEXTS))
    expected = bi.encode(TEXTS, "query") @ bi.encode(TEXTS, "item").T
    np.testing.assert_allclose(scores, expected, atol=2e-3)
    assert as_comparer(plain) is plain


@pytest.mark.parametrize("family", ["roberta", "distilbert", "modernbert", "electra"])
def test_other_architectures(family, tmp_path):
    folder = save_encoder(tmp_path / family, family)
    for kind in ("cmc", "poly", "sum-of-max", "mix"):
        comparer = comparer_of(kind, folder)
        items = comparer.encode_items(TEXTS)
        scores = comparer.score(comparer.encode_queries(TEXTS[:2]), [items, items.take([1])])
        np.testing.assert_allclose(scores[1].shape, (1,))
    if family != "roberta":
        with pytest.raises(CrosscutError, match=f"DeFormer cannot divide the layers of a {family}"):
            make("deformer", folder)


def test_bad_settings(encoder):
    for kind, options, message in (
        ("cmc", {"skip": "half"}, "there is no skip connection 'half'"),
        ("cmc", {"layers": 0}, "layers must be a whole number of at least 1"),
        ("poly", {"codes": 0}, "codes must be"),
        ("sum-of-max", {"dim": 0}, "dim must be"),
        ("deformer", {"lower": 2}, "lower must be below 2"),
        ("mix", {"upper": 3}, "upper must be at most 2"),
    ):
        with pytest.raises(CrosscutError, match=message):
            make(kind, encoder, **options)
