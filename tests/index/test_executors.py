"""Executors: the same result as at home, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from executor_scorers import Elsewhere, Homebound, Paced, Placed, is_running, logged, pids, words
from hypothesis import given
from hypothesis import strategies as st
from index_fakes import FakeEncoder, FakeScorer, make_items, make_queries, tree

from crosscut.errors import CrosscutError
from crosscut.index.build import build
from crosscut.index.change import add_anchor_queries, add_items
from crosscut.index.executors import LocalExecutor, ProcessExecutor, RayExecutor, Task, as_executor
from crosscut.index.executors.pool import AHEAD, TRIES, Lost, share_out
from crosscut.index.executors.worker import Answer
from crosscut.index.manifest import MANIFEST
from crosscut.index.store import Store, read_manifest
from crosscut.index.tiles import Grid
from crosscut.scorers import as_scorer

linux = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs signals and /proc")

ITEMS, QUERIES, TILE = make_items(7), make_queries(6), (2, 3)
TILES = 3 * 3
OPTIONS = {"anchor_queries": QUERIES, "tile": TILE}


@pytest.fixture
def expected(tmp_path):
    build(ITEMS, scorer=Paced(tmp_path), folder=tmp_path / "local", **OPTIONS)
    (tmp_path / "log").unlink()
    return tree(tmp_path / "local")


def test_processes_make_the_same_files_and_count_the_same_calls(tmp_path):
    made = {}
    for executor in ("local", ProcessExecutor(workers=2)):
        folder = tmp_path / type(executor).__name__
        scorer, encoder = Paced(tmp_path), FakeEncoder()
        options = {"scorer": scorer, "encoder": encoder, "executor": executor}
        store = build(ITEMS, anchor_items=2, folder=folder, **OPTIONS, **options)
        add_items(store, make_items(4, "n"), **options)
        add_anchor_queries(store, make_queries(3, "n"), **options)
        made[folder.name] = tree(folder), scorer.calls, scorer.truncated
    assert made["str"] == made["ProcessExecutor"]
    assert scorer.calls == (6 + 2) * 11 + 3 * 11
    assert len(pids(tmp_path)) > 2 and os.getpid() in pids(tmp_path)


def test_functions_travel_by_name_and_what_has_none_does_not():
    store = build(ITEMS, scorer=as_scorer(words), executor=ProcessExecutor(workers=1), **OPTIONS)
    np.testing.assert_array_equal(
        store.parts().anchor_scores, build(ITEMS, scorer=as_scorer(words), **OPTIONS).parts().anchor_scores
    )
    with pytest.raises(CrosscutError, match=r"<lambda> cannot be sent to another process .* executor 'local'"):
        build(ITEMS, scorer=as_scorer(lambda query, texts: [0.0]), executor=ProcessExecutor(1), **OPTIONS)


def test_what_cannot_be_sent_is_refused_before_anything_is_written(tmp_path):
    scorer = as_scorer(lambda query, texts: [0.0 for _ in texts])
    refused = pytest.raises(CrosscutError, match="<lambda> cannot be sent")
    with refused:
        build(ITEMS, scorer=scorer, folder=tmp_path / "x", executor=ProcessExecutor(1), **OPTIONS)
    assert not (tmp_path / "x").exists()
    store = build(ITEMS, scorer=scorer, folder=tmp_path / "x", **OPTIONS)
    before = tree(tmp_path / "x")
    with refused:
        add_items(store, make_items(4, "n"), scorer=scorer, executor=ProcessExecutor(1))
    assert tree(tmp_path / "x") == before


@linux
@pytest.mark.parametrize("deaths", [1, TRIES - 1])
def test_a_lost_worker_costs_no_more_than_its_tile(tmp_path, expected, deaths):
    scorer = Paced(tmp_path, at="question q3", deaths=deaths)
    build(ITEMS, scorer=scorer, folder=tmp_path / "x", executor=ProcessExecutor(workers=2), **OPTIONS)
    assert len(list(tmp_path.glob("death*"))) == deaths
    assert tree(tmp_path / "x") == expected
    assert scorer.calls == len(ITEMS) * len(QUERIES)
    scored = Counter((query, item) for _, query, item in logged(tmp_path))
    assert len(scored) == scorer.calls
    assert sum(scored.values()) - len(scored) <= deaths * TILE[1]  # the row of its tile before the deadly one


@linux
def test_a_tile_that_ends_worker_after_worker_is_named_and_the_others_are_kept(tmp_path, expected):
    scorer = Paced(tmp_path, at="question q3", deaths=100)
    with pytest.raises(CrosscutError) as caught:
        build(ITEMS, scorer=scorer, folder=tmp_path / "x", executor=ProcessExecutor(workers=2), **OPTIONS)
    assert "3 workers have ended over the tile scores/q000000-i000000.tiles/r000001-c00000" in str(caught.value)
    assert "was killed by signal 9" in str(caught.value)
    kept = len(list(tmp_path.glob("x/scores/*.tiles/*.npy")))
    assert f"({kept} of {TILES} tiles are done and kept" in str(caught.value)
    assert kept >= 3
    rest = Paced(tmp_path)
    build(ITEMS, scorer=rest, folder=tmp_path / "x", executor=ProcessExecutor(workers=2), **OPTIONS)
    assert scorer.calls + rest.calls == len(ITEMS) * len(QUERIES)
    assert tree(tmp_path / "x") == expected


def test_a_scorers_error_comes_home(tmp_path):
    scorer = Paced(tmp_path, at="question q5", fails=True)
    with pytest.raises(CrosscutError, match=rf"^boom \(\d of {TILES} tiles are done and kept"):
        build(ITEMS, scorer=scorer, folder=tmp_path / "x", executor=ProcessExecutor(workers=2), **OPTIONS)


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        (Homebound(os.getpid(), deadly=False), r"cannot make the scorer homebound \(ImportError: no such library"),
        (Homebound(os.getpid(), deadly=True), r"no worker can be started: .* ended with status 7, 3 times"),
        (Elsewhere(), r"elsewhere on .* has the digest .* put the same model on all machines"),
    ],
)
def test_workers_that_cannot_have_the_same_scorer(scorer, message):
    with pytest.raises(CrosscutError, match=message):
        build(ITEMS, scorer=scorer, executor=ProcessExecutor(workers=1), **OPTIONS)


def test_a_full_disk_ends_the_workers(tmp_path, monkeypatch):
    replace = os.replace

    def full(source, target):
        if "r000001" in str(target):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(CrosscutError, match=rf"No space left.*\(\d of {TILES} tiles are done and kept"):
        build(ITEMS, scorer=Paced(tmp_path), folder=tmp_path / "x", executor=ProcessExecutor(2), **OPTIONS)
    assert not any(map(is_running, pids(tmp_path)))


DRIVER = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_executors import ITEMS, OPTIONS, Paced, ProcessExecutor, build
if __name__ == "__main__":
    folder = Path(sys.argv[2])
    build(ITEMS, scorer=Paced(folder, 0.02), folder=folder / "x", executor=ProcessExecutor(workers=2), **OPTIONS)
"""


@linux
def test_a_killed_driver_leaves_no_process_and_its_tiles_are_not_scored_again(tmp_path, expected):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    with subprocess.Popen([sys.executable, script, Path(__file__).parent, tmp_path]) as driver:
        while driver.poll() is None and len(list(tmp_path.glob("x/scores/*.tiles/*.npy"))) < 2:
            time.sleep(0.01)
        driver.kill()
    assert driver.returncode == -signal.SIGKILL
    workers = pids(tmp_path)
    deadline = time.monotonic() + 20
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert workers and not any(map(is_running, workers))
    kept = sum(np.load(path).size for path in tmp_path.glob("x/scores/*.tiles/*.npy"))

    rest = Paced(tmp_path)
    build(ITEMS, scorer=rest, folder=tmp_path / "x", executor=ProcessExecutor(workers=2), **OPTIONS)
    assert 0 < kept < len(ITEMS) * len(QUERIES) and rest.calls == len(ITEMS) * len(QUERIES) - kept
    assert tree(tmp_path / "x") == expected


def test_a_real_model_scores_the_same_in_other_processes(tmp_path):
    pytest.importorskip("transformers")
    from tiny_models import save_model

    model, made = save_model(tmp_path / "tiny"), []
    for executor in ("local", ProcessExecutor(workers=1)):
        scorer = as_scorer(model, device="cpu")
        store = build(ITEMS, scorer=scorer, executor=executor, **OPTIONS)
        made.append((store.parts().anchor_scores.tobytes(), scorer.calls, scorer.truncated))
    assert made[0] == made[1]
    assert scorer.truncated == 3 * len(QUERIES)  # items with a title are too long for it


@pytest.mark.parametrize(("visible", "expected"), [("", {0, 1}), ("5,3,2", {5, 3})])
def test_every_process_has_a_gpu_of_its_own(tmp_path, monkeypatch, visible, expected):
    gpus = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 2))
    monkeypatch.setitem(sys.modules, "torch", gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    store = build(ITEMS, scorer=Placed(tmp_path, workers=2), executor="processes", **OPTIONS)
    assert set(store.parts().anchor_scores.ravel()) == expected


def test_tile_shapes(tmp_path):
    scorer = FakeScorer()
    assert LocalExecutor().tile(scorer) == (16, 1024)
    for device, pairs in (("cpu", 2048), ("cuda", 131072), ("cuda:1", 131072), ("mps", 16384)):
        scorer.device = device
        assert np.prod(ProcessExecutor().tile(scorer)) == pairs
    scorer.error, scorer.fail_at = CrosscutError("boom"), 2
    with pytest.raises(CrosscutError):
        build(ITEMS, scorer=scorer, anchor_queries=QUERIES, tile=(3, 3), folder=tmp_path)
    # Whoever continues it need not know the shape that it was begun with.
    store = build(ITEMS, scorer=FakeScorer(), anchor_queries=QUERIES, folder=tmp_path)
    assert read_manifest(store.files).tile == (3, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("slurm", {}), "unknown executor 'slurm': choose from local, processes, ray"),
        (("processes", {"address": "auto"}), "the executor 'processes' has no option address"),
        (("processes", {"workers": 0}), "workers must be a whole number of at least 1, but is 0"),
        (("ray", {"workers": 1.5}), "workers must be a whole number of at least 1, but is 1.5"),
    ],
)
def test_executors_that_there_are_not(arguments, message):
    name, options = arguments
    with pytest.raises(CrosscutError, match=f"^{message}$"):
        as_executor(name, **options)


def test_a_finished_index_starts_no_worker(tmp_path):
    pytest.importorskip("ray")
    build(ITEMS, scorer=FakeScorer(), folder=tmp_path, **OPTIONS)
    before = tree(tmp_path)
    nowhere = RayExecutor("localhost:1")  # would be an error if anyone asked it
    build(ITEMS, scorer=FakeScorer(), folder=tmp_path, executor=nowhere, **OPTIONS)
    assert tree(tmp_path) == before and MANIFEST in before
    with pytest.raises(CrosscutError, match="nothing answers at localhost:1"):
        add_items(Store.open(tmp_path), make_items(1, "n"), scorer=FakeScorer(), executor=nowhere)


class ScriptedCrew:
    """Workers in memory that die when the script says so: at a start, or with a task in work."""

    patience = 1.0

    def __init__(self, workers, script):
        self.count, self.script = workers, iter(script)
        self.tasks = {}
        self.stopped = False

    def start(self, number):
        assert number not in self.tasks
        self.tasks[number] = deque(["greet"])

    def give(self, number, task):
        self.tasks[number].append(task)
        assert len(self.tasks[number]) <= AHEAD

    def wait(self, timeout):
        busy = [number for number, tasks in self.tasks.items() if tasks]
        number, dies = next(self.script, (0, False))
        number = busy[number % len(busy)]
        if dies:
            del self.tasks[number]
            return number, Lost("it died")
        task = self.tasks[number].popleft()
        return number, Answer() if task == "greet" else Answer(np.array([[task.tile.columns.start]]), calls=1)

    def stop(self):
        self.stopped = True


@given(
    workers=st.integers(1, 4),
    tiles=st.integers(0, 12),
    script=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([False, False, True])), max_size=60),
)
def test_every_tile_comes_once_or_there_is_an_error(workers, tiles, script):
    crew, scorer, taken = ScriptedCrew(workers, script), FakeScorer(), [0]
    grid = Grid("scores/x", 1, max(tiles, 1), (1, 1))

    def tasks():
        for tile in grid.tiles()[:tiles]:
            taken[0] += 1
            yield Task(grid, tile, ["query"], ["item"])

    came, error = [], ""
    try:
        for task, scores in share_out(crew, scorer, tasks()):
            assert scores == task.tile.columns.start
            came.append(task.tile.columns.start)
            assert taken[0] - len(came) <= AHEAD * workers + 1
    except CrosscutError as caught:
        error = str(caught)
    if error:
        assert "it died" in error and sum(dies for _, dies in script) >= TRIES
    else:
        assert sorted(came) == list(range(tiles))
    assert len(came) == len(set(came)) == scorer.calls
    assert crew.stopped == (tiles > 0)


def test_a_crew_that_never_comes():
    crew, grid = ScriptedCrew(2, []), Grid("scores/x", 1, 5, (1, 1))
    crew.wait = lambda timeout: None
    tasks = [Task(grid, tile, ["q"], ["i"]) for tile in grid.tiles()]
    with pytest.raises(CrosscutError, match="no worker was ready within 1 s"):
        next(share_out(crew, FakeScorer(), tasks))
    assert crew.stopped


def test_whoever_stops_listening_ends_the_workers():
    crew, grid = ScriptedCrew(2, []), Grid("scores/x", 1, 5, (1, 1))
    tasks = (Task(grid, tile, ["q"], ["i"]) for tile in grid.tiles())
    with closing(share_out(crew, FakeScorer(), tasks)) as scored:
        next(scored)
        assert not crew.stopped
    assert crew.stopped
