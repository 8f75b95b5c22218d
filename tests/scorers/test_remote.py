"""Rerank servers as scorers, over a real socket."""

import asyncio
import gc
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rerank_server import (
    RerankServer,
    cuts_off,
    drips_body,
    drips_headers,
    hangs_up,
    relevance,
    says,
    stalls,
)

from crosscut import Index
from crosscut.cli import main
from crosscut.errors import CrosscutError
from crosscut.scorers import CohereScorer, TeiScorer, as_scorer
from crosscut.scorers.remote_http import seconds_to_wait

FAST = {"backoff": 0.001, "longest_wait": 0.01, "tries": 3, "timeout": 5.0}
SECRET, NAN = "sk-5ecret", float("nan")
PAIRS = [(f"flood {q}", f"flood {q} item {i}" + " more" * i) for i in range(7) for q in range(3)]
EXPECTED = [relevance(*pair) for pair in PAIRS]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in ("CO_API_KEY", "CO_API_URL", "TEI_API_KEY", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    made = RerankServer()
    yield made
    made.close()


def tei(server, **options):
    return as_scorer(f"tei:{server.url}", **{**FAST, **options})


def cohere(server, **options):
    return as_scorer(f"cohere:rerank-v3.5@{server.url}", **{**FAST, **options})


both = pytest.mark.parametrize("make", [tei, cohere])


# What is asked, and where the answers go


@both
def test_scores_come_back_in_the_order_of_the_pairs(server, make):
    scorer = make(server, batch_size=2)
    assert scorer.score(PAIRS) == pytest.approx(EXPECTED, abs=1e-4)
    assert scorer.calls == len(PAIRS)
    assert len(server.bodies) == 3 * 4  # 7 items for each of 3 queries, two by two


def test_any_pairs_come_back_right():
    server = RerankServer()
    scorer, words = tei(server), st.text("ab ", max_size=8)

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.tuples(words, words), max_size=12), st.integers(1, 4))
    def check(pairs, size):
        scorer.batch_size = size
        assert scorer.score(pairs) == pytest.approx([relevance(*pair) for pair in pairs], abs=1e-5)

    check()
    server.close()


def test_what_tei_is_asked(server):
    tei(server).score([("q", "a"), ("q", "b")])
    assert server.bodies == [{"query": "q", "texts": ["a", "b"], "raw_scores": True, "truncate": False}]


def test_what_cohere_is_asked(server):
    cohere(server).score([("q", "a"), ("q", "b")])
    assert server.bodies == [{"model": "rerank-v3.5", "query": "q", "documents": ["a", "b"], "top_n": 2}]


def test_cohere_by_its_own_address(server, monkeypatch):
    monkeypatch.setenv("CO_API_URL", server.url + "/")
    scorer = as_scorer("cohere:rerank-v3.5", **FAST)
    assert scorer.name == "cohere:rerank-v3.5"
    assert scorer.score(PAIRS) == pytest.approx(EXPECTED, abs=1e-4)


def test_an_address_that_ends_in_rerank_is_taken_as_it_is(server):
    assert as_scorer(f"cohere:m@{server.url}/v1/rerank", **FAST).score(PAIRS) == pytest.approx(EXPECTED, abs=1e-4)
    assert as_scorer(f"tei:{server.url}/rerank", **FAST).score(PAIRS) == pytest.approx(EXPECTED, abs=1e-4)


def test_logits_of_relevances_keep_the_order_and_are_finite(server):
    given = [0.0, 1e-9, 1e-6, 0.02, 0.5, 0.98, 0.9999999, 1.0]
    server.change = lambda results: [{"index": i, "relevance_score": p} for i, p in enumerate(given)]
    found = cohere(server).score([("q", str(i)) for i in range(len(given))])
    assert np.isfinite(found).all() and (np.diff(found) >= 0).all() and (np.diff(found[2:6]) > 1).all()
    assert found[4] == 0 and found[3] == pytest.approx(-found[5], abs=1e-4)


def test_empty_texts_are_the_servers_to_judge_or_have_relevance_0(server):
    pairs = [("flood", ""), ("flood", "a flood"), ("flood", " \n")]
    assert tei(server).score(pairs) == pytest.approx([relevance(*pair) for pair in pairs])
    found = cohere(server).score(pairs)
    assert found[1] == pytest.approx(relevance(*pairs[1]), abs=1e-4)
    assert found[0] == found[2] < -16
    assert server.bodies[-1]["documents"] == ["a flood"]


def test_requests_stay_within_what_tei_takes(server):
    server.info["max_client_batch_size"] = 5
    pairs = [("q", f"item {i}") for i in range(23)]
    tei(server, batch_size=1000).score(pairs)
    assert sorted(len(body["texts"]) for body in server.bodies) == [3, 5, 5, 5, 5]


def test_a_server_without_info_is_asked_by_32_and_where_it_takes_less_in_halves(server):
    server.info = None
    pairs = [("q", f"item {i}") for i in range(40)]
    scorer = tei(server, concurrency=1)
    assert scorer.digest() == ""
    server.mischief = [says(413, {"error": "batch size 32 > maximum allowed batch size 16"})]
    assert scorer.score(pairs) == pytest.approx([relevance(*pair) for pair in pairs])
    assert [len(body["texts"]) for body in server.bodies] == [32, 8, 16, 16]


# How it is asked


def test_no_more_requests_at_a_time_than_allowed_over_connections_that_are_kept(server):
    server.pause = 0.02
    scorer = tei(server, batch_size=1, concurrency=3)
    with ThreadPoolExecutor(4) as threads:  # as a server would search
        for found in threads.map(scorer.score, [PAIRS] * 4):
            assert found == pytest.approx(EXPECTED)
    assert server.peak == 3
    assert len(server.clients) <= 3


def test_inside_a_running_event_loop(server):
    async def notebook():
        return tei(server).score(PAIRS)

    assert asyncio.run(notebook()) == pytest.approx(EXPECTED)


def test_a_scorer_in_use_travels_to_other_processes(server):
    scorer = tei(server, batch_size=5)
    scorer.score(PAIRS)
    travelled = pickle.loads(pickle.dumps(scorer))
    assert travelled.score(PAIRS) == pytest.approx(EXPECTED)
    assert travelled.batch_size == 5


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_makes_its_own_connections(server):
    scorer = tei(server)
    scorer.score(PAIRS)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(scorer.score, [PAIRS]).get(timeout=20) == pytest.approx(EXPECTED)


def test_no_thread_is_left_behind(server):
    for _ in range(3):
        tei(server).score(PAIRS)
    gc.collect()
    deadline = time.monotonic() + 5
    while any(thread.name == "crosscut-remote" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Servers that misbehave for a while


@both
@pytest.mark.parametrize(
    "mischief",
    [
        [says(429, {"message": "rate limit"}, Retry_After="0")],
        [says(429, {"message": "rate limit"}, Retry_After="3600")],  # longer than it may take
        [says(500), says(500, b"<html>oops</html>")],
        [says(503, {"error": "unhealthy"}), says(502)],
        [cuts_off, hangs_up],
    ],
    ids=["429", "429-long", "500", "503", "broken"],
)
def test_what_may_pass_is_tried_again(server, make, mischief):
    server.mischief = list(mischief)
    assert make(server).score(PAIRS) == pytest.approx(EXPECTED, abs=1e-4)
    assert len(server.bodies) == 3 + len(mischief)


def test_a_stall_is_tried_again(server):
    server.mischief = [stalls]
    assert tei(server, timeout=0.3).score(PAIRS) == pytest.approx(EXPECTED)


def test_retry_after_is_waited_for(server):
    server.mischief = [says(429, Retry_After="1")]
    start = time.monotonic()
    tei(server, longest_wait=5).score(PAIRS[:1])
    assert 1 <= time.monotonic() - start < 3


@pytest.mark.parametrize(("header", "least", "most"), [("7", 7, 7), ("-1", 0, 0), ("", 0, 0), ("NaN", 0, 0)])
def test_retry_after_in_seconds(header, least, most):
    assert least <= seconds_to_wait(header) <= most


def test_retry_after_as_a_date():
    soon = datetime.now(timezone.utc) + timedelta(seconds=30)
    assert 20 < seconds_to_wait(format_datetime(soon, usegmt=True)) <= 30
    assert seconds_to_wait(format_datetime(soon - timedelta(days=1), usegmt=True)) == 0


def test_waits_grow():
    scorer = as_scorer("tei:http://127.0.0.1:1", backoff=1, longest_wait=5)
    waits = [scorer._server._wait(attempt, 0) for attempt in range(5)]
    assert all(0.5 * 2**n <= wait <= 2**n for n, wait in enumerate(waits[:3])) and waits[4] == 5
    assert scorer._server._wait(0, 3.5) == 3.5


# Servers that do not recover


@pytest.mark.parametrize("habit", [stalls, drips_body, drips_headers], ids=lambda habit: habit.__name__)
def test_a_server_that_never_finishes_is_an_error_in_time(server, habit):
    server.habit = habit
    scorer = tei(server, timeout=0.3, tries=2)
    start = time.monotonic()
    with pytest.raises(CrosscutError, match=r"rerank did not finish its answer in 0.3 seconds.*tried 2 times"):
        scorer.score(PAIRS)
    assert time.monotonic() - start < 4
    server.habit = None
    assert scorer.score(PAIRS) == pytest.approx(EXPECTED)  # and the scorer is as good as new


def test_an_address_that_takes_no_connection_is_an_error_in_time():
    full = RerankServer()
    full.close()
    start = time.monotonic()
    with pytest.raises(CrosscutError, match=rf"{full.url}/info could not be asked \(ConnectError.*tried 3 times"):
        tei(full).score(PAIRS)
    assert time.monotonic() - start < 4


@both
def test_the_first_failure_ends_the_call(server, make):
    server.habit = says(503, {"message": "down for repair"})
    with pytest.raises(CrosscutError, match=r"rerank answered 503 \(down for repair\), and was tried 3 times"):
        make(server, concurrency=2, batch_size=1).score(PAIRS)
    time.sleep(0.1)
    assert len(server.bodies) <= 6  # two at a time, three times each; the other 19 are not sent


@both
@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (400, {"message": "invalid request: bad\nmodel"}, r"answered 400 \(invalid request: bad model\)"),
        (404, {"error": {"message": "no such model"}}, r"404 \(no such model\): check the address and the name"),
        (403, {"detail": "no"}, r"403 \(no\): set the environment variable (CO|TEI)_API_KEY"),
        (
            424,
            {"error": "model is not a re-ranker model", "error_type": "backend"},
            r"424 \(model is not a re-ranker model\)$",
        ),
        (418, b"<html>\x1b[31m" + b"teapot " * 100, r"418 \(<html>\[31mteapot.{150,200}…\)$"),
        (307, b"", "answered 307"),
    ],
)
def test_a_refusal_is_told_and_not_tried_again(server, make, status, content, message):
    server.habit = says(status, content)
    with pytest.raises(CrosscutError, match=message):
        make(server).score(PAIRS[:1])
    assert len(server.bodies) == 1


def changed(change):
    """A server whose well-formed results are not right."""
    return lambda results: change(sorted(results, key=lambda result: result["index"]))


@both
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found[:-1], "was sent 7 texts and answered for 6: number 6 is missing"),
        (lambda found: found + found[:1], "answered for 8: some are there more than once"),
        (lambda found: found[:-1] + found[:1], "answered for 7: number 6 is missing"),
        (lambda found: [*found[:-1], {**found[-1], "index": 7}], "there is no text number 7"),
        (lambda found: [*found[:-1], {**found[-1], "index": -1}], "there is no text number -1"),
        (lambda found: [{"index": result["index"]} for result in found], "list of objects with index and"),
        (lambda found: [{**result, "index": None} for result in found], "list of objects with index and"),
        (lambda found: [dict.fromkeys(result) for result in found], "list of objects with index and"),
        (lambda found: [dict.fromkeys(result, 10**400) for result in found], "list of objects with index and"),
        (lambda found: [1, 2, 3], "list of objects with index and"),
        (lambda found: None, "list of objects with index and"),
        (lambda found: "no", "list of objects with index and"),
        (lambda found: [{**result, "score": NAN, "relevance_score": NAN} for result in found], "nan"),
    ],
)
def test_an_answer_must_have_every_index_once_and_a_number(server, make, change, message):
    server.change = changed(change)
    with pytest.raises(CrosscutError, match=message):
        make(server).score([pair for pair in PAIRS if pair[0] == "flood 0"])


@both
def test_an_answer_that_is_not_json(server, make):
    server.habit = says(200, b"<html>welcome</html>")
    with pytest.raises(CrosscutError, match=r"not JSON \('<html>welcome</html>'\): check that a rerank server"):
        make(server).score(PAIRS)


@both
@pytest.mark.parametrize("status", [200, 400])
def test_an_answer_that_is_nested_too_deeply(server, make, status):
    server.habit = says(status, b"[" * 200_000)
    with pytest.raises(CrosscutError, match=r"not JSON \('\[\[" if status == 200 else r"answered 400 \(\[\["):
        make(server).score(PAIRS)


@pytest.mark.parametrize("content", [[], {"data": []}, 3, None])
def test_json_that_is_no_answer_of_coheres(server, content):
    server.habit = says(200, content)
    with pytest.raises(CrosscutError, match="list of objects with index and relevance_score"):
        cohere(server).score(PAIRS)


def test_a_relevance_that_is_none(server):
    server.change = lambda results: [{**result, "relevance_score": 3.7} for result in results]
    with pytest.raises(CrosscutError, match=r"gave a relevance of 3\.7, but Cohere's lie between 0 and 1"):
        cohere(server).score(PAIRS)


def test_a_text_that_is_too_long_is_named_unless_it_may_be_cut(server):
    long = "word " * 150
    pairs = [("word", f"item {i}") for i in range(20)] + [("word", long)]
    with pytest.raises(CrosscutError, match=r"413 \(`inputs` must.*item 'word word.*…': .*\?truncate=true"):
        tei(server).score(pairs)
    scorer = as_scorer(f"tei:{server.url}?truncate=true", **FAST)
    assert scorer.score(pairs)[-1] == pytest.approx(relevance("word", ("word " * 100).strip()))
    assert scorer.name.endswith("?truncate=true")


# Names, keys, settings


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tei:", "must look like http://host:port"),
        ("tei:localhost:8080", "must look like http://host:port"),
        ("tei:ftp://localhost", "must look like http://host:port"),
        ("tei:http://localhost:99999", "must look like http://host:port"),
        ("tei:http://localhost?key=5ecret", "can only be truncate=true or truncate=false"),
        ("tei:http://localhost#5ecret", "must look like http://host:port"),
        ("tei:http://me:5ecret@localhost", "no user and password.*TEI_API_KEY"),
        ("cohere:", "MODEL is missing"),
        ("cohere:@http://localhost", "MODEL is missing"),
        ("cohere:model@localhost", "must look like http://host:port"),
        ("cohere:model@http://localhost?key=5ecret", "must look like http://host:port"),
        ("cohere:model@http://me:5ecret@localhost", "no user and password.*CO_API_KEY"),
    ],
)
def test_names_that_are_none(name, message):
    with pytest.raises(CrosscutError, match=message) as error:
        as_scorer(name)
    assert "5ecret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "variable", "value"),
    [
        ("http://☃.com", None, ""),
        ("http://xn--", None, ""),
        ("http://localhost:1", "HTTP_PROXY", "foo:bar"),
        ("http://localhost:1", "HTTP_PROXY", "ftp://foo"),
        ("http://localhost:1", "ALL_PROXY", "socks9://localhost:1"),
        ("http://localhost:1", "SSL_CERT_FILE", "/no/such/file"),
    ],
)
@pytest.mark.filterwarnings("error")  # of work that was begun and never waited for
def test_what_cannot_even_be_asked_is_an_error_to_read(url, variable, value, monkeypatch):
    if variable:
        monkeypatch.setenv(variable, value)
    scorer = as_scorer(f"tei:{url}", **FAST)
    for ask in (scorer.digest, lambda: scorer.score(PAIRS)):
        with pytest.raises(CrosscutError, match=rf"{url} cannot be asked \(.*check the address"):
            ask()
    with pytest.raises(CrosscutError, match="pair 0: its item is of type NoneType"):
        scorer.score([("q", None)])
    gc.collect()


@pytest.mark.parametrize(
    "setting",
    [
        {"batch_size": 0},
        {"concurrency": 0},
        {"tries": 0},
        {"timeout": 0},
        {"connect_timeout": -1},
        {"key": SECRET},
    ],
)
def test_settings_that_are_none(setting):
    with pytest.raises(CrosscutError, match=next(iter(setting))) as error:
        as_scorer("tei:http://localhost", **setting)
    assert SECRET not in str(error.value)


@both
def test_the_key_comes_from_the_environment_and_shows_nowhere(server, make, monkeypatch):
    server.key = SECRET
    with pytest.raises(CrosscutError, match=r"401.*set the environment variable (CO|TEI)_API_KEY to a key"):
        make(server).score(PAIRS)
    variable = make(server).key_variable
    monkeypatch.setenv(variable, SECRET + "wrong")
    with pytest.raises(CrosscutError, match=r"401 \(invalid api token Bearer …\): set") as error:
        make(server).score(PAIRS)
    assert SECRET not in str(error.value)
    monkeypatch.setenv(variable, SECRET + "\n")  # as a file's content often ends
    scorer = make(server)
    assert scorer.score(PAIRS) == pytest.approx(EXPECTED, abs=1e-4)
    assert SECRET not in f"{scorer.name} {vars(scorer)} {vars(scorer._server)} {pickle.dumps(scorer)!r}"


@pytest.mark.parametrize("key", [SECRET + "\x01", "ключ" + SECRET, SECRET + "\n" + SECRET])
def test_a_key_that_cannot_be_sent_is_not_told_either(server, monkeypatch, key):
    monkeypatch.setenv("TEI_API_KEY", key)
    with pytest.raises(CrosscutError, match="TEI_API_KEY holds characters that no key has") as error:
        tei(server).score(PAIRS)
    assert SECRET not in str(error.value)


def test_without_httpx_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(CrosscutError, match=r'pip install "crosscut\[remote\]"'):
        as_scorer("tei:http://localhost")


# In an index, and on the command line

ITEMS = [f"policy {n} covers {word} damage" for n, word in enumerate(["flood", "fire", "storm", "theft"] * 10)]


def test_an_index_finds_its_server_again_by_name(server, tmp_path, monkeypatch):
    server.key = SECRET
    monkeypatch.setenv("TEI_API_KEY", SECRET)
    built = Index.build(
        ITEMS, scorer=f"tei:{server.url}", anchor_queries=["fire damage", "policy 7"], path=tmp_path / "x"
    )
    asked = len(server.bodies)
    assert asked == 2 * 2  # 40 items for each anchor query, at most 32 at a time
    exact = max(ITEMS, key=lambda item: relevance("storm policy", item))
    assert built.search("storm policy", budget=20)[0].text == exact
    found = Index.load(tmp_path / "x").search("storm policy", budget=20)
    assert found[0].text == exact and found.calls == 20
    assert found[0].score == pytest.approx(relevance("storm policy", exact))
    files = [file for file in (tmp_path / "x").rglob("*") if file.is_file()]
    assert len(files) > 3 and not [file for file in files if SECRET.encode() in file.read_bytes()]


def test_a_model_is_told_apart_by_what_its_server_says(server, tmp_path):
    other = RerankServer()
    Index.build(ITEMS, scorer=tei(server), anchor_queries=["fire"], path=tmp_path / "x")
    assert Index.load(tmp_path / "x", scorer=tei(other)).search("fire", budget=8).calls == 8  # moved, but the same
    digest = tei(server).digest()
    assert len(digest) == 16
    for change in ({"model_id": "some/other"}, {"model_sha": "a" * 40}, {"model_id": "/data"}):
        other.info = {**server.info, **change}
        assert tei(other).digest() not in ("", digest)
    with pytest.raises(CrosscutError, match="the index was built with scorer 'tei:"):
        Index.load(tmp_path / "x", scorer=tei(other))
    server.info = {**server.info, "model_id": "/data"}  # a folder there is not the same folder here
    assert tei(server).digest() != tei(other).digest()
    other.close()


def test_an_index_with_cohere(server, tmp_path, monkeypatch):
    monkeypatch.setenv("CO_API_URL", server.url)
    monkeypatch.setenv("CO_API_KEY", SECRET)
    server.key = SECRET
    Index.build([*ITEMS, ""], scorer="cohere:rerank-v3.5", anchor_queries=["fire"], path=tmp_path / "x")
    assert "storm" in Index.load(tmp_path / "x").search("storm damage", budget=20)[0].text
    assert set(server.authorizations) == {f"Bearer {SECRET}"}


def test_an_index_sends_no_key_to_an_address_of_its_own(tmp_path, monkeypatch):
    try:
        server = RerankServer("127.0.0.2")  # not one of the names of this machine
    except OSError:
        pytest.skip("this system has one loopback address")
    monkeypatch.setenv("TEI_API_KEY", SECRET)
    name = f"tei:{server.url}"
    Index.build(ITEMS, scorer=name, path=tmp_path / "x")
    assert set(server.authorizations) == {f"Bearer {SECRET}"}
    server.authorizations.clear()
    assert Index.load(tmp_path / "x").search("fire", budget=8).calls == 8
    assert set(server.authorizations) == {None}
    server.key = SECRET
    with pytest.raises(CrosscutError, match=r"its address comes from the index and not from you.*scorer="):
        Index.load(tmp_path / "x").search("fire", budget=8)
    assert Index.load(tmp_path / "x", scorer=name).search("fire", budget=8).calls == 8
    server.close()


def test_a_build_that_a_server_broke_continues(server, tmp_path):
    def build():
        return Index.build(
            ITEMS, scorer=tei(server), anchor_queries=["fire", "flood"], path=tmp_path / "x", tile=(1, 8)
        )

    server.mischief = [None] * 6 + [says(503)] * 3
    with pytest.raises(CrosscutError, match="answered 503"):
        build()
    before = len(server.bodies)
    build()
    assert len(server.bodies) - before == 4  # six of the ten tiles were there


def test_rerank_index_and_search_on_the_command_line(server, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "items.txt").write_text("\n".join(ITEMS) + "\n")
    (tmp_path / "past.txt").write_text("fire damage\n")
    name = f"tei:{server.url}"
    assert main(["rerank", "storm policy", "--items", "items.txt", "--scorer", name, "-k", "3", "--json"]) == 0
    reranked = json.loads(capsys.readouterr().out)["hits"]
    assert main(["index", "items.txt", "--out", "x", "--scorer", name, "--anchor-queries", "past.txt"]) == 0
    capsys.readouterr()
    assert main(["search", "x", "storm policy", "-k", "3", "--budget", "40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["hits"]
    assert [hit["score"] for hit in found] == [hit["score"] for hit in reranked]
    server.habit = says(400, {"error": "no"})
    assert main(["search", "x", "storm policy"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("crosscut: error: ") and "/rerank answered 400 (no)" in said and said.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_ends_at_once(server, tmp_path):
    server.habit = stalls
    (tmp_path / "items.txt").write_text("\n".join(ITEMS) + "\n")
    command = [sys.executable, "-m", "crosscut.cli", "rerank", "fire", "--items", "items.txt"]
    process = subprocess.Popen(
        [*command, "--scorer", f"tei:{server.url}"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    while not server.bodies:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said.strip()) == (130, "crosscut: stopped")
    assert time.monotonic() - start < 5


def test_the_classes_are_those_of_the_names():
    assert type(as_scorer("tei:http://localhost")) is TeiScorer
    assert type(as_scorer("cohere:rerank-v3.5")) is CohereScorer
