"""Rows of tokens that are put together on the device are those that the scorers make, whatever the chunks are."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.models

TEXTS = ["the cat", "", "where is the whale of the sea", "a", "owl in the wood", "the dog lives in a house"]


def pair_tokens(base, markers=None, types=True):
    from transformers import AutoTokenizer

    from crosscut.scorers.tokens import PairTokens

    tokenizer = AutoTokenizer.from_pretrained(base).backend_tokenizer
    return PairTokens(tokenizer, 12, query_tokens=4, markers=markers, types=types)


@pytest.mark.parametrize(("markers", "types"), [(None, True), ((7, 9), True), (None, False)])
def test_the_rows_are_those_of_the_scorers(base, markers, types):
    from crosscut.scorers.tokens import cut_lengths
    from crosscut.train.batches import TokenRows

    tokens = pair_tokens(base, markers, types)
    template = tokens.template
    kinds = template.query_type, template.item_type
    rows = TokenRows(tokens.store, (template.before, template.between, template.after), kinds, pad=3)
    (numbers,) = rows.add(TEXTS)
    queries, items = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    sizes = cut_lengths(rows.sizes(queries), rows.sizes(items), 4, None, tokens.room)
    inputs = rows.inputs(list(zip((queries, items), sizes, strict=True)), torch.device("cpu"))
    expected = tokens.pairs([(query, item) for query in TEXTS for item in TEXTS])
    seen = []
    for start, end, width, is_padded in inputs["chunks"]:
        ids, token_types, mask = (part.numpy() for part in rows.table(inputs["parts"][:, :, start:end], width))
        positions = inputs["order"][start:end].numpy()
        for made, right in zip((ids, token_types, mask), expected.rows(positions, pad=3), strict=True):
            np.testing.assert_array_equal(made, right)
        assert is_padded == (not mask.all())
        seen += positions.tolist()
    assert sorted(seen) == list(range(len(TEXTS) ** 2))


def test_a_gpu_gets_larger_chunks(base):
    from crosscut.train.batches import CHUNKS, TokenRows

    tokens = pair_tokens(base)
    template = tokens.template
    rows = TokenRows(tokens.store, (template.before, template.between, template.after), (0, 1), pad=0)
    (numbers,) = rows.add(TEXTS * 9000)
    texts = [(numbers, rows.sizes(numbers)), (numbers, rows.sizes(numbers))]
    cpu, gpu = (rows.inputs(texts, torch.device(name))["chunks"] for name in ("cpu", "cuda"))
    largest = [max((end - start) * width for start, end, width, _ in chunks) for chunks in (cpu, gpu)]
    assert largest[0] <= CHUNKS["cpu"][0] < largest[1] <= CHUNKS["cuda"][0]
    assert len(gpu) < len(cpu)
    assert sum(end - start for start, end, _, _ in gpu) == len(numbers)

    few = [(numbers[: len(TEXTS)], rows.sizes(numbers[: len(TEXTS)])) for _ in range(2)]
    one, several = (rows.inputs(few, torch.device(name))["chunks"] for name in ("cuda", "cpu"))
    assert len(one) == 1 < len(several)  # a GPU takes no longer for the padding


def test_attention_has_no_mask_where_nothing_is_padded(base, monkeypatch):
    """So that its fastest kernel may be used: transformers must not make a mask of its own."""
    from transformers import AutoModel

    masks, attention = [], torch.nn.functional.scaled_dot_product_attention

    def watch(*given, **named):
        masks.append(named.get("attn_mask"))
        return attention(*given, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watch)
    AutoModel.from_pretrained(base)(input_ids=torch.ones(2, 5, dtype=torch.long))
    assert masks and all(mask is None for mask in masks)


def test_texts_are_cut_as_the_library_cuts_them(base):
    from transformers import AutoTokenizer

    from crosscut.scorers.tokens import TokenStore
    from crosscut.train.batches import WholeTexts

    tokenizer = AutoTokenizer.from_pretrained(base)
    for limit in (None, 5):
        store = TokenStore(WholeTexts(tokenizer, limit))
        numbers = store.add(TEXTS)
        limits = {"truncation": True, "max_length": limit} if limit else {}
        assert [store.ids(number).tolist() for number in numbers] == tokenizer(TEXTS, **limits)["input_ids"]
