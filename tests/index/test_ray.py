"""A real Ray cluster of two nodes on this machine: whatever dies, the build ends with the local one's files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

import numpy as np
import pytest
from executor_scorers import Elsewhere, Paced, is_running, logged, pids
from index_fakes import make_items, make_queries, tree

from crosscut.cli import main
from crosscut.errors import CrosscutError
from crosscut.index.build import build
from crosscut.index.executors import RayExecutor
from crosscut.scorers import as_scorer

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

ITEMS, QUERIES, TILE = make_items(7), make_queries(12), (2, 3)
PAIRS = len(ITEMS) * len(QUERIES)
OPTIONS = {"anchor_queries": QUERIES, "tile": TILE}
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
# A lost node is noticed within a second or two; by default Ray gives it half a minute.
CONFIG = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


@pytest.fixture(scope="module")
def cluster():
    # A folder of its own, with a short name for the sake of sockets: a cluster of the user's stays undisturbed.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**NODE, "_system_config": CONFIG})
        cluster.second = cluster.add_node(**NODE)
        yield cluster
        cluster.shutdown()


@pytest.fixture
def executor(cluster):
    return RayExecutor(cluster.address, patience=60)


@pytest.fixture
def expected(tmp_path):
    build(ITEMS, scorer=Paced(tmp_path), folder=tmp_path / "local", **OPTIONS)
    (tmp_path / "log").unlink()
    return tree(tmp_path / "local")


def test_a_killed_worker(tmp_path, expected, executor, capfd):
    scorer = Paced(tmp_path, 0.02, at="question q7", deaths=1)
    build(ITEMS, scorer=scorer, folder=tmp_path / "x", executor=executor, **OPTIONS)
    assert len(list(tmp_path.glob("death*"))) == 1
    assert tree(tmp_path / "x") == expected
    assert scorer.calls == PAIRS and scorer.truncated == 6 * 3  # once for each tile
    assert os.getpid() not in pids(tmp_path) and len(pids(tmp_path)) >= 2
    scored = Counter((query, item) for _, query, item in logged(tmp_path))
    # What it had of the deadly tile, and the one before if the news of that had not got through.
    assert sum(scored.values()) - len(scored) <= TILE[1] + TILE[0] * TILE[1]
    assert capfd.readouterr().out == ""
    assert not ray.is_initialized()


def test_a_real_model_and_a_function_without_a_name(tmp_path, cluster):
    pytest.importorskip("transformers")
    from tiny_models import save_model

    shift = 2.0
    model = save_model(tmp_path / "tiny")
    for obj, options in ((model, {"device": "cpu"}), (lambda query, texts: [len(t) + shift for t in texts], {})):
        made = []
        for where in ("local", RayExecutor(cluster.address, workers=1)):
            scorer = as_scorer(obj, **options)
            store = build(ITEMS, scorer=scorer, executor=where, **OPTIONS)
            made.append((store.parts().anchor_scores.tobytes(), scorer.calls, getattr(scorer, "truncated", 0)))
        assert made[0] == made[1]


def test_another_model_on_another_machine(executor):
    with pytest.raises(CrosscutError, match=r"elsewhere on .* put the same model on all machines"):
        build(ITEMS, scorer=Elsewhere(), executor=executor, **OPTIONS)
    assert not ray.is_initialized()


SCORERS = """
import os, time
from pathlib import Path

def slow(query, texts):
    time.sleep(0.01)
    with Path(__file__).with_name("log").open("a") as file:
        file.write(f"{os.getpid()}\\t{query}\\t{texts[0]}\\n")
    return [float(len(query) * len(text) % 17) for text in texts]
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs signals and /proc")
def test_a_killed_driver(tmp_path, cluster, monkeypatch):
    (tmp_path / "ray_scorers.py").write_text(SCORERS)
    (tmp_path / "items.txt").write_text("".join(f"text number {n}\n" for n in range(1100)))
    (tmp_path / "anchors.txt").write_text("".join(f"number {n}\n" for n in range(64)))

    command = ["index", "items.txt", "--scorer", "python:ray_scorers:slow", "--anchor-queries", "anchors.txt"]
    on_ray = [sys.executable, "-m", "crosscut.cli", *command, "--out", "x", "--json"]
    on_ray += ["--executor", "ray", "--address", cluster.address]
    with subprocess.Popen(on_ray, cwd=tmp_path, stdout=subprocess.PIPE) as driver:
        while driver.poll() is None and len(list(tmp_path.glob("x/scores/*.tiles/*.npy"))) < 2:
            time.sleep(0.01)
        driver.kill()
    assert driver.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 20
    while any(map(is_running, pids(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert pids(tmp_path) and not any(map(is_running, pids(tmp_path)))
    kept = [np.load(path).size for path in tmp_path.glob("x/scores/*.tiles/*.npy")]
    assert 2 <= len(kept) < 8

    second = subprocess.run(on_ray, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["calls"] == 64 * 1100 - sum(kept)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main([*command, "--out", "local"]) == 0
    assert tree(tmp_path / "x") == tree(tmp_path / "local")


def test_a_lost_node(tmp_path, expected, cluster, executor):
    """The last of this file: the second node is gone after it."""
    removed = threading.Event()

    def remove():
        while len(pids(tmp_path)) < 2:
            time.sleep(0.01)
        cluster.remove_node(cluster.second, allow_graceful=False)
        removed.set()

    threading.Thread(target=remove, daemon=True).start()
    scorer = Paced(tmp_path, 0.05)
    build(ITEMS, scorer=scorer, folder=tmp_path / "x", executor=executor, **OPTIONS)
    assert removed.is_set()
    assert tree(tmp_path / "x") == expected
    scored = Counter((query, item) for _, query, item in logged(tmp_path))
    assert len(scored) == scorer.calls == PAIRS
    assert sum(scored.values()) - len(scored) <= 2 * TILE[0] * TILE[1]
