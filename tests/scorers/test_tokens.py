"""Pairs put together from tokens, against what each family's own tokenizer makes of the two texts."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_families import BERT_SPECIAL, ROBERTA_SPECIAL, TEXTS, TOKENIZERS, tokenizer_of, torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from crosscut.errors import CrosscutError
from crosscut.scorers import tokens as tokens_module
from crosscut.scorers.packed import Packer
from crosscut.scorers.tokens import PairTokens, TokenStore, cut_lengths, length_batches

pytestmark = pytest.mark.models

FRAGMENTS = [
    *" ".join(TEXTS[:3]).split(),
    *BERT_SPECIAL,
    *ROBERTA_SPECIAL,
    " ",
    "  ",
    "\n",
    ".",
    "É",
    "東",
    "\u200d",
]
texts = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(" ".join),
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from([*TEXTS, "whale " * 300, "x" * 3000]),
)
some_pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=5)
slow = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def pair_tokens(family, max_length=None, **options):
    tokenizer = tokenizer_of(family)
    typed = "token_type_ids" in tokenizer.model_input_names
    return PairTokens(tokenizer.backend_tokenizer, max_length, types=typed, **options)


def expected(family, pairs, max_length):
    """What the tokenizer itself makes of the pairs: (ids, token types) of each."""
    tokenizer = tokenizer_of(family)
    queries, items = zip(*pairs, strict=True)
    # As lists: alone, an empty second text would count as none.
    made = tokenizer(
        list(queries), list(items), truncation="longest_first" if max_length else False, max_length=max_length
    )
    types = made.get("token_type_ids") or [[0] * len(ids) for ids in made["input_ids"]]
    return list(zip(made["input_ids"], types, strict=True))


@pytest.mark.parametrize("family", TOKENIZERS)
@given(pairs=some_pairs, max_length=st.one_of(st.none(), st.integers(6, 40)))
@slow
def test_pairs_are_those_of_the_tokenizer(family, pairs, max_length):
    made = pair_tokens(family, max_length).pairs(pairs)
    wanted = expected(family, pairs, max_length)
    whole = expected(family, pairs, None)
    assert made.lengths.tolist() == [len(ids) for ids, _ in wanted]
    assert made.truncated == sum(len(cut[0]) < len(all[0]) for cut, all in zip(wanted, whole, strict=True))

    ids, types, mask = made.rows(np.arange(len(pairs)), pad=99)
    for row, (wanted_ids, wanted_types) in enumerate(wanted):
        n = len(wanted_ids)
        assert (ids[row, :n].tolist(), types[row, :n].tolist()) == (wanted_ids, wanted_types)
        assert (ids[row, n:] == 99).all() and (types[row, n:] == 0).all()
        assert mask[row].tolist() == [1] * n + [0] * (ids.shape[1] - n)


def packed(packer, made, order, spare=0):
    """Ids, types, positions and starts; `spare` pairs of length 0 and as many tokens must not matter."""
    lengths = made.lengths[order]
    size = int(lengths.sum())
    sent = torch.nn.functional.pad(packer.send(made, order), (0, spare))
    batch = packer.pack(sent, size + spare, longest=64)
    assert batch.positions.max() < lengths.max()  # the model may have no more positions than that
    parts = (batch.ids[:size], batch.types[:size], batch.positions[:size], batch.first[: len(order) + 1])
    return tuple(part.tolist() for part in parts)


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "deberta-v2", "modernbert"])
@given(
    pairs=some_pairs,
    more=some_pairs,
    max_length=st.integers(6, 40),
    seed=st.integers(0, 9),
    spare=st.integers(0, 3),
)
@slow
def test_packed_pairs_are_those_of_the_tokenizer(family, pairs, more, max_length, seed, spare):
    tokens = pair_tokens(family, max_length)
    packer = Packer(tokens, "cpu")
    for part in (pairs, more):  # the second time, some texts are new and some are not
        order = np.random.default_rng(seed).permutation(len(part))
        wanted = [expected(family, part, max_length)[p] for p in order]
        assert packed(packer, tokens.pairs(part), order, spare) == (
            [token for ids, _ in wanted for token in ids],
            [kind for _, kinds in wanted for kind in kinds],
            [place for ids, _ in wanted for place in range(len(ids))],
            [0, *np.cumsum([len(ids) for ids, _ in wanted])],
        )


@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
@given(pairs=some_pairs, query_tokens=st.integers(1, 8), item_tokens=st.integers(1, 8))
@slow
def test_limits_of_query_and_item(family, pairs, query_tokens, item_tokens):
    tokenizer = tokenizer_of(family)
    made = pair_tokens(family, query_tokens=query_tokens, item_tokens=item_tokens).pairs(pairs)
    ids, _, mask = made.rows(np.arange(len(pairs)))
    cut = 0
    for row, (query, item) in enumerate(pairs):
        parts = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (query, item)]
        kept = parts[0][:query_tokens], parts[1][:item_tokens]
        cut += kept != tuple(parts)
        wanted = (
            [tokenizer.cls_token_id, *kept[0], tokenizer.sep_token_id]
            + [tokenizer.sep_token_id] * (family == "xlm-roberta")
            + [*kept[1], tokenizer.sep_token_id]
        )
        assert ids[row][mask[row] == 1].tolist() == wanted
    assert made.truncated == cut


@given(
    sizes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8),
    room=st.integers(2, 40),
)
def test_the_longer_text_is_cut_first(sizes, room):
    queries, items = (np.array(part) for part in zip(*sizes, strict=True))
    kept = cut_lengths(queries, items, None, None, room)
    for (query, item), (kept_query, kept_item) in zip(sizes, zip(*kept, strict=True), strict=True):
        assert kept_query + kept_item == min(query + item, room)  # no more is cut than must be
        # What was cut was the longer one, or they went by turns.
        if kept_query < query:
            assert kept_query >= kept_item - 1
        if kept_item < item:
            assert kept_item >= kept_query - 1


@given(
    lengths=st.lists(st.integers(1, 50), max_size=40),
    tokens=st.integers(1, 200),
    waste=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_batches_of_like_length(lengths, tokens, waste):
    lengths = np.array(lengths, np.int64)
    batches = list(length_batches(lengths, tokens, waste))
    assert sorted(position for batch in batches for position in batch) == list(range(len(lengths)))
    longest = [lengths[batch].max() for batch in batches]
    assert longest == sorted(longest, reverse=True)
    for batch in batches:
        size = lengths[batch].max() * len(batch)
        assert len(batch) == 1 or size <= tokens
        assert lengths[batch].sum() >= (1 - waste) * size - 1e-6


def counting(tokenizer):
    """The tokenizer, and the texts that were given to it."""
    seen = []

    def encode_batch(texts, **options):
        seen.extend(texts)
        return tokenizer.encode_batch(texts, **options)

    return SimpleNamespace(encode_batch=encode_batch), seen


def test_every_text_is_tokenised_once():
    tokenizer, seen = counting(tokenizer_of("bert").backend_tokenizer)
    store = TokenStore(tokenizer)
    for _ in range(3):
        store.add(["whale", "sky", "whale", ""])
        store.add(["sky", "policy"])
    assert sorted(seen) == ["", "policy", "sky", "whale"]


def test_an_interruption_leaves_no_text_without_its_tokens(monkeypatch):
    tokens, append = pair_tokens("bert", 20), TokenStore._append
    pairs = [("whale", "the sky"), ("policy", "floods")]

    def interrupted(store, rows):
        append(store, rows)
        raise KeyboardInterrupt

    monkeypatch.setattr(TokenStore, "_append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tokens.pairs(pairs)
    monkeypatch.setattr(TokenStore, "_append", append)
    ids, _, mask = tokens.pairs(pairs).rows(np.arange(2))
    assert ids[mask == 1].tolist() == [token for ids, _ in expected("bert", pairs, 20) for token in ids]


def test_a_full_store_is_emptied(monkeypatch):
    monkeypatch.setattr(tokens_module, "STORE_TOKENS", 30)
    tokens = pair_tokens("roberta", 20)
    packer, emptied = Packer(tokens, "cpu"), 0
    for number in range(12):
        pairs = [("the whale", f"policy {number} covers floods"), (f"question {number % 3}?", "")]
        before = tokens.store.generation
        made = tokens.pairs(pairs)
        emptied += tokens.store.generation is not before
        assert len(tokens.store.flat) < 30 + 60
        wanted = [token for ids, _ in expected("roberta", pairs, 20) for token in ids]
        assert packed(packer, made, np.arange(2))[0] == wanted
        ids, _, mask = made.rows(np.arange(2))
        assert ids[mask == 1].tolist() == wanted
    assert emptied > 2


def test_the_tokenizer_is_left_as_it_was():
    tokenizer = TOKENIZERS["bert"]().backend_tokenizer
    tokenizer.enable_truncation(7)
    tokenizer.enable_padding(length=9)
    before = tokenizer.to_str()
    made = PairTokens(tokenizer, None).pairs([("whale " * 20, "sky")])
    assert tokenizer.to_str() == before
    assert made.lengths.tolist() == [24]


def test_markers_stand_before_query_and_item():
    tokens = pair_tokens("bert", 10, markers=(7, 8))
    made = tokens.pairs([("whale", "sky " * 9), ("", "")])
    tokenizer = tokenizer_of("bert")
    whale, sky = (tokenizer(word, add_special_tokens=False)["input_ids"] for word in ("whale", "sky"))
    ids, types, mask = made.rows(np.arange(2))
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    assert ids[0].tolist() == [cls, 7, *whale, sep, 8, *(sky * 9)[: 5 - len(whale)], sep]
    assert types[0].tolist() == [0, 0, *([0] * len(whale)), 0, *([1] * (7 - len(whale)))]
    assert ids[1][mask[1] == 1].tolist() == [cls, 7, sep, 8, sep]
    kept = ids[mask == 1].tolist(), types[mask == 1].tolist()
    assert packed(Packer(tokens, "cpu"), made, np.arange(2))[:2] == kept


def test_tokenizers_that_will_not_do():
    with pytest.raises(CrosscutError, match="does not take pairs of texts"):
        PairTokens(Tokenizer(models.BPE()), None)  # knows no token at all
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1, "cat": 2, "[SEP]": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A", pair="$B [SEP] $A", special_tokens=[("[SEP]", 3)]
    )
    with pytest.raises(CrosscutError, match="differs from its parts"):
        PairTokens(tokenizer, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query_tokens": 0}, "query_tokens must be a whole number of at least 1, but is 0"),
        ({"item_tokens": -1}, "item_tokens must be a whole number of at least 1, but is -1"),
        ({"item_tokens": 2.5}, "item_tokens must be a whole number of at least 1, but is 2.5"),
        ({"max_length": 4}, "max_length must be at least 5, but is 4"),
        ({"max_length": "many"}, "max_length must be a whole number of at least 1, but is 'many'"),
    ],
)
def test_limits_that_will_not_do(options, message):
    with pytest.raises(CrosscutError, match=message):
        pair_tokens("bert", **options)
