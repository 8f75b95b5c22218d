"""Half precision, as on a GPU, and mixed precision, as in training there: the same scores, but for rounding."""

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
from compare.tiny_compare import TEXTS, comparer_of  # noqa: E402
from crosscut.compare.comparer import ModelComparer, as_inputs  # noqa: E402

pytestmark = pytest.mark.models


@pytest.mark.parametrize("kind", ["cmc", "poly", "sum-of-max", "deformer", "mix", "bi"])
def test_half_precision(kind, encoder):
    whole, half = comparer_of(kind, encoder), comparer_of(kind, encoder)
    half.model.half()
    scores = []
    for comparer in (whole, half):
        items = comparer.encode_items(TEXTS)
        made = comparer.score(comparer.encode_queries(TEXTS[:3]), [items, items.take([4, 1]), items])
        scores.append(np.concatenate(made))
    assert scores[1].dtype == np.float32
    np.testing.assert_allclose(scores[1], scores[0], atol=0.02 * np.abs(scores[0]).max())


@pytest.mark.parametrize("kind", ["cmc", "poly", "sum-of-max", "deformer", "mix", "bi"])
def test_mixed_precision(kind, encoder):
    """Also backwards: every weight gets a gradient."""
    model = comparer_of(kind, encoder).model
    text_encoder = model.encoder("item")
    queries, items = (
        as_inputs(text_encoder.tokens(some, "item"), text_encoder.pad) for some in (TEXTS[:2], TEXTS[4:8])
    )
    places = torch.tensor([[0, 1, 2], [3, 1, 0]])
    there = torch.tensor([[True, True, True], [True, True, False]])
    made = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            query_rows, query_there = model.encode("query", queries)
            rows, rows_there = model.encode("item", items)
            rows_there = there[..., None] if rows_there is None else rows_there[places] & there[..., None]
            rows_there = rows_there.expand(-1, -1, rows.shape[1])
            scores = model.compare(query_rows, query_there, rows[places], rows_there)
        assert scores.dtype == torch.float32
        made.append(scores[there])
    torch.testing.assert_close(made[1], made[0], atol=0.05 * float(made[0].detach().abs().max()), rtol=0.05)
    made[1].square().sum().backward()
    without = [name for name, value in model.named_parameters() if value.grad is None and "pooler" not in name]
    assert not without
    assert all(torch.isfinite(value.grad).all() for value in model.parameters() if value.grad is not None)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count in other units")
def test_memory_does_not_grow_with_the_square_of_candidates(encoder):
    """16,384 candidates in one pass, and no matrix of candidates by candidates."""
    import resource

    from crosscut.compare import ItemVectors

    comparer = ModelComparer(comparer_of("cmc", encoder, layers=1, heads=1).model, device="cpu")
    items = ItemVectors.single(np.random.default_rng(0).normal(size=(16_384, 32)).astype(np.float16))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (scores,) = comparer.score(comparer.encode_queries(["whale"]), [items])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert len(scores) == 16_384
    assert grown < 500_000  # kilobytes, where such a matrix alone has a million
