"""The report on compare models: as intermediate stages, as last ones, and what makes them good (the CMC paper's
Tables 1 to 4, 8 and 12, and Figure 4). `compare_join` has the searches."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from compare_data import (
    ABLATIONS,
    CALLS,
    CHUNK,
    DEPTH,
    LINES,
    MANY,
    NAMES,
    REPORTED,
    RERANKED,
    SOURCES,
    STARTS,
    WEAK,
    WIDE,
)
from compare_results import FIRST, Results, found_only, mean, recall, reciprocal
from reporting import difference, figure, interval, percent, save_figure, table, write_tables

KS = (1, 4, 8, 16, 32, 64)
STAGES = {
    FIRST: "bi-encoder",
    "bi": "+ bi-encoder, trained like CMC",
    "poly": "+ Poly-encoder",
    "mix": "+ MixEncoder",
    "sum-of-max": "+ Sum-of-max",
    "cmc": "+ CMC",
    "cmc-free": "+ CMC, whose encoder of items learns, too",
    "cross": "+ cross-encoder",
}
RERANKERS = {name: NAMES[name] for name in ("deformer", "sum-of-max", "poly", "mix", "cmc")}
RERANKERS = {"cross": "cross-encoder", FIRST: "bi-encoder", "bi": "bi-encoder, trained like CMC"} | RERANKERS
BASELINE = f"dense:{RERANKED} > cross:{RERANKED}"


def write(args: argparse.Namespace) -> None:
    tables: dict[str, str] = {}
    runs = {name: Results(path) for name in REPORTED if (path := getattr(args, name))}
    for name, run in runs.items():
        end = "" if name == "linking" else f"-{name.replace('_', '-')}"
        if run.has(FIRST) and run.has("cmc"):
            tables[f"compare-retrieval{end}"] = retrieval_table(run)
            tables[f"compare-candidates{end}"] = candidates_table(run)
        if run.has(FIRST) and run.has("cmc") and len(run.parts()) > 1:
            tables[f"compare-worlds{end}"] = worlds_table(run)
        if run.has("final") and run.final(FIRST, RERANKED):
            tables[f"compare-calls{end}"] = calls_table(run)
        if any(run.has(f"{kind}-from-{start}") for kind in NAMES for start in STARTS):
            tables[f"compare-starts{end}"] = starts_table(run)
        if any(run.has(ablation) for ablation in ABLATIONS):
            tables[f"compare-ablation{end}"] = ablation_table(run)
    for is_weak, end in ((False, ""), (True, "-weak")):
        if chosen := {name: run for name, run in runs.items() if (name in WEAK) == is_weak}:
            tables[f"compare-rerankers{end}"] = rerankers_table(chosen)
    curves = {machine: curve for run in runs.values() for machine, curve in run.curves().items()}
    if curves:
        tables["compare-time"] = time_table(curves)
        plot_time(curves, args.out / "compare-time.svg")
    import compare_join

    tables |= compare_join.tables(args, runs)
    write_tables(args.out, tables, args.page)


def retrieval_table(run: Results) -> str:
    """What stands behind the first stage's 512 (Table 1): recall, time of a search, bytes of an item."""
    rows, one = [], run.bytes.get("cmc", 0.0)
    before = run.ranks(FIRST, WIDE)
    for name, label in STAGES.items():
        ranks = run.ranks(name, WIDE)
        if ranks is None or before is None:
            continue
        cells = [percent(mean(recall(ranks, k))) for k in KS]
        won = ["", ""] if name == FIRST else [recovered(before, ranks, k) for k in (16, 64)]
        pipeline = f"dense:{WIDE}" if name == FIRST else f"dense:{WIDE} > {name}:{RERANKED}"
        took = [_milliseconds(times.get(pipeline)) for times in run.pipelines.values()]
        size = one if name == FIRST else one + run.bytes.get(name, 0.0)
        rows.append([label, *cells, *won, *took, f"{size:,.0f}"])
    after, empty = run.ranks("cmc", WIDE), ["", "", *("" for _ in run.pipelines), ""]
    gains = [["CMC − bi-encoder", *_gains(before, after), *empty]]
    if (alike := run.ranks("bi", WIDE)) is not None:
        gains.append(["CMC − bi-encoder, trained like CMC", *_gains(alike, after), *empty])
    header = [
        "",
        *(f"R@{k}" for k in KS),
        "of R@16's misses",
        "of R@64's misses",
        *(f"a query, {machine}" for machine in run.pipelines),
        "bytes an item",
    ]
    return table(header, rows + gains)


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1000 * seconds:.1f} ms"


def recovered(before: list[np.ndarray], after: list[np.ndarray], k: int) -> str:
    """How much of what the first stage misses among its first k another puts there, on the mean of the parts.

    >>> recovered([np.array([1, 9, 9, 0])], [np.array([1, 1, 9, 0])], 8)
    '33 %'
    """
    missed = 1 - mean(recall(before, k))
    return f"{100 * (mean(recall(after, k)) - mean(recall(before, k))) / missed:.0f} %" if missed else "–"


def _gains(before: list[np.ndarray] | None, after: list[np.ndarray] | None) -> list[str]:
    if before is None or after is None:
        return [""] * len(KS)
    return [difference(_minus(recall(after, k), recall(before, k))) for k in KS]


def _minus(some: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [one - other for one, other in zip(some, others, strict=True)]


def candidates_table(run: Results) -> str:
    """CMC over fewer or more candidates (Table 8)."""
    rows = []
    lines = [(FIRST, "bi-encoder", WIDE), *(("cmc", f"CMC over {n:,}", n) for n in MANY)]
    for name, label, count in [*lines, ("cmc-chunked", f"CMC over {DEPTH:,}, in chunks of {CHUNK}", DEPTH)]:
        if (ranks := run.ranks(name, count)) is not None:
            rows.append([label, *(percent(mean(recall(ranks, k))) for k in KS)])
    return table(["", *(f"R@{k}" for k in KS)], rows)


def worlds_table(run: Results) -> str:
    """The bi-encoder and CMC over its 512, world by world."""
    rows, before, after = [], run.ranks(FIRST, WIDE), run.ranks("cmc", WIDE)
    for place, world in enumerate(run.parts()):
        if before is None or after is None:
            continue
        one, other = [before[place]], [after[place]]
        cells = [f"{percent(mean(recall(one, k)))} → {percent(mean(recall(other, k)))}" for k in (1, 8, 16, 64)]
        rows.append([world, f"{len(one[0]):,}", *cells, *(recovered(one, other, k) for k in (16, 64))])
    header = ["world", "mentions", "R@1", "R@8", "R@16", "R@64", "of R@16's misses", "of R@64's misses"]
    return table(header, rows)


def calls_table(run: Results) -> str:
    """The cross-encoder over candidates of the bi-encoder and of CMC (Table 2)."""
    base = run.final(FIRST, RERANKED)
    rows = []
    settings = [(FIRST, n, f"dense:{n} > cross:{n}", n, "–") for n in CALLS]
    settings += [
        (f"cmc-{n}", calls, f"dense:{n} > cmc:{calls} > cross:{calls}", n, calls)
        for calls in CALLS
        for n in SOURCES
        if n > calls
    ]
    for source, calls, pipeline, wide, kept in settings:
        made = run.final(source, calls)
        if made is None or base is None:
            continue
        right, found = made
        worlds = [percent(part.mean()) for part in right] if len(right) > 1 else []
        normalised = mean([one[other > 0] for one, other in zip(right, found, strict=True)])
        shares = [
            f"{100 * times[pipeline] / times[BASELINE]:.0f} %" if pipeline in times else "–"
            for times in run.pipelines.values()
        ]
        gap = "" if pipeline == BASELINE else difference(_minus(right, base[0]))
        cells = [percent(mean(found)), *worlds, percent(mean(right)), gap, percent(normalised), *shares]
        rows.append([wide, kept, *cells])
    names = run.parts("final")
    middle = [*names, "mean"] if len(names) > 1 else ["accuracy"]
    header = ["bi-encoder", "CMC", "recall", *middle, f"less bi-encoder's {RERANKED}", "normalised"]
    return table([*header, *(f"time, {machine}" for machine in run.pipelines)], rows)


def rerankers_table(runs: dict[str, Results]) -> str:
    """Every model as the last stage, on all tasks (Table 3)."""
    rows = []
    timed = next((run for run in runs.values() if run.pipelines), None)
    for name, label in RERANKERS.items():
        cells, known = [], False
        for run in runs.values():
            ranks = run.ranks(name, run.reranked)
            known = known or ranks is not None
            if ranks is None:
                cells += ["–", "–"]
            elif run.settings["task"] == "linking":
                right = recall(ranks, 1)
                cells += [_with_interval(right), percent(mean(found_only(right, ranks)))]
            else:
                cells += [_with_interval(recall(ranks, 1)), percent(mean(reciprocal(ranks)))]
        rows += [[label, *cells, *(_costs(timed, name) if timed else [])]] if known else []
    header = [""]
    for name, run in runs.items():
        task, is_linking = name.removeprefix("public_"), run.settings["task"] == "linking"
        header += [f"{task}: accuracy", "normalised"] if is_linking else [f"{task}: R@1", "MRR@10"]
    if timed:
        header += [*(f"time, {machine}" for machine in timed.pipelines), "memory"]
    return table(header, rows)


def _with_interval(values: list[np.ndarray]) -> str:
    middle, low, high = interval(values)
    return f"{percent(middle)} ({percent(low)}–{percent(high)})"


def _costs(run: Results, name: str) -> list[str]:
    """Times of a query, by machine, and bytes of an item, all as multiples of the bi-encoder's."""
    first = f"dense:{RERANKED}"
    pipeline = {"cross": BASELINE, FIRST: first}.get(name, f"{first} > {name}:{RERANKED}")
    took = [
        f"{times[pipeline] / times[first]:.1f} ×" if pipeline in times else "–" for times in run.pipelines.values()
    ]
    one, size = run.bytes.get("cmc"), run.bytes.get("cmc" if name == FIRST else name)
    return [*took, f"{size / one:.1f} ×" if size and one else "–"]


def starts_table(run: Results) -> str:
    """What the encoder begins as (Table 4): accuracy over the first stage's 64, normalised in brackets."""
    rows, own = [], run.settings["start"]
    for kind, label in NAMES.items():
        cells = []
        for start in STARTS:
            ranks = run.ranks(kind if start == own else f"{kind}-from-{start}", RERANKED)
            cells.append(_both(ranks) if ranks is not None else "–")
        if sum(cell != "–" for cell in cells) > 1:
            rows.append([label, *cells])
    return table(["", "the base", "the bi-encoder of the domain", "a plain encoder"], rows)


def _both(ranks: list[np.ndarray]) -> str:
    right = recall(ranks, 1)
    return f"{percent(mean(right))} ({percent(mean(found_only(right, ranks)))})"


def ablation_table(run: Results) -> str:
    """CMC trained in other ways (Table 12)."""
    rows = []
    base, wide = run.ranks("cmc", RERANKED), run.ranks("cmc", WIDE)
    for name, label in [("cmc", "CMC"), *((name, one.label) for name, one in ABLATIONS.items())]:
        ranks, more = run.ranks(name, RERANKED), run.ranks(name, WIDE)
        if ranks is None or more is None or base is None or wide is None:
            continue
        right = recall(ranks, 1)
        normalised = found_only(right, ranks)
        gaps = ["", ""]
        if name != "cmc":
            gaps[0] = difference(_minus(normalised, found_only(recall(base, 1), base)))
            gaps[1] = difference(_minus(recall(more, 64), recall(wide, 64)))
        rows.append(
            [
                label,
                percent(mean(right)),
                percent(mean(normalised)),
                gaps[0],
                percent(mean(recall(more, 64))),
                gaps[1],
            ]
        )
    return table(["", "accuracy", "normalised", "less CMC's", f"R@64 of {WIDE}", "less CMC's"], rows)


def time_table(curves: dict[str, dict[str, Any]]) -> str:
    """Milliseconds of a query with so many candidates (Figure 4)."""
    counts = sorted({int(n) for curve in curves.values() for times in curve["times"].values() for n in times})
    rows = []
    for machine, curve in curves.items():
        for line, times in curve["times"].items():
            known = {int(n): 1000 * np.median(some) for n, some in times.items()}
            rows.append([machine, LINES[line], *(f"{known[n]:.1f}" if n in known else "" for n in counts)])
    return table(["machine", "model", *(f"{n:,}" for n in counts)], rows)


def plot_time(curves: dict[str, dict[str, Any]], path: Path) -> None:
    drawn, axes = figure(1, len(curves), width=4.2)
    for axis, (machine, curve) in zip(axes[0], curves.items(), strict=True):
        for line, times in curve["times"].items():
            points = sorted((int(n), 1000 * np.median(some)) for n, some in times.items())
            if len(points) > 1:
                axis.plot(*zip(*points, strict=True), marker="o", ms=3, lw=1, label=LINES[line].replace("`", ""))
        axis.set(title=machine, xscale="log", yscale="log", xlabel="candidates")
    axes[0][0].set_ylabel("time of a query, ms")
    axes[0][0].legend()
    save_figure(drawn, path)
