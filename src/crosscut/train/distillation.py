"""Training a student on the scores of a cross-encoder, or of several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crosscut.errors import CrosscutError
from crosscut.scorers.tokens import check_limits
from crosscut.system import needs_extra
from crosscut.train.data import Examples, hold_out, read_splits
from crosscut.train.encoder import check_scale
from crosscut.train.negatives import ENCODER, check_sources, first_items
from crosscut.train.settings import Settings
from crosscut.train.teacher import TaughtRows, as_teacher, ask, known_to

LOSSES = ("match", "pair", "mse")
ALL = "all"  # every item of a query's pool
SAMPLE = 16  # items of a query in a step, for a cross-encoder


def distil(
    data: str | Path,
    *,
    teacher: Any,
    base: str | Path,
    out: str | Path,
    loss: str = "match",
    candidates: str | list[str] | None = None,
    depth: int = 100,
    top: int = 10,
    sample: int | None = None,
    scale: float = 20.0,
    head: str | None = None,
    query_tokens: int | None = None,
    item_tokens: int | None = None,
    max_length: int | None = None,
    licence: str | None = None,
    overwrite: bool = False,
    progress: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Train `base` on the scores that `teacher` gives to some items of each query.

    teacher: a scorer as for `as_scorer`, a score-matrix file (.npz), or a list of these, which are averaged.
    loss: with "match" and "pair" (L_match and L_pair of ANNCUR A.3) a bi-encoder learns, with "mse" (ADACUR B.1.2)
    a cross-encoder. candidates: which `depth` items of each query the teacher scores: the first of random, bm25,
    tfidf or encoder:MODEL, several in equal parts, or "all" items, of which the best `depth` are kept. By default
    they are the first of the student as it begins (ADACUR B.2.2), or of bm25 and random for a cross-encoder. top:
    k_d, how many of the teacher's first are paired in "pair". sample: how many items of a query a step takes
    (default: all, and 16 for a cross-encoder). scale, max_length: see `train_encoder`; head and the limits: see
    `train_cross_encoder`. Scores are kept in `out` until the run has ended: one that continues does not ask again.

    >>> distil("faq", teacher="my-model", base="bert-base-uncased", out="model", loss="guess")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no loss 'guess': use match or pair (encoder), or mse (cross-encoder)
    """
    if loss not in LOSSES:
        raise CrosscutError(f"there is no loss {loss!r}: use match or pair (encoder), or mse (cross-encoder)")
    to_pairs = loss == "mse"
    if head not in (None, "cls", "emb"):
        raise CrosscutError(f"there is no head {head!r}: use cls or emb")
    if not to_pairs and (head or query_tokens or item_tokens):
        raise CrosscutError(
            f"head, query_tokens and item_tokens are for a cross-encoder: {loss} trains an encoder"
        )
    limits = {"query_tokens": query_tokens, "item_tokens": item_tokens, "max_length": max_length}
    check_limits(**limits, depth=depth, top=top, sample=sample)
    check_scale(scale)
    sources = check_sources(candidates or ("bm25,random" if to_pairs else f"{ENCODER}{base}"), ALL)
    if ALL in sources and len(sources) > 1:
        raise CrosscutError("candidates are all items, or come from other sources, not both")
    chosen = Settings.of(settings)
    with needs_extra("train", "training"):
        from crosscut.train import pairs, process, students, trainer, vectors
    teachers = [as_teacher(one) for one in (teacher if isinstance(teacher, list | tuple) else [teacher])]
    if not teachers:
        raise CrosscutError("there is no teacher: name at least one")
    train, dev = _known_splits(data, chosen, teachers)
    record = {
        "model": "cross-encoder" if to_pairs else "encoder",
        "data": str(data),
        "examples": train.digest(),
        "base": str(base),
        "teacher": [one.name for one in teachers],
        "teacher_digest": [one.digest() for one in teachers],
        "loss": loss,
        "candidates": sources,
        "depth": depth,
        "top": top if loss == "pair" else None,
        "sample": sample,
        **({"head": head or "cls"} if to_pairs else {"scale": scale}),
        **limits,
        **chosen.record(),
    }
    keep = min(top, depth) if loss == "pair" else depth

    def rows_of(examples: Examples, cache: Path, arguments: Any, count: int | None, keep: int) -> TaughtRows:
        drawn = None
        if ALL not in sources:
            drawn = first_items(examples, sources, depth, chosen.seed)
        place = (arguments.process_index, arguments.world_size)
        taught = ask(teachers, examples, drawn, keep, cache, process=place, wait=process.wait, progress=progress)
        return TaughtRows(taught, count, chosen.seed)

    def make_pairs(work: Path, arguments: Any) -> Any:
        loaded = pairs.load_base(base, head or "cls", train.markers, chosen.seed)
        rows, dev_rows = (
            rows_of(part, work / f"teacher-{name}", arguments, sample or SAMPLE, keep)
            for name, part in (("train", train), ("dev", dev))
        )
        return students.RegressionTask(loaded, rows, train, dev_rows, dev, **limits, eval_batch=chosen.batch_size)

    def make_vectors(work: Path, arguments: Any) -> Any:
        encoder = vectors.load_base(base, train.markers, max_length, chosen.seed)
        rows = rows_of(train, work / "teacher-train", arguments, sample, keep)
        dev_taught = rows_of(dev, work / "teacher-dev", arguments, None, depth).taught
        if loss == "match":
            return students.MatchTask(encoder, rows, train, dev, dev_taught=dev_taught, scale=scale)
        return students.PairwiseTask(encoder, rows, train, dev, dev_taught=dev_taught, scale=scale, work=work)

    kind = (head or "cls") if to_pairs else "encoder"
    order = trainer.Order(Path(out), kind, record, chosen, len(train), licence, overwrite, progress)
    if to_pairs:
        return trainer.train(order, students.RegressionTask, make_pairs)
    return trainer.train(order, students.MatchTask, make_vectors)


def _known_splits(data: str | Path, settings: Settings, teachers: list[Any]) -> tuple[Examples, Examples]:
    train, dev = (known_to(teachers, part) for part in read_splits(data, settings))
    if not len(train):
        raise CrosscutError(f"no query of the split {settings.split!r} is in the teacher's score matrix")
    return (train, dev) if len(dev) else hold_out(train, settings)
