"""Training examples from each kind of data, and negatives that are none of the answers."""

import json

import numpy as np
import pytest
import tiny_data

from crosscut.data import Mention, write_beir, write_blink
from crosscut.encoders import GivenVectors
from crosscut.errors import CrosscutError
from crosscut.train.data import Examples
from crosscut.train.mining import finder, mine
from crosscut.train.negatives import Groups
from crosscut.train.settings import Settings
from crosscut.train.splits import read_examples, read_splits
from crosscut.types import Item, Query


def test_beir(beir):
    train, dev = read_splits(beir, Settings())
    assert (len(train), len(dev), len(train.items)) == (60, 12, 72)
    assert train.queries[0] == "where is the whale of the house"
    assert [train.items[place] for place in train.positives[0]] == ["the whale lives in the house"]
    assert not set(train.query_ids) & set(dev.query_ids)
    assert len(read_splits(beir, Settings(dev_queries=5))[1]) == 5


def test_without_a_dev_split_a_tenth_is_set_apart(beir):
    train, dev = read_splits(beir, Settings(split="dev", dev="train", dev_queries=99))
    assert (len(train), len(dev)) == (12, 60)
    (beir.parent / "only").mkdir(exist_ok=True)
    items, queries = tiny_data.items(), tiny_data.queries()
    write_beir(beir.parent / "only", items, queries, {"train": {q.id: {q.id[2:]: 1} for q in queries}})
    train, dev = read_splits(beir.parent / "only", Settings(seed=3))
    assert (len(train), len(dev)) == (65, 7)
    assert not set(train.query_ids) & set(dev.query_ids)


def test_worlds_of_mentions(worlds):
    examples = read_examples(worlds, "train", window=3)
    place = examples.query_ids.index("wild-cat-sea")
    assert examples.queries[place] == "the sea lives [M_s] cat [M_e] of the sea"
    assert examples.items[examples.positives[place][0]] == "cat [ENT] animal of the sea"
    assert {len(pool) for pool in examples.pools} == {36}
    assert len(set(examples.pools)) == 2
    assert examples.markers == ("[M_s]", "[M_e]", "[ENT]")


def test_zeshel(tmp_path):
    (tmp_path / "documents").mkdir(), (tmp_path / "mentions").mkdir()
    documents = [
        {"document_id": "D1", "title": "Brick", "text": "a part"},
        {"document_id": "D2", "title": "Story", "text": "he took a lego brick and went"},
    ]
    (tmp_path / "documents" / "lego.json").write_text("\n".join(map(json.dumps, documents)))
    mention = {"mention_id": "M1", "context_document_id": "D2", "label_document_id": "D1", "corpus": "lego"}
    mention |= {"text": "lego brick", "start_index": 3, "end_index": 4, "category": "LOW_OVERLAP"}
    (tmp_path / "mentions" / "train.json").write_text(json.dumps(mention))
    examples = read_examples(tmp_path, "train")
    assert examples.queries == ["he took a [M_s] lego brick [M_e] and went"]
    assert examples.items == ["Brick [ENT] a part", "Story [ENT] he took a lego brick and went"]
    assert examples.positives == [(0,)]


def test_a_file_of_mentions(tmp_path):
    write_blink(tmp_path / "m.jsonl", [Mention("m1", "on the", "bank", "", "7")])
    (tmp_path / "entities.jsonl").write_text('{"id": "7", "title": "Bank", "text": "of a river"}\n')
    examples = read_examples(tmp_path / "m.jsonl", "train", items=tmp_path / "entities.jsonl")
    assert examples.items == ["Bank [ENT] of a river"]
    with pytest.raises(CrosscutError, match="is a file of mentions: name the file of their entities"):
        read_examples(tmp_path / "m.jsonl", "train")


def test_what_is_judged_was_not_trained_on(beir, tmp_path):
    with pytest.raises(CrosscutError, match="dev and split are both 'train'"):
        read_splits(beir, Settings(dev="train"))
    write_blink(tmp_path / "m.jsonl", [Mention(f"m{n}", "on the", "bank", "", "7") for n in range(20)])
    (tmp_path / "entities.jsonl").write_text('{"id": "7", "title": "Bank", "text": "of a river"}\n')
    given = {"items": tmp_path / "entities.jsonl"}
    train, dev = read_splits(tmp_path / "m.jsonl", Settings(**given))
    assert (len(train), len(dev)) == (18, 2) and not set(train.query_ids) & set(dev.query_ids)
    for splits in ({"dev": "val"}, {"split": "test"}):
        with pytest.raises(CrosscutError, match="is one file, without splits"):
            read_splits(tmp_path / "m.jsonl", Settings(**given, **splits))


def test_labels_that_point_to_nothing(tmp_path):
    worlds = tiny_data.save_worlds(tmp_path / "worlds")
    write_beir(tmp_path / "beir", [Item("a", "flood")], [Query("q", "water?")], {"train": {"q": {"b": 1}}})
    message = "1 labels point to items that are not there, the first: 'b' of query 'q'"
    with pytest.raises(CrosscutError, match=message):
        read_examples(tmp_path / "beir", "train")
    write_blink(worlds / "mentions" / "lost.jsonl", [Mention("m1", "", "x", "", "nowhere", "wild")])
    with pytest.raises(CrosscutError, match="1 labels point to items that are not there, the first: 'nowhere'"):
        read_examples(worlds, "lost")
    write_blink(worlds / "mentions" / "moon.jsonl", [Mention("m1", "", "x", "", "cat-sea", "moon")])
    with pytest.raises(CrosscutError, match=r"mentions of world 'moon', but .* has no moon\.jsonl"):
        read_examples(worlds, "moon")
    with pytest.raises(CrosscutError, match="no query has an item that answers it"):
        Examples.of([Query("q", "water?")], [Item("a", "flood")], {"q": {"a": 0}})


def some_examples(worlds, n=40):
    return read_examples(worlds, "train").take(range(n))


@pytest.mark.parametrize("source", ["bm25", "tfidf", "encoder"])
def test_mined_negatives_are_of_the_same_world_and_no_answers(worlds, source):
    examples = some_examples(worlds)
    if source == "encoder":
        texts = list(dict.fromkeys(examples.queries + examples.items))
        source = GivenVectors(texts, np.random.default_rng(0).normal(size=(len(texts), 5)))
    mined = mine(examples, finder(source), depth=50)
    for row, pool, positives in zip(mined, examples.pools, examples.positives, strict=True):
        found = row[row >= 0]
        assert len(found) == 35 and len(set(found)) == 35
        assert (row[35:] == -1).all()
        assert all(item in pool for item in found)
        assert not set(found) & set(positives)


def test_the_twin_of_an_answer_is_no_negative():
    items = [Item("a", "flood"), Item("b", "flood"), Item("c", "fire"), Item("d", "storm")]
    examples = Examples.of([Query("q", "flood")], items, {"q": {"a": 1}})
    assert set(mine(examples, finder("bm25"), depth=3)[0].tolist()) == {2, 3, -1}
    assert set(Groups(examples, [], count=2, seed=0)[0].items[1:].tolist()) == {2, 3}
    with pytest.raises(
        CrosscutError, match="query 'q' has only 2 items that do not answer it, but 3 are asked for"
    ):
        Groups(examples, [], count=3, seed=0)


def test_rows_depend_on_seed_and_epoch_alone(worlds):
    examples = some_examples(worlds)
    mined = [mine(examples, finder("bm25"), depth=10)]
    groups, same = Groups(examples, mined, 6, seed=1), Groups(examples, mined, 6, seed=1)
    first = [groups[query].items.tolist() for query in range(len(examples))]
    assert first == [same[query].items.tolist() for query in reversed(range(len(examples)))][::-1]
    groups.epoch = 1
    assert first != [groups[query].items.tolist() for query in range(len(examples))]
    for query, row in enumerate(first):
        assert len(set(row)) == 7 and row[0] in examples.positives[query]
        assert all(item in examples.pools[query] for item in row)
        assert len(set(row[1:]) & set(mined[0][query].tolist())) >= 3
