"""Items in the place of queries, as a model that was trained on queries and items wants them (ANNCUR A.2)."""

import json

import numpy as np

from crosscut import Index, Item
from crosscut.cli import main
from crosscut.data import as_entity

ENTITIES = [Item(str(n), f"number {n} of the house", title=f"Room {n}") for n in range(8)]


def shared_words(query, texts):
    shared_words.asked.append(query)
    return [float(len(set(query.split()) & set(text.split()))) for text in texts]


shared_words.asked = []


def test_an_entity_stands_as_a_mention_of_itself():
    shared_words.asked = []
    index = Index.build(map(as_entity, ENTITIES), scorer=shared_words, encoder=False, anchor_items=3)
    asked = sorted(set(shared_words.asked))
    assert len(asked) == 3
    for query in asked:
        number = query.split()[2]
        assert query == f"[M_s] Room {number} [M_e] number {number} of the house"
    for method in ("itemcur", "fixeditem"):
        result = index.search("the [M_s] Room 5 [M_e] was cold", k=1, budget=6, method=method)
        assert np.isfinite(result[0].score) and result[0].text.startswith("Room")


def test_another_item_stands_as_it_is():
    shared_words.asked = []
    Index.build(ENTITIES, scorer=shared_words, encoder=False, anchor_items=2)
    assert set(shared_words.asked) <= {item.content for item in ENTITIES}


def test_entities_from_the_shell(tmp_path, capsys):
    lines = [json.dumps({"id": item.id, "title": item.title, "text": item.text}) for item in ENTITIES]
    (tmp_path / "rooms.jsonl").write_text("\n".join(lines))
    out = tmp_path / "rooms.index"
    scorer = ["--scorer", "python:test_item_anchors:shared_words"]
    given = [*scorer, "--anchor-items", "4", "--entities"]
    assert main(["index", str(tmp_path / "rooms.jsonl"), "--out", str(out), *given]) == 0
    capsys.readouterr()
    ask = ["search", str(out), "Room 5", "--method", "fixeditem", "-k", "2", "--budget", "8", "--json", *scorer]
    assert main(ask) == 0
    assert "Room 5 [ENT] number 5 of the house" in capsys.readouterr().out
