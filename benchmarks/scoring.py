"""How fast pairs are scored, beside sentence-transformers' CrossEncoder in the same run on the same texts.

    python benchmarks/scoring.py MODEL DATA [--queries 100] [--also EXPORTED ...] [--profile]

MODEL is a cross-encoder's folder or name, DATA a BEIR folder. Texts go in and scores come out: tokenising is
part of the time, for both. Items are cut beforehand to 160 tokens and queries to 48, so that both read the very
same tokens. On a GPU every query is scored against every item; on a CPU a sample of the pairs is. `--also` names
folders that `crosscut export` wrote. `--profile` says where the time goes, `--scores FILE` keeps the scores.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder

from crosscut.data import read_items, read_queries
from crosscut.scorers import as_scorer
from crosscut.scorers.exported import ExportedScorer
from crosscut.scorers.packed import _linear
from crosscut.scorers.transformer import TransformerScorer

QUERY_TOKENS, ITEM_TOKENS = 48, 160
SEARCH = 200  # pairs of one query in a search


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--queries", type=int, default=100, help="queries of the whole job (GPU)")
    parser.add_argument("--query-ids", type=Path, help="a file of ids, one a line, instead of the first queries")
    parser.add_argument(
        "--pairs", type=int, help="pairs that are timed (default: 8000 for the peer on a GPU, 400 on a CPU)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="times of which the best counts (CPU)")
    parser.add_argument("--also", nargs="*", default=[], metavar="FOLDER")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--scores", type=Path)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scorer = as_scorer(args.model, device=device)
    assert isinstance(scorer, TransformerScorer)
    tokenizer = scorer.tokens.store.tokenizer
    queries = read_queries(args.data)
    if args.query_ids:
        by_id = {query.id: query for query in queries}
        queries = [by_id[line] for line in args.query_ids.read_text().split()]
    queries = cut(tokenizer, [query.text for query in queries[: args.queries]], QUERY_TOKENS)
    items = cut(tokenizer, [item.content for item in read_items(args.data)], ITEM_TOKENS)
    print(f"{name_of(device)}, torch {torch.__version__}: {len(queries)} queries, {len(items)} items")
    measure = on_gpu if device == "cuda" else on_cpu
    figures = measure(args, scorer, queries, items)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


def on_gpu(args: argparse.Namespace, scorer: TransformerScorer, queries: list[str], items: list[str]) -> dict:
    peer = CrossEncoder(args.model, device="cuda", model_kwargs={"dtype": torch.float16})
    sample = draw(queries, items, args.pairs or 8_000)
    rates = {}
    for size in (32, 64, 128, 256, 512, 1024):
        rates[size] = rate(lambda pairs, size=size: predict(peer, pairs, size), sample)
        print(f"  CrossEncoder.predict, batch size {size}: {rates[size]:,.0f} pairs/s", flush=True)
    figures: dict = {
        "machine": name_of("cuda"),
        "peer": max(rates.values()),
        "peer_batch_size": max(rates, key=rates.get),
    }
    scorer.score(sample[:2000])  # compiles the kernels
    scorer.tokens.store.clear()  # the job tokenises its texts itself
    torch.cuda.synchronize()
    before = matrix_rate()
    start = time.perf_counter()
    tile = max(1, 500_000 // len(items))
    scores = [
        scorer.score([(query, item) for query in queries[at : at + tile] for item in items])
        for at in range(0, len(queries), tile)
    ]
    seconds = time.perf_counter() - start
    figures["matrix_rate"] = (before + matrix_rate()) / 2
    pairs = len(queries) * len(items)
    lengths = scorer.tokens.pairs([(query, item) for query in queries[:4] for item in items]).lengths
    work = flops(scorer, lengths) / len(lengths)
    figures |= {"pairs": pairs, "seconds": seconds, "rate": pairs / seconds, "tokens_per_pair": lengths.mean()}
    figures["ratio"] = figures["rate"] / figures["peer"]
    figures["share"] = figures["rate"] * work / figures["matrix_rate"]
    print(f"whole job: {pairs:,} pairs of {lengths.mean():.0f} tokens in {seconds:.1f} s,")
    print(f"  {figures['rate']:,.0f} pairs/s, {figures['ratio']:.1f} times CrossEncoder.predict at its best;")
    print(f"  {figures['share']:.1%} of the matrix rate ({figures['matrix_rate'] / 1e12:.0f} TFLOP/s, fp16)")
    figures |= search_sized(scorer, peer, queries, items, figures["peer_batch_size"])
    figures |= fidelity(args.model, peer, np.concatenate(scores).reshape(len(queries), -1)[:60], queries, items)
    if args.scores:
        np.save(args.scores, np.concatenate(scores).reshape(len(queries), -1).astype(np.float16))
    if args.profile:
        profile(scorer, draw(queries, items, 10_000), figures["matrix_rate"])
    return figures


def on_cpu(args: argparse.Namespace, scorer: TransformerScorer, queries: list[str], items: list[str]) -> dict:
    peer = CrossEncoder(args.model, device="cpu", model_kwargs={"dtype": torch.float32})
    sample = draw(queries, items, args.pairs or 400)
    rates = {size: 0.0 for size in (4, 8, 16, 32)}
    best, ours = 0.0, {"torch fp32": scorer} | {folder: as_scorer(folder) for folder in args.also}
    figures = {name: 0.0 for name in ours}
    for _ in range(args.repeat):  # by turns, so that a slow minute of the machine meets all
        for size in rates:
            rates[size] = max(rates[size], rate(lambda pairs, size=size: predict(peer, pairs, size), sample))
        for name, one in ours.items():
            figures[name] = max(figures[name], rate(lambda pairs, one=one: fresh(one).score(pairs), sample))
    best = max(rates.values())
    work = flops(scorer, scorer.tokens.pairs(sample).lengths) / len(sample)
    top = matrix_rate(torch.float32, "cpu", 2048)
    reference = predict(peer, sample, 8)
    print(f"fp32 matrix rate {top / 1e9:.0f} GFLOP/s; a pair is {work / 1e9:.2f} GFLOP")
    size = max(rates, key=rates.get)
    print(f"CrossEncoder.predict fp32: {best:.1f} pairs/s (batch size {size}), {best * work / top:.0%} of it")
    for name, speed in figures.items():
        error = np.abs(ours[name].score(sample) - reference).max()
        print(f"{name}: {speed:.1f} pairs/s, {speed / best:.2f} times; largest difference of a score {error:.1e}")
    if args.profile:
        profile(scorer, sample[:100], top)
        for one in ours.values():
            if isinstance(one, ExportedScorer) and (Path(one.name) / "model.onnx").is_file():
                profile_onnx(one, sample[:40])
    return {"machine": name_of("cpu"), "peer": best, "rates": figures, "matrix_rate": top}


def search_sized(scorer, peer, queries: list[str], items: list[str], size: int) -> dict[str, float]:
    """One query with 200 items, as a search asks for them; each time another query and other items."""
    rng = np.random.default_rng(1)
    seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    for query in [queries[at % len(queries)] for at in range(24)]:
        pairs = [(query, items[at]) for at in rng.choice(len(items), SEARCH, replace=False)]
        sizes = (size, SEARCH)
        seconds["peer"].append(min(timed(lambda s=s, p=pairs: predict(peer, p, s)) for s in sizes))
        seconds["ours"].append(timed(lambda p=pairs: scorer.score(p)))
    ours, theirs = (float(np.median(seconds[name][4:])) for name in ("ours", "peer"))
    print(
        f"one search-sized batch, {SEARCH} pairs: {ours * 1e3:.1f} ms, CrossEncoder.predict {theirs * 1e3:.1f} ms"
    )
    print(f"  ({theirs / ours:.1f} times faster)")
    return {"search_ms": ours * 1e3, "search_peer_ms": theirs * 1e3, "search_ratio": theirs / ours}


def fidelity(model: str, peer, half: np.ndarray, queries: list[str], items: list[str]) -> dict[str, float]:
    """What half precision does to fp32's top 100: its error, and how many neighbours change places."""
    exact = as_scorer(model, device="cuda", dtype="float32")
    true, ours, theirs = [], [], []
    for row, query in zip(half, queries, strict=False):
        top = np.argsort(-row, kind="stable")[:150]
        pairs = [(query, items[at]) for at in top]
        true.append(exact.score(pairs))
        ours.append(row[top])
        theirs.append(predict(peer, pairs, 150))
    error = float(np.std(np.subtract(ours, true)))
    print(f"fp16 against fp32 in the top 100: error of a score {error:.4f}; neighbours that change places")
    figures = {"error": error}
    for name, scores in (("ours", ours), ("CrossEncoder.predict", theirs)):
        raw, kept = turned(true, scores), turned(np.float16(true), np.float16(scores))
        figures |= {f"turned, {name}": raw, f"turned as float16, {name}": kept}
        print(f"  {name}: {raw:.2%}; {kept:.2%} when scores are kept as float16, where some have no order")
    return figures


def turned(true, scores) -> float:
    """The share of neighbours in the top 100 by `true` that `scores` put the other way round."""
    shares = []
    for row, other in zip(np.float32(true), np.float32(scores), strict=True):
        top = np.argsort(-row, kind="stable")[:100]
        shares.append(np.mean((np.diff(other[top]) > 0) & (np.diff(row[top]) < 0)))
    return float(np.mean(shares))


def profile(scorer: TransformerScorer, pairs: list[tuple[str, str]], top: float) -> None:
    """Where the time goes, by kind of kernel, and the floor: the arithmetic at the full matrix rate."""
    activity = torch.profiler.ProfilerActivity
    gpu = scorer.device.startswith("cuda")
    scorer.score(pairs)
    with torch.profiler.profile(activities=[activity.CUDA if gpu else activity.CPU]) as trace:
        start = time.perf_counter()
        scorer.score(pairs)
        wall = time.perf_counter() - start
    kinds = {"attention": ("attention", "attn"), "add and norm": ("norm",), "activation": ("gelu",),
             "matrix products": ("gemm", "nvjet", "cutlass", "linear", "addmm", "mm")}  # fmt: skip
    spent: dict[str, float] = dict.fromkeys([*kinds, "other"], 0.0)
    for event in trace.key_averages():
        took = (event.self_device_time_total if gpu else event.self_cpu_time_total) / 1e6
        kind = next((kind for kind, marks in kinds.items() if any(m in event.key.lower() for m in marks)), "other")
        spent[kind] += took
    busy = sum(spent.values())
    floor = flops(scorer, scorer.tokens.pairs(pairs).lengths) / top
    print(f"profile of {len(pairs)} pairs, {wall * 1e3:.1f} ms with the profiler on, floor {floor * 1e3:.1f} ms:")
    for kind, took in sorted(spent.items(), key=lambda pair: -pair[1]):
        print(f"  {kind}: {took * 1e3:.1f} ms, {took / busy:.0%} of kernel time")
    print(f"  no kernel running: {max(0.0, wall - busy) / wall:.0%} of the wall time")


def profile_onnx(scorer: ExportedScorer, pairs: list[tuple[str, str]]) -> None:
    """Where ONNX Runtime's time goes on one core, by operation."""
    import onnxruntime

    from crosscut.scorers.exported.onnx import SLOW_FUSIONS

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.enable_profiling = 1, True
    path, slow = str(Path(scorer.name) / "model.onnx"), SLOW_FUSIONS
    session = onnxruntime.InferenceSession(path, settings, ["CPUExecutionProvider"], disabled_optimizers=slow)
    encoded = scorer.tokens.pairs(pairs)
    for at in range(len(pairs)):
        ids, types, mask = encoded.rows(np.array([at]))
        session.run(None, {"ids": ids, "mask": mask, "types": types})
    trace = Path(session.end_profiling())
    spent: Counter[str] = Counter()
    for event in json.loads(trace.read_text()):
        if event["cat"] == "Node":
            spent[event["args"]["op_name"]] += event["dur"]
    trace.unlink()
    print(f"profile of {scorer.name}, {len(pairs)} pairs on one core:")
    for name, took in spent.most_common(9):
        print(f"  {name}: {took / 1e3 / len(pairs):.2f} ms a pair, {took / spent.total():.0%}")


def flops(scorer: TransformerScorer, lengths: np.ndarray) -> float:
    """Multiplications and additions of the whole model on pairs of these lengths, none of them skipped."""
    config = scorer.config
    width, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    tokens, squares = float(lengths.sum()), float((lengths.astype(float) ** 2).sum())
    return layers * (2 * tokens * (4 * width**2 + 2 * width * inner) + 4 * squares * width)


def matrix_rate(dtype: torch.dtype = torch.float16, device: str = "cuda", size: int = 8192) -> float:
    """Operations per second of a big matrix product; on a CPU by oneDNN, as the fast path computes it."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    product = _linear(b, torch.zeros_like(b[0])) if device == "cpu" else b.__matmul__
    with torch.inference_mode():
        for _ in range(3):
            product(a)
        times = [timed(lambda: [product(a) for _ in range(5)]) / 5 for _ in range(5)]
    return 2 * size**3 / float(np.median(times))


def cut(tokenizer, texts: list[str], limit: int) -> list[str]:
    """Each text up to its token number `limit`."""
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [t if len(e) <= limit else t[: e.offsets[limit - 1][1]] for t, e in zip(texts, encodings, strict=True)]


def draw(queries: list[str], items: list[str], count: int) -> list[tuple[str, str]]:
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(queries) * len(items), min(count, len(queries) * len(items)), replace=False)
    return [(queries[at // len(items)], items[at % len(items)]) for at in chosen]


def predict(peer: CrossEncoder, pairs: list[tuple[str, str]], size: int) -> np.ndarray:
    return peer.predict(pairs, batch_size=size, activation_fn=torch.nn.Identity(), show_progress_bar=False)


def fresh(scorer):
    """The scorer with no text tokenised yet."""
    scorer.tokens.store.clear()
    return scorer


def rate(run, pairs: list[tuple[str, str]]) -> float:
    """Pairs per second of `run`, after a short warm-up."""
    run(pairs[:500] if torch.cuda.is_available() else pairs[:8])
    return len(pairs) / timed(lambda: run(pairs))


def timed(run) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def name_of(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return f"{model}, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    main()
