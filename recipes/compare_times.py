"""The units of the experiment with compare models that measure time: of pipelines, and against candidates."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from compare_data import CALLS, RERANKED, SOURCES, WIDE
from compare_run import Run
from experiment import is_trained, note

from crosscut import Index
from crosscut.compare import KINDS, as_comparer
from crosscut.encoders import as_encoder
from crosscut.scorers import as_scorer
from crosscut.types import Item

QUERIES, WARM = 40, 8  # searches of a pipeline that are timed, and before them
COMPARED = (16, 64, 256, 1024, 4096, 10_000, 16_384)  # candidates of CMC
PAIRS = (1, 4, 16, 64, 128, 256)  # of a cross-encoder
REPEATS = {"cuda": 20, "cpu": 3}


def pipelines() -> list[str]:
    """What is timed: the first stage alone, with a compare model behind it, and with the cross-encoder."""
    made = [f"dense:{RERANKED}", f"dense:{WIDE}"]
    made += [f"dense:{RERANKED} > {kind}:{RERANKED}" for kind in KINDS]
    made += [f"dense:{WIDE} > {kind}:{RERANKED}" for kind in KINDS if kind != "deformer"]
    made += [f"dense:{n} > cross:{n}" for n in CALLS]
    made += [f"dense:{n} > cmc:{calls} > cross:{calls}" for n in SOURCES for calls in CALLS]
    return made


def time(run: Run) -> None:
    """Seconds of single searches through pipelines of a real index, in the largest part."""
    part = max(run.parts, key=lambda part: len(part.examples.items))
    items = map(Item, part.examples.item_ids, part.examples.items)
    scorer, found = as_scorer(str(run.cross), **run.task.limits), as_encoder(str(run.encoder))
    index = Index.build(items, scorer=scorer, encoder=found, lexical=None, path=run.out / "index", overwrite=True)
    for kind in KINDS:
        index.add_compare(str(model_for_timing(run, kind)), name=kind, signal=0)
    texts = part.examples.queries[: WARM + QUERIES]
    made: dict[str, Any] = {}
    for pipeline in pipelines():
        seconds, stages = [], []
        for text in texts:
            begun = perf_counter()
            result = index.search(text, k=10, pipeline=pipeline)
            seconds.append(perf_counter() - begun)
            stages.append([stage.seconds for stage in result.stages or ()])
        made[pipeline] = {
            "seconds": _rounded(seconds[WARM:] or seconds),
            "stages": _rounded(np.median(stages, axis=0)),
        }
    about = machine(found) | {"world": part.name, "items": len(part.examples.items), "pipelines": made}
    note(run.results / "time.done.json", **about)


def curve(run: Run, device: str | None = None, unit: str = "curve") -> None:
    """Seconds of one query against the number of candidates, by CMC and by the cross-encoder."""
    part = max(run.parts, key=lambda part: len(part.examples.items))
    queries, items = part.examples.queries, part.examples.items
    comparer = as_comparer(str(model_for_timing(run, "cmc")), device)
    scorer = as_scorer(str(run.cross), device=device, **run.task.limits)
    vectors = comparer.encode_items(items)
    repeats = REPEATS["cuda" if comparer.device.startswith("cuda") else "cpu"]

    def compare(count: int, number: int) -> None:
        chosen = vectors.take(np.arange(number, number + count) % len(items))
        comparer.score(comparer.encode_queries([queries[number % len(queries)]]), [chosen])

    def cross(count: int, number: int) -> None:
        query = queries[number % len(queries)]
        scorer.score([(query, items[(17 * number + place) % len(items)]) for place in range(count)])

    made = {
        "cmc": {count: timed(compare, count, repeats) for count in COMPARED if count <= run.args.largest},
        "cross": {count: timed(cross, count, repeats) for count in PAIRS if count <= run.args.largest},
    }
    note(run.results / f"{unit}.done.json", **machine(comparer), **made)


def timed(work: Callable[[int, int], None], count: int, repeats: int) -> list[float]:
    """Seconds of each of some calls, after one that does whatever is slow only once."""
    made = []
    for number in range(repeats + 2):
        begun = perf_counter()
        work(count, number)
        made.append(perf_counter() - begun)
    return _rounded(made[2:])


def model_for_timing(run: Run, kind: str) -> Path:
    """The trained model, or one that knows nothing yet: it takes as long."""
    trained: Path = run.out / "models" / kind
    fresh: Path = run.out / "fresh" / kind
    if is_trained(trained):
        return trained
    if not (fresh / "compare.json").exists():
        from crosscut.compare.comparer import save
        from crosscut.compare.registry import model_class
        from crosscut.compare.text_encoder import TextEncoder

        encoder = TextEncoder.load(run.start(None))
        encoder.model.max_seq_length = min(
            run.task.max_length, encoder.model.max_seq_length or run.task.max_length
        )
        save(model_class(kind)(encoder), fresh)
    return fresh


def machine(model: Any) -> dict[str, Any]:
    """Where it was measured."""
    import torch

    device = str(getattr(model, "device", "") or getattr(getattr(model, "_model", None), "device", "cpu"))
    is_gpu = device.startswith("cuda")
    name = torch.cuda.get_device_name() if is_gpu else _processor()
    return {"device": "cuda" if is_gpu else "cpu", "machine": name, "cores": len(os.sched_getaffinity(0))}


def _processor() -> str:
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 6) for value in values]
