"""Killed, failed, interrupted, disk full: the same call continues and pays for nothing twice."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from index_fakes import FakeEncoder, FakeScorer, make_items, make_queries, tree

from crosscut.errors import CrosscutError
from crosscut.index.build import build
from crosscut.index.change import add_anchor_queries, add_items
from crosscut.index.files import DiskFiles
from crosscut.index.store import Store
from crosscut.index.tiles import Grid, finish

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals and fork")

ITEMS, QUERIES, TILE = make_items(7), make_queries(5), (2, 3)
TILES = 3 * 3
OPTIONS = {"anchor_queries": QUERIES, "tile": TILE}


def start(folder, scorer=None):
    return build(
        ITEMS, scorer=scorer or FakeScorer(), encoder=FakeEncoder(), anchor_items=2, folder=folder, **OPTIONS
    )


def grow(folder, scorer=None):
    add_items(Store.open(folder), make_items(4, "n"), scorer=scorer or FakeScorer(), encoder=FakeEncoder())


def grow_anchors(folder, scorer=None):
    add_anchor_queries(
        Store.open(folder), make_queries(3, "n"), scorer=scorer or FakeScorer(), encoder=FakeEncoder()
    )


def prepare(change, folder):
    """What must be there before `change`, and a twin where nothing goes wrong."""
    twin = folder.with_name("twin")
    if change is not start:
        start(folder)
        shutil.copytree(folder, twin)
    change(twin)
    return tree(twin)


CHILD = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from index_fakes import FakeScorer
from test_resume import ITEMS, OPTIONS, build
build(ITEMS, scorer=FakeScorer(Path(sys.argv[3]), seconds=0.01), folder=sys.argv[2], **OPTIONS)
"""


@posix
def test_sigkill_several_times(tmp_path):
    folder, log = tmp_path / "x", tmp_path / "log"
    log.touch()
    kills = 0
    for pairs in (1, 8, 17, 24):
        command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(folder), str(log)]
        with subprocess.Popen(command) as child:
            while child.poll() is None and len(log.read_text().splitlines()) < pairs:
                time.sleep(0.002)
            child.kill()
        kills += child.returncode == -signal.SIGKILL
    assert kills >= 2  # on a busy machine a kill may come too late
    scorer = FakeScorer(log)
    store = build(ITEMS, scorer=scorer, folder=folder, **OPTIONS)
    assert scorer.calls < len(ITEMS) * len(QUERIES)

    scored = Counter(log.read_text().splitlines())
    assert len(scored) == len(ITEMS) * len(QUERIES)
    assert sum(scored.values()) - len(scored) <= kills * TILE[0] * TILE[1]
    repeated = {(query, item) for (query, item) in (line.split("\t") for line, n in scored.items() if n > 1)}
    assert len({_tile_of(pair) for pair in repeated}) <= kills
    build(ITEMS, scorer=FakeScorer(), folder=tmp_path / "twin", **OPTIONS)
    assert tree(folder) == tree(tmp_path / "twin")
    assert store.parts().anchor_scores.shape == (5, 7)


def _tile_of(pair):
    query = [q.text for q in QUERIES].index(pair[0])
    item = [i.content for i in ITEMS].index(pair[1])
    return query // TILE[0], item // TILE[1]


@posix
@pytest.mark.parametrize("change", [start, grow, grow_anchors])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_sigkill_at_every_write(tmp_path, change, moment):
    folder = tmp_path / "x"
    expected = prepare(change, folder)
    survived = False
    kills = 0
    # Every run gets one write further than the run before it, until one gets to the end.
    while not survived:
        survived = _run_and_die(lambda: change(folder), moment)
        kills += not survived
        assert kills < 200
        if moment == "after" and change is not start and tree(folder)["index.json"] == expected["index.json"]:
            break  # killed after the commit: the change is made, and making it twice is an error
    assert kills > 5
    assert _without_temporary(tree(folder)) == expected


def _run_and_die(run, moment, at=2):
    """Run in a child that kills itself at the second write of a file (at the first it would never get on)."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            replace, writes = os.replace, 0

            def deadly(source, target):
                nonlocal writes
                writes += 1
                if writes == at and moment == "before":
                    os.kill(os.getpid(), signal.SIGKILL)
                replace(source, target)
                if writes == at - 1 and moment == "after":
                    os.kill(os.getpid(), signal.SIGKILL)

            os.replace = deadly
            run()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return not os.WIFSIGNALED(status)


def _without_temporary(files):
    return {name: content for name, content in files.items() if not name.endswith(".tmp")}


@pytest.mark.parametrize("change", [start, grow, grow_anchors])
@pytest.mark.parametrize("function", ["os.replace", "os.fsync", "builtins.open"])
def test_disk_full_at_every_write(tmp_path, monkeypatch, change, function):
    original = {"os.replace": os.replace, "os.fsync": os.fsync, "builtins.open": open}[function]
    expected = prepare(change, tmp_path / "ready")
    for failing in range(1, 100):
        folder = tmp_path / f"x{failing}"
        if change is not start:
            shutil.copytree(tmp_path / "ready", folder)
        count = 0

        def full(*args, failing=failing, **kwargs):
            nonlocal count
            # atomic_write opens its temporary file with an "x"; nothing else here does. Folders may fail to flush.
            writing = (
                "x" in str(args[1]) if original is open else not (function == "os.fsync" and _is_folder(*args))
            )
            count += writing
            if writing and count == failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(*args, **kwargs)

        scorer = FakeScorer()
        with monkeypatch.context() as patch:
            patch.setattr(function, full)
            message = _message_of(lambda change=change, folder=folder, scorer=scorer: change(folder, scorer))
        if message is None:
            break  # there are fewer writes than this
        assert "No space left" in message
        assert not list(folder.rglob("*.tmp"))
        rest = FakeScorer()
        change(folder, rest)
        assert tree(folder) == expected
        assert scorer.calls + rest.calls <= _pairs(change) + TILE[0] * TILE[1]
    assert failing > 8


def _is_folder(handle):
    return stat.S_ISDIR(os.fstat(handle).st_mode)


def _message_of(run):
    try:
        run()
    except CrosscutError as error:
        return str(error)
    return None


def _pairs(change):
    return {start: 5 * 7 + 2 * 7, grow: (5 + 2) * 4, grow_anchors: 3 * 7}[change]


@pytest.mark.parametrize("error", [CrosscutError("scorer fake failed: boom"), KeyboardInterrupt()])
@pytest.mark.parametrize("change", [start, grow, grow_anchors])
def test_a_scorer_that_raises_loses_nothing(tmp_path, change, error):
    folder = tmp_path / "x"
    expected = prepare(change, folder)
    scorer = FakeScorer(fail_at=3)
    scorer.error = error
    with pytest.raises(type(error)) as caught:
        change(folder, scorer)
    if isinstance(error, CrosscutError):
        assert "boom (2 of" in str(caught.value)
        assert "tiles are done and kept: the same call continues" in str(caught.value)
    rest = FakeScorer()
    change(folder, rest)
    assert scorer.calls > 0
    assert scorer.calls + rest.calls == _pairs(change)
    assert tree(folder) == expected


def stop_overwriting(folder):
    scorer = FakeScorer(fail_at=5)
    scorer.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        build(ITEMS, scorer=scorer, folder=folder, overwrite=True, anchor_queries=QUERIES, tile=TILE)
    assert scorer.calls > 0
    return scorer.calls


def test_overwrite_replaces_an_index_and_continues_itself(tmp_path):
    folder = tmp_path / "x"
    build(make_items(9), scorer=FakeScorer(), folder=folder)
    done, rest = stop_overwriting(folder), FakeScorer()
    # Of any tile: it keeps the one that it was begun with.
    build(ITEMS, scorer=rest, folder=folder, overwrite=True, anchor_queries=QUERIES)
    assert done + rest.calls == len(ITEMS) * len(QUERIES)
    build(ITEMS, scorer=FakeScorer(), folder=tmp_path / "twin", **OPTIONS)
    assert tree(folder) == tree(tmp_path / "twin")
    again = FakeScorer()
    build(ITEMS, scorer=again, folder=folder, overwrite=True, **OPTIONS)
    assert again.calls == len(ITEMS) * len(QUERIES)


@pytest.mark.parametrize(
    "changes", [{"anchor_queries": QUERIES[:4]}, {"tile": (5, 7)}, {"encoder": FakeEncoder()}]
)
def test_overwrite_replaces_an_unfinished_build_of_something_else(tmp_path, changes):
    stop_overwriting(tmp_path / "x")
    options = OPTIONS | changes
    scorer = FakeScorer()
    build(ITEMS, scorer=scorer, folder=tmp_path / "x", overwrite=True, **options)
    assert scorer.calls == len(ITEMS) * len(options["anchor_queries"])
    build(ITEMS, scorer=FakeScorer(), folder=tmp_path / "twin", **options)
    assert tree(tmp_path / "x") == tree(tmp_path / "twin")


def test_overwrite_with_a_model_that_cannot_be_asked_leaves_the_index(tmp_path):
    start(tmp_path / "x")
    before, scorer = tree(tmp_path / "x"), FakeScorer()
    scorer.digest = Mock(side_effect=CrosscutError("boom"))
    with pytest.raises(CrosscutError, match="boom"):
        build(ITEMS, scorer=scorer, folder=tmp_path / "x", overwrite=True, **OPTIONS)
    assert tree(tmp_path / "x") == before


def test_the_error_counts_tiles(tmp_path):
    scorer = FakeScorer(fail_at=5)
    scorer.error = CrosscutError("boom")
    with pytest.raises(CrosscutError, match=rf"boom \(4 of {TILES} tiles are done and kept"):
        build(ITEMS, scorer=scorer, folder=tmp_path, **OPTIONS)


def test_where_nothing_is_done_nothing_is_said_of_it(tmp_path):
    scorer = FakeScorer(fail_at=1)
    scorer.error = CrosscutError("boom")
    with pytest.raises(CrosscutError, match=r"^boom$"):
        build(ITEMS, scorer=scorer, folder=tmp_path, **OPTIONS)


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", None])
def test_damaged_tile_is_scored_again(tmp_path, damage):
    scorer = FakeScorer(fail_at=5)
    scorer.error = CrosscutError("boom")
    with pytest.raises(CrosscutError):
        build(ITEMS, scorer=scorer, folder=tmp_path / "x", **OPTIONS)
    tile = tmp_path / "x/scores/q000000-i000000.tiles/r000000-c000001.npy"
    if damage is None:
        np.save(tile, np.zeros((2, 2), np.float16))
    else:
        tile.write_bytes(damage)
    rest = FakeScorer()
    build(ITEMS, scorer=rest, folder=tmp_path / "x", **OPTIONS)
    assert scorer.calls + rest.calls == len(ITEMS) * len(QUERIES) + 2 * 3
    build(ITEMS, scorer=FakeScorer(), folder=tmp_path / "twin", **OPTIONS)
    assert tree(tmp_path / "x") == tree(tmp_path / "twin")


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_more_tiles_than_files_may_be_open(tmp_path):
    import resource

    files, grid = DiskFiles(tmp_path), Grid("scores/x", rows=2, columns=300, tile=(2, 1))
    for number, tile in enumerate(grid.tiles()):
        grid.keep(files, tile, np.full((2, 1), number, np.float16))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 128
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 64, before[1]))
    try:
        finish(files, grid)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert files.read_array("scores/x.npy")[1].tolist() == list(range(300))


def test_another_input_does_not_continue_an_unfinished_build(tmp_path):
    scorer = FakeScorer(fail_at=3)
    scorer.error = CrosscutError("boom")
    with pytest.raises(CrosscutError):
        start(tmp_path / "x", scorer)
    with pytest.raises(CrosscutError, match=r"what differs: number of items"):
        build(make_items(6), scorer=FakeScorer(), encoder=FakeEncoder(), folder=tmp_path / "x", **OPTIONS)


def test_an_unfinished_add_leaves_the_index_as_it_was_and_gives_way_to_another(tmp_path):
    store = start(tmp_path / "x")
    scorer = FakeScorer(fail_at=3)
    scorer.error = CrosscutError("boom")
    with pytest.raises(CrosscutError):
        grow(tmp_path / "x", scorer)
    assert len(Store.open(tmp_path / "x").parts().items) == len(ITEMS)
    with pytest.warns(UserWarning, match="did not finish"):
        add_items(store, make_items(4, "other"), scorer=FakeScorer(), encoder=FakeEncoder())
    twin = start(tmp_path / "twin")
    add_items(twin, make_items(4, "other"), scorer=FakeScorer(), encoder=FakeEncoder())
    assert tree(tmp_path / "x") == tree(tmp_path / "twin")


def test_a_build_in_memory_passes_the_scorers_error_on():
    scorer = FakeScorer(fail_at=1)
    scorer.error = CrosscutError("boom")
    with pytest.raises(CrosscutError, match=r"^boom$"):
        start(None, scorer)
