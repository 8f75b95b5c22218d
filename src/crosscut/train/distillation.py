"""Training a student on the scores of a cross-encoder, or of several, or on the vectors of an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.scorers.tokens import check_limits
from crosscut.system import needs_extra
from crosscut.train import folder
from crosscut.train.data import Examples
from crosscut.train.encoder import check_scale
from crosscut.train.mining import ENCODER, check_sources, first_items
from crosscut.train.settings import Settings
from crosscut.train.splits import hold_out, read_splits
from crosscut.train.teacher import SCALE, EncoderTeacher, Taught, TaughtRows, as_teacher, ask, known_to

LOSSES = ("match", "pair", "vectors", "mse")
ALL = "all"  # every item of a query's pool
DEPTH, TOP = 100, 10
SAMPLE = 16  # items of a query in a step, for a cross-encoder


def distil(
    data: str | Path,
    *,
    teacher: Any,
    base: str | Path,
    out: str | Path,
    loss: str = "match",
    candidates: str | list[str] | None = None,
    depth: int | None = None,
    top: int | None = None,
    sample: int | None = None,
    scale: float | None = None,
    head: str | None = None,
    states: float | None = None,
    query_tokens: int | None = None,
    item_tokens: int | None = None,
    max_length: int | None = None,
    licence: str | None = None,
    overwrite: bool = False,
    progress: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Train `base` on the scores that `teacher` gives to some items of each query, or on its vectors.

    teacher: a scorer as for `as_scorer`, an encoder (encoder:MODEL, whose cosines times `scale` are scores), a
    score-matrix file (.npz), or a list of these, which are averaged.
    loss: with "match" and "pair" (L_match and L_pair of ANNCUR A.3) a bi-encoder learns, with "mse" (ADACUR B.1.2)
    a cross-encoder. candidates: which `depth` items (100) of each query the teacher scores: the first of random,
    bm25, tfidf, encoder:MODEL or run:FILE (TREC's), several in equal parts, or "all" items, of which the best
    `depth` are kept. By default they are the first of the student as it begins (ADACUR B.2.2), or of bm25 and
    random for a cross-encoder. top: k_d, how many of the teacher's first (10) are paired in "pair". sample: how
    many items of a query a step takes (default: all, and 16 for a cross-encoder). scale, max_length: see
    `train_encoder`; head and the limits: see `train_cross_encoder`. states: a cross-encoder also learns, with this
    weight, the hidden states of its (first) teacher, which has the same width and knows its tokens: every token of
    a pair then says something, not the score alone, and it is asked as training goes, not before. With the loss
    "vectors" the teacher is an encoder, and a bi-encoder learns its vectors of all queries and items; `batch_size`
    then counts texts. What the teacher says is kept in `out` until the run has ended: one that continues does not
    ask again.

    >>> distil("faq", teacher="my-model", base="google-bert/bert-base-uncased", out="model", loss="guess")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no loss 'guess': use match, pair or vectors (encoder), or mse \
(cross-encoder)
    """
    if loss not in LOSSES:
        raise CrosscutError(
            f"there is no loss {loss!r}: use match, pair or vectors (encoder), or mse (cross-encoder)"
        )
    limits = {"query_tokens": query_tokens, "item_tokens": item_tokens, "max_length": max_length}
    for_scores = {"candidates": candidates, "depth": depth, "top": top, "sample": sample, "scale": scale}
    _check(loss, head, states, limits, for_scores)
    with needs_extra("train", "training"):
        from crosscut.train import trainer
    plan = Plan(data, base, loss, head or "cls", limits, Settings.of(settings), progress)
    made = _vectors(plan, teacher) if loss == "vectors" else _scores(plan, teacher, for_scores, states)
    kind = plan.head if loss == "mse" else "encoder"
    is_known = all(made.record["teacher_digest"])  # or what it said could be of another
    common = (plan.settings, made.rows, licence, overwrite, progress, is_known)
    order = trainer.Order(Path(out), kind, made.record, *common)
    return trainer.train(order, made.task, made.make)


def _check(
    loss: str, head: str | None, states: float | None, limits: dict[str, Any], for_scores: dict[str, Any]
) -> None:
    if head not in (None, "cls", "emb"):
        raise CrosscutError(f"there is no head {head!r}: use cls or emb")
    if loss != "mse" and (head or limits["query_tokens"] or limits["item_tokens"]):
        raise CrosscutError(
            f"head, query_tokens and item_tokens are for a cross-encoder: {loss} trains an encoder"
        )
    if states is not None and loss != "mse":
        raise CrosscutError(f"states are for a cross-encoder that learns from one: {loss} trains an encoder")
    if states is not None and not 0 < states < float("inf"):
        raise CrosscutError(f"states must be above 0, but is {states!r}")
    if loss == "vectors" and (given := [name for name, value in for_scores.items() if value is not None]):
        raise CrosscutError(f"{', '.join(given)} cannot be set with the loss vectors, which needs no scores")
    check_limits(**limits, **{name: for_scores[name] for name in ("depth", "top", "sample")})
    if for_scores["scale"] is not None:
        check_scale(for_scores["scale"])


@dataclass(frozen=True)
class Plan:
    """What all students have in common."""

    data: str | Path
    base: str | Path
    loss: str
    head: str
    limits: dict[str, Any]
    settings: Settings
    progress: bool

    def is_shown(self, arguments: Any) -> bool:
        return self.progress and arguments.process_index == 0

    def record(self, train: Examples, **more: Any) -> dict[str, Any]:
        about = {
            "model": "cross-encoder" if self.loss == "mse" else "encoder",
            "data": str(self.data),
            "examples": train.digest(),
            "base": str(self.base),
            "loss": self.loss,
        }
        return about | more | self.limits | self.settings.record()


@dataclass(frozen=True)
class Made:
    """What the trainer needs: see `trainer.Order` and `trainer.train`."""

    record: dict[str, Any]
    rows: int
    task: Any
    make: Any


def _scores(plan: Plan, teacher: Any, asked: dict[str, Any], states: float | None) -> Made:
    from crosscut.train import pairs, process, students, vectors
    from crosscut.train.states import StateTask

    loss, settings, limits = plan.loss, plan.settings, plan.limits
    to_pairs, device = loss == "mse", settings.own_device
    depth, top, scale = asked["depth"] or DEPTH, asked["top"] or TOP, asked["scale"] or SCALE
    by_default = "bm25,random" if to_pairs else f"{ENCODER}{plan.base}"
    sources = check_sources(asked["candidates"] or by_default, ALL)
    if ALL in sources and len(sources) > 1:
        raise CrosscutError("candidates are all items, or come from other sources, not both")
    given = teacher if isinstance(teacher, list | tuple) else [teacher]
    teachers = [as_teacher(one, device, scale) for one in given]
    if not teachers:
        raise CrosscutError("there is no teacher: name at least one")
    train, dev = _known_splits(plan.data, settings, teachers)
    record = plan.record(
        train,
        teacher=[one.name for one in teachers],
        teacher_digest=[one.digest() for one in teachers],
        candidates=sources,
        depth=depth,
        top=top if loss == "pair" else None,
        sample=asked["sample"],
        **({} if states is None else {"states": states}),
        **({"head": plan.head} if to_pairs else {}),
        **({"scale": scale} if not to_pairs or any(isinstance(t, EncoderTeacher) for t in teachers) else {}),
    )
    keep = min(top, depth) if loss == "pair" else depth

    if loss == "pair" and max(map(len, train.pools)) <= keep:
        raise CrosscutError(
            f"no query has more than {keep} items, so that all are among the teacher's first: lower top"
        )

    def taught(work: Path, arguments: Any, name: str, examples: Examples, keep: int) -> Taught:
        drawn: np.ndarray | None = None
        if ALL not in sources:
            with arguments.main_process_first(local=False):
                drawn = folder.kept(
                    work / f"{folder.CANDIDATES}{name}.npy",
                    lambda: first_items(examples, sources, depth, settings.seed, device),
                )
        more: dict[str, Any] = {"process": (arguments.process_index, arguments.world_size), "wait": process.wait}
        more["progress"] = plan.is_shown(arguments)
        cache = work / f"{folder.TEACHER}{name}"
        if states is None or examples is not train:
            return ask(teachers, examples, drawn, keep, cache, **more)
        # The first is asked when a step has its states, and the others before.
        if drawn is None:
            drawn = ask(teachers, examples, None, keep, cache, **more).items
        if len(teachers) == 1:
            return Taught(drawn, np.zeros(drawn.shape, np.float32))
        return ask(teachers[1:], examples, drawn, keep, cache, **more)

    def make_pairs(work: Path, arguments: Any) -> Any:
        loaded = pairs.load_base(plan.base, plan.head, train.markers, settings.seed)
        rows, dev_rows = (
            TaughtRows(taught(work, arguments, name, part, keep), asked["sample"] or SAMPLE, settings.seed)
            for name, part in (("train", train), ("dev", dev))
        )
        more: dict[str, Any] = {"eval_batch": settings.batch_size, "progress": plan.is_shown(arguments)}
        if states is not None:
            more |= {"teachers": teachers, "states": states}
        return task(loaded, rows, train, dev_rows, dev, **limits, **more)

    def make_vectors(work: Path, arguments: Any) -> Any:
        encoder = vectors.load_base(plan.base, train.markers, limits["max_length"], settings.seed)
        rows = TaughtRows(taught(work, arguments, "train", train, keep), asked["sample"], settings.seed)
        dev_taught = taught(work, arguments, "dev", dev, depth)
        more: dict[str, Any] = {"dev_taught": dev_taught, "scale": scale, "progress": plan.is_shown(arguments)}
        if loss == "match":
            return students.MatchTask(encoder, rows, train, dev, **more)
        return students.PairwiseTask(encoder, rows, train, dev, work=work, **more)

    task: Any = students.MatchTask
    if to_pairs:
        task = students.RegressionTask if states is None else StateTask
    return Made(record, len(train), task, make_pairs if to_pairs else make_vectors)


def _vectors(plan: Plan, teacher: Any) -> Made:
    from crosscut.train import imitation, vectors

    encoder = imitation.encoder_teacher(teacher, plan.settings.own_device)
    train, dev = read_splits(plan.data, plan.settings, labelled=False)
    record = plan.record(train, teacher=[encoder.name], teacher_digest=[encoder.digest()])

    def make(work: Path, arguments: Any) -> Any:
        student = vectors.load_base(plan.base, train.markers, plan.limits["max_length"], plan.settings.seed)
        imitation.check_dimensions(encoder, student)
        with arguments.main_process_first(local=False):
            taught = imitation.vectors_of(encoder, train, work / f"{folder.TEACHER}train")
            items = taught[1] if dev.items == train.items else None
            dev_taught = imitation.vectors_of(encoder, dev, work / f"{folder.TEACHER}dev", items)
        more: dict[str, Any] = {"dev_taught": dev_taught, "progress": plan.is_shown(arguments)}
        return imitation.ImitationTask(student, train, dev, taught=taught, **more)

    return Made(record, len(train.queries) + len(train.items), imitation.ImitationTask, make)


def _known_splits(data: str | Path, settings: Settings, teachers: list[Any]) -> tuple[Examples, Examples]:
    train, dev = (known_to(teachers, part) for part in read_splits(data, settings, labelled=False))
    if not len(train):
        raise CrosscutError(f"no query of the split {settings.split!r} is in the teacher's score matrix")
    return (train, dev) if len(dev) else hold_out(train, settings)
