import inspect
import re
import subprocess
import sys

import pytest

import crosscut
from crosscut import Index


def test_the_public_names_are_these():
    assert sorted(crosscut.__all__) == ["CrosscutError", "Hit", "Index", "Item", "Query", "SearchResult"]
    assert all(inspect.isclass(getattr(crosscut, name)) for name in crosscut.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Indx'"):
        _ = crosscut.Indx
    assert re.fullmatch(r"\d+\.\d+\.\d+", crosscut.__version__)


@pytest.mark.parametrize("name", crosscut.__all__)
def test_every_public_name_says_what_it_is(name):
    assert (inspect.getdoc(getattr(crosscut, name)) or "").strip()


def test_every_method_of_an_index_says_what_it_does():
    methods = {name: value for name, value in vars(Index).items() if not name.startswith("_")}
    changes = {"add", "add_anchor_queries", "add_compare", "delete", "remove_compare"}
    assert set(methods) == changes | {"build", "compare", "encoder", "load", "scorer", "search"}
    assert all(inspect.getdoc(method) for method in methods.values())


def test_to_import_it_imports_no_heavy_package():
    """Nor does a search with a function."""
    program = """
import sys
from crosscut import Index
index = Index.build(["one two", "two three"], scorer=lambda query, texts: [float(len(text)) for text in texts])
assert index.search("two")[0].text == "two three"
print([name for name in ("torch", "transformers", "sentence_transformers", "faiss") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def overlap(query, texts):
    return [len(set(query.split()) & set(text.split())) / len(text.split()) for text in texts]


def test_the_first_example(tmp_path):
    items = [f"my policy covers case {number}" for number in range(50)] + ["does the policy cover floods"]
    index = Index.build(items, scorer=overlap, anchor_queries=["is fire covered"], path=tmp_path / "faq.index")
    result = index.search("does my policy cover floods?", k=10, budget=20)
    assert [hit.rank for hit in result] == list(range(1, 11))
    assert (result[0].id, result[0].text) == ("50", "does the policy cover floods")
    assert result.calls == 20 and result.rounds > 1 and result.seconds.total > 0
    assert "scoring" in str(result.seconds)
    assert all(isinstance(hit.score, float) for hit in result)

    index = Index.load(tmp_path / "faq.index", scorer=overlap)
    index.add(["cover floods does my policy"])
    index.delete(["50"])
    assert index.search("does my policy cover floods")[0].text == "cover floods does my policy"
    assert len(index) == 51
