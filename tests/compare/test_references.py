"""Each kind of compare model against a plain, slow way to the same scores: one pair or one row at a time."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
from compare.tiny_compare import TEXTS, comparer_of  # noqa: E402

pytestmark = pytest.mark.models
QUERIES = [0, 1, 3, 6]


def scored(comparer):
    queries, items = comparer.encode_queries(TEXTS), comparer.encode_items(TEXTS)
    scores = comparer.score(queries.take(QUERIES), [items] * len(QUERIES))
    rows = [
        [part.rows[start:end].astype(np.float64) for start, end in zip(part.starts, part.starts[1:], strict=False)]
        for part in (queries, items)
    ]
    return np.stack(scores), [rows[0][n] for n in QUERIES], rows[1]


def weights(model):
    return {name: value.detach().double().numpy() for name, value in model.own_state().items()}


def to_length(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True) * math.sqrt(rows.shape[-1])


def softmax(values):
    shares = np.exp(values - values.max())
    return shares / shares.sum()


def norm(row, weight, bias):
    return (row - row.mean()) / np.sqrt(row.var() + 1e-5) * weight + bias


def gelu(row):
    return np.array([0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in row])


def layer(own, prefix, rows, context, heads):
    """One row and one head at a time."""
    w = {name.removeprefix(prefix): value for name, value in own.items() if name.startswith(prefix)}
    keys, values = np.split(context @ w["context.weight"].T + w["context.bias"], 2, axis=1)
    size, made = keys.shape[1] // heads, []
    for row in rows:
        query = w["query.weight"] @ row + w["query.bias"]
        parts = []
        for head in range(heads):
            cut = slice(head * size, (head + 1) * size)
            parts.append(softmax(keys[:, cut] @ query[cut] / math.sqrt(size)) @ values[:, cut])
        row = row + w["attended.weight"] @ np.concatenate(parts) + w["attended.bias"]
        row = norm(row, w["first_norm.weight"], w["first_norm.bias"])
        inside = w["down.weight"] @ gelu(w["up.weight"] @ row + w["up.bias"]) + w["down.bias"]
        made.append(norm(row + inside, w["second_norm.weight"], w["second_norm.bias"]))
    return np.array(made)


@pytest.mark.parametrize("skip", ["add", "mean", "none"])
@pytest.mark.parametrize("marks", [False, True])
def test_cmc(encoder, skip, marks):
    comparer = comparer_of("cmc", encoder, skip=skip, marks=marks, layers=2)
    scores, queries, items = scored(comparer)
    own = weights(comparer.model)
    for query, found in zip(queries, scores, strict=True):
        rows = to_length(np.concatenate([query, *items]))
        if marks:
            rows[0] += own["marks"][0]
            rows[1:] += own["marks"][1]
        for number in range(2):
            made = layer(own, f"layers.{number}.", rows, rows, heads=2)
            rows = {"add": rows + made, "mean": (rows + made) / 2, "none": made}[skip]
        scale = math.sqrt(rows.shape[1]) * (9 if skip == "add" else 1)
        np.testing.assert_allclose(found, rows[1:] @ rows[0] / scale, rtol=2e-4, atol=2e-4)


def test_cmc_has_the_layers_of_torch(encoder):
    """Ours and torch.nn.TransformerEncoderLayer, which the paper uses, are the same function."""
    comparer = comparer_of("cmc", encoder, layers=1)
    ours = comparer.model.layers[0]
    theirs = torch.nn.TransformerEncoderLayer(32, 2, 128, 0.0, activation="gelu", batch_first=True).eval()
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.context.weight]))
        theirs.self_attn.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.context.bias]))
        for one, other in (
            (theirs.self_attn.out_proj, ours.attended),
            (theirs.linear1, ours.up),
            (theirs.linear2, ours.down),
            (theirs.norm1, ours.first_norm),
            (theirs.norm2, ours.second_norm),
        ):
            one.load_state_dict(other.state_dict())
        rows = torch.randn(3, 5, 32)
        there = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] * 5])
        made, expected = ours(rows, rows, there), theirs(rows, src_key_padding_mask=~there)
    torch.testing.assert_close(made[there], expected[there], atol=1e-5, rtol=1e-5)


def test_poly(encoder):
    comparer = comparer_of("poly", encoder, codes=3)
    scores, queries, items = scored(comparer)
    assert all(len(query) == 3 for query in queries)
    for query, found in zip(queries, scores, strict=True):
        query = to_length(query)
        for item, score in zip(items, found, strict=True):
            item = to_length(item)[0]
            mixed = softmax(query @ item / math.sqrt(len(item))) @ query
            assert mixed @ item / math.sqrt(len(item)) == pytest.approx(score, abs=1e-4)


def test_the_codes_of_poly_attend_over_tokens(encoder):
    comparer = comparer_of("poly", encoder, codes=3)
    states = token_states(comparer, 0)
    codes = weights(comparer.model)["codes.codes"]
    expected = [softmax(states @ code) @ states for code in codes]
    np.testing.assert_allclose(comparer.encode_queries(TEXTS).take([0]).rows, expected, atol=1e-5)


def token_states(comparer, place):
    text_encoder = comparer.model.encoder("query")
    ids = text_encoder.tokens([TEXTS[place]], "query")
    with torch.no_grad():
        return text_encoder.inner(input_ids=torch.tensor(ids)).last_hidden_state[0].double().numpy()


@pytest.mark.parametrize("dim", [None, 5])
def test_sum_of_max(encoder, dim):
    comparer = comparer_of("sum-of-max", encoder, dim=dim)
    scores, queries, items = scored(comparer)
    assert queries[0].shape[1] == (dim or 32)
    for query, found in zip(queries, scores, strict=True):
        for item, score in zip(items, found, strict=True):
            expected = sum(max(float(token @ other) for other in item) for token in query)
            assert expected == pytest.approx(score, abs=1e-3)
    states = token_states(comparer, 0)
    if dim:
        states = states @ weights(comparer.model)["down.weight"].T
    expected = states / np.linalg.norm(states, axis=1, keepdims=True)
    np.testing.assert_allclose(comparer.encode_queries(TEXTS[:1]).rows, expected, atol=1e-5)


def test_deformer(encoder):
    """One pair at a time through the layers of the encoder; with no layer below it would be a cross-encoder."""
    comparer = comparer_of("deformer", encoder, lower=1)
    scores, queries, items = scored(comparer)
    inner, head = comparer.model.encoder("item").inner, comparer.model.head
    for query, found in zip(queries, scores, strict=True):
        for item, score in zip(items, found, strict=True):
            rows = torch.tensor(np.concatenate([query, item]), dtype=torch.float32)[None]
            with torch.no_grad():
                made = inner.encoder.layer[1](rows)
                expected = float(head(made[0, 0]))
            assert expected == pytest.approx(score, abs=1e-3)
    with torch.no_grad():
        ids = torch.tensor(comparer.model.encoder("item").tokens(TEXTS[:1], "item"))
        expected = inner(input_ids=ids, output_hidden_states=True).hidden_states[1][0]
    np.testing.assert_allclose(comparer.encode_queries(TEXTS[:1]).rows, expected, atol=1e-5)


@pytest.mark.parametrize(("upper", "contexts"), [(1, 1), (2, 1), (2, 3)])
def test_mix(encoder, upper, contexts):
    comparer = comparer_of("mix", encoder, upper=upper, contexts=contexts)
    scores, queries, items = scored(comparer)
    own = weights(comparer.model)
    for query, found in zip(queries, scores, strict=True):
        read = query[1:].reshape(-1, upper, query.shape[1])
        for item, score in zip(items, found, strict=True):
            rows = to_length(item)
            for number in range(upper):
                rows = layer(own, f"layers.{number}.", rows, read[:, number], heads=2)
            expected = to_length(query[:1])[0] @ rows.mean(axis=0) / math.sqrt(query.shape[1])
            assert expected == pytest.approx(score, abs=2e-4, rel=2e-4)
    inner = comparer.model.encoder("query").inner
    with torch.no_grad():
        ids = torch.tensor(comparer.model.encoder("query").tokens(TEXTS[:1], "query"))
        states = inner(input_ids=ids, output_hidden_states=True).hidden_states
    rows = comparer.encode_queries(TEXTS[:1]).rows
    np.testing.assert_allclose(rows[1 + upper - 1 :: upper], states[-2][0], atol=1e-5)


def test_bi(encoder):
    scores, queries, items = scored(comparer_of("bi", encoder, scale=3.0))
    for query, found in zip(queries, scores, strict=True):
        np.testing.assert_allclose(found, [3 * float(query[0] @ item[0]) for item in items], atol=1e-4)
