"""The units of the experiment with compare models that measure time: of pipelines, and against candidates."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from compare_data import CALLS, CHUNK, RERANKED, SOURCES, WIDE
from compare_run import Run
from compare_scoring import Compared, Table
from experiment import is_trained, note

from crosscut import Index
from crosscut.compare import KINDS, Comparer, as_comparer
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


def time(run: Run, device: str | None = None, unit: str = "time") -> None:
    """Seconds of single searches through pipelines of a real index, in the largest part."""
    part = max(run.parts, key=lambda part: len(part.examples.items))
    items = list(map(Item, part.examples.item_ids, part.examples.items))[: run.args.timed_items]
    scorer = as_scorer(str(cross_for_timing(run)), device=device, **run.task.limits)
    found = as_encoder(str(run.encoder), device)
    index = Index.build(items, scorer=scorer, encoder=found, lexical=None, path=run.out / "index", overwrite=True)
    for kind in KINDS:
        index.add_compare(as_comparer(str(model_for_timing(run, kind)), device), name=kind, signal=0)
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
    about = machine(found) | {"world": part.name, "items": len(items), "pipelines": made}
    note(run.results / f"{unit}.done.json", **about)


def curve(run: Run, device: str | None = None, unit: str = "curve") -> None:
    """Seconds of one query against the number of candidates, by CMC and by the cross-encoder; see LINES."""
    from sentence_transformers import CrossEncoder

    part = max(run.parts, key=lambda part: len(part.examples.items))
    queries, items = part.examples.queries, part.examples.items
    model, pairs = str(model_for_timing(run, "cmc")), str(cross_for_timing(run))
    comparer, chunked = as_comparer(model, device), as_comparer(model, device, chunk=CHUNK)
    place = "cuda" if comparer.device.startswith("cuda") else "cpu"
    scorer = as_scorer(pairs, device=device, **run.task.limits)
    dtype = {"dtype": "float16" if place == "cuda" else "float32"}
    plain = CrossEncoder(pairs, device=place, max_length=sum(run.task.limits.values()), model_kwargs=dtype)
    vectors, ready = comparer.encode_items(items), Compared.of(comparer, queries[:1], items)

    def query(number: int) -> str:
        return queries[number % len(queries)]

    def places(count: int, number: int) -> np.ndarray:
        return np.arange(number, number + count) % len(items)

    def compare(by: Comparer, count: int, number: int) -> None:
        by.score(by.encode_queries([query(number)]), [vectors.take(places(count, number))])

    def at_hand(count: int, number: int) -> None:
        encoded = Table.of(comparer, comparer.encode_queries([query(number)]))
        replace(ready, queries=encoded).scores(places(count, number)[None])

    def texts(count: int, number: int) -> list[tuple[str, str]]:
        return [(query(number), items[at]) for at in places(count, 17 * number)]

    works: dict[str, tuple[Callable[[int, int], Any], Sequence[int]]] = {
        "query": (lambda count, number: comparer.encode_queries([query(number)]), (1,)),
        "cmc": (partial(compare, comparer), COMPARED),
        "chunked": (partial(compare, chunked), [count for count in COMPARED if count > CHUNK]),
        "at hand": (at_hand, COMPARED),
        "cross": (lambda count, number: scorer.score(texts(count, number)), PAIRS),
        "predict": (lambda count, number: plain.predict(texts(count, number), batch_size=count), PAIRS),
    }
    if place == "cpu":
        del works["at hand"]  # they always are
    made = {
        name: {count: timed(work, count, REPEATS[place]) for count in counts if count <= run.args.largest}
        for name, (work, counts) in works.items()
    }
    note(run.results / f"{unit}.done.json", **machine(comparer), times=made)


def timed(work: Callable[[int, int], Any], count: int, repeats: int) -> list[float]:
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
    if not fresh.exists():
        from crosscut.compare.comparer import save
        from crosscut.compare.registry import model_class
        from crosscut.compare.text_encoder import TextEncoder
        from crosscut.train.vectors import load_base

        markers = run.parts[0].examples.markers
        encoder = load_base(run.start(None), markers, run.task.max_length, run.args.seed)
        save(model_class(kind)(TextEncoder(encoder)), fresh)
    return fresh


def cross_for_timing(run: Run) -> Path:
    """Likewise."""
    fresh: Path = run.out / "fresh" / "cross"
    if run.args.cross_encoder is not None or is_trained(run.out / "cross"):
        return run.cross
    if not fresh.exists():
        from crosscut.train.pairs import load_base

        base = run.args.cross_base or run.args.base
        loaded = load_base(base, "cls", run.parts[0].examples.markers, run.args.seed)
        for one in (loaded.model, loaded.tokenizer):
            one.save_pretrained(fresh)
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
