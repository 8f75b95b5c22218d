"""The command line as a process of its own: pipes, signals, and how soon it answers."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

COMMAND = [sys.executable, "-m", "crosscut.cli"]


def crosscut(*argv, input=""):
    return subprocess.run([*COMMAND, *map(str, argv)], input=input, capture_output=True, text=True, timeout=200)


def test_stdin_to_index_to_stdin_to_run_to_eval(folder):
    items = (folder / "items.jsonl").read_text()
    scorer = ["--scorer", "python:my_scorers:words"]
    built = crosscut("index", "-", "--out", "x", *scorer, input=items)
    assert (built.returncode, built.stderr.count("hint:")) == (0, 1)
    queries = '{"id": "q1", "text": "policy 7"}\n'
    found = crosscut("search", "x", "-", "-k", 3, "--budget", 20, "--format", "trec", *scorer, input=queries)
    assert found.stdout.startswith("q1 Q0 a7 1 ") and found.stderr == ""
    (folder / "qrels").write_text("q1 0 a7 1\n")
    measured = crosscut("eval", "-", "--qrels", "qrels", "--json", input=found.stdout)
    assert json.loads(measured.stdout)[0]["measures"]["RR@10"] == 1.0
    reranked = crosscut("rerank", "policy 7", "--items", "-", "--json", *scorer, input=items)
    assert json.loads(reranked.stdout)["hits"][0]["id"] == "a7"


def test_help_needs_neither_numpy_nor_torch():
    code = (
        "import sys, crosscut.cli as cli; cli._parser(); assert not {'numpy', 'scipy', 'torch'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=200).returncode == 0


def test_a_reader_that_leaves_early_is_no_error(folder):
    crosscut("index", "items.jsonl", "--out", "x")
    ask = subprocess.Popen(
        [*COMMAND, "search", "x", "policy", "-k", "40", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    ask.stdout.close()
    assert ask.stderr.read() == b""
    assert ask.wait(timeout=200) == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told_in_one_line(folder):
    with open("/dev/full", "w") as full:
        command = [*COMMAND, "rerank", "policy", "--items", "items.jsonl"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=200)
    assert ended.returncode == 2
    assert ended.stderr.startswith("crosscut: error: ") and ended.stderr.count("\n") == 1


def test_data_is_utf8_whatever_the_terminal(folder):
    command = [*COMMAND, "rerank", "flööd", "--items", "items.jsonl", "--json"]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, timeout=200
    )
    assert json.loads(ended.stdout.decode("utf-8"))["query"] == "flööd"


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_interrupted_index_continues_without_repeating_finished_tiles(folder):
    items, queries = 1100, 40  # 3 × 2 tiles of 16 × 1024
    (folder / "many.txt").write_text("".join(f"text number {n}\n" for n in range(items)))
    (folder / "anchors.txt").write_text("".join(f"number {n}\n" for n in range(queries)))
    command = ["index", "many.txt", "--out", "x", "--scorer", "python:my_scorers:slow"]
    command += ["--anchor-queries", "anchors.txt", "--json"]
    first = subprocess.Popen([*COMMAND, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    while len(list(folder.glob("x/scores/*.tiles/*.npy"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=100)
    assert first.returncode == 130
    assert "stopped; finished work is kept" in err and "Traceback" not in err
    tiles = len(list(folder.glob("x/scores/*.tiles/*.npy")))
    before = (folder / "calls.log").read_text().splitlines()
    (folder / "calls.log").unlink()

    second = crosscut(*command)
    assert second.returncode == 0
    after = (folder / "calls.log").read_text().splitlines()
    assert 2 <= tiles < 6
    assert len(set(before) & set(after)) < 16  # at most what the unfinished tile had
    assert len(set(before) | set(after)) == queries * 2
    assert json.loads(second.stdout)["calls"] < items * queries
    scorer = ["--scorer", "python:my_scorers:slow"]
    assert crosscut("search", "x", "number 7", "--json", *scorer).returncode == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs signals and /proc")
def test_processes_and_ctrl_c(folder):
    (folder / "many.txt").write_text("".join(f"text number {n}\n" for n in range(1100)))
    (folder / "anchors.txt").write_text("".join(f"number {n}\n" for n in range(40)))
    command = ["index", "many.txt", "--anchor-queries", "anchors.txt", "--json", "--scorer"]
    spread = ["--executor", "processes", "--workers", "2"]
    slow = [*COMMAND, *command, "python:my_scorers:slow", "--out", "x", *spread]
    # As from a terminal: the signal reaches the whole group of processes.
    with subprocess.Popen(
        slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as first:
        deadline = time.monotonic() + 60
        while not list(folder.glob("x/scores/*.tiles/*.npy")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(first.pid, signal.SIGINT)
        out, err = first.communicate(timeout=100)
    assert (first.returncode, out) == (130, "")
    assert err.strip() == "crosscut: stopped; finished work is kept, and the same command continues from there"
    assert _ends(first.pid)

    second = subprocess.run(slow, capture_output=True, text=True, timeout=120)
    assert second.returncode == 0 and 0 < json.loads(second.stdout)["calls"] < 40 * 1100
    assert crosscut(*command, "python:my_scorers:words", "--out", "y").returncode == 0
    scores = "scores/q000000-i000000.npy"
    assert (folder / "x" / scores).read_bytes() == (folder / "y" / scores).read_bytes()


def _ends(group):
    """Whether nobody is left of a group of processes, soon."""
    for _ in range(1000):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def test_flags_of_another_executor(folder):
    ended = crosscut("index", "items.jsonl", "--out", "x", "--workers", "2")
    assert ended.returncode == 2
    assert ended.stderr == "crosscut: error: the executor 'local' has no option workers\n"
    ended = crosscut("index", "items.jsonl", "--out", "x", "--executor", "slurm")
    assert ended.returncode == 2 and "invalid choice: 'slurm'" in ended.stderr
    assert not (folder / "x").exists()
