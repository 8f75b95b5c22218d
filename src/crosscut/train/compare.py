"""Training a compare model: CMC or one of its peers, on queries and the items that answer them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crosscut.compare.base import ItemVectors
from crosscut.compare.registry import model_class
from crosscut.encoders import Encoder, as_encoder
from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.scorers.tokens import check_limits
from crosscut.system import needs_extra
from crosscut.train import folder
from crosscut.train.candidates import Drawn, FirstStage, Ranked, Sampled
from crosscut.train.data import Examples
from crosscut.train.encoder import check_scale
from crosscut.train.mining import mine, vector_finder
from crosscut.train.settings import Settings
from crosscut.train.splits import read_splits

if TYPE_CHECKING:
    from crosscut.compare.model import CompareModel

REGULARISE = ("paper", "reverse", "none")
NEGATIVES = ("first-stage", "random")
LAYER_RATE = 10  # times the learning rate of the encoder: what begins with zeros has a longer way


def train_compare(
    data: str | Path,
    *,
    base: str | Path,
    out: str | Path,
    model: str = "cmc",
    model_settings: Mapping[str, Any] | None = None,
    two_encoders: bool = False,
    fixed_items: bool = False,
    first_stage: str | Path | Encoder | None = None,
    negatives: str = "first-stage",
    candidates: int = 64,
    depth: int = 1024,
    top_share: float = 0.5,
    regularise: str = "paper",
    regularise_weight: float = 0.5,
    scale: float = 20.0,
    layer_rate: float | None = None,
    max_length: int | None = None,
    licence: str | None = None,
    overwrite: bool = False,
    progress: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Train a compare model whose encoder begins as `base`, a bi-encoder or any encoder, for `as_comparer(out)`.

    model: cmc, poly, sum-of-max, deformer, mix or bi. model_settings: its own, such as {"layers": 2, "skip":
    "mean"}; see the classes in `crosscut.compare`. two_encoders: one for queries and one for items, which begin
    alike. fixed_items: what is kept of items stays as the base makes it; an encoder of queries and the model's
    layers learn. That takes a fraction of the time, as only queries are read.

    Each query has `candidates` (the paper's K): one item that answers it, and others among the first `depth` of
    the `first_stage` (an encoder; default: the base). Of these the share `top_share` are always its first; the
    rest are drawn anew in every epoch by the softmax of its scores (eq. 6), `scale` times its cosines. negatives:
    "random" draws all of them from the pool instead, for data that has no ranking.

    The loss is (1 − λ2) · cross-entropy + λ2 · KL; λ2 is `regularise_weight`. regularise: "paper" is KL(p‖r), of
    the softmax p of the model's scores from r, that of the first stage's (eq. 5); "reverse" is KL(r‖p); "none" is
    the cross-entropy alone. layer_rate: learning rate of the layers that the encoder does not have (default: 10
    times learning_rate). The rest is as in `train_encoder`.

    >>> train_compare("faq", base="google-bert/bert-base-uncased", out="model", regularise="both")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no regularise 'both': use paper, reverse, none
    """
    for name, value, known in (("regularise", regularise, REGULARISE), ("negatives", negatives, NEGATIVES)):
        if value not in known:
            raise CrosscutError(f"there is no {name} {value!r}: use {', '.join(known)}")
    check_scale(scale)
    check_limits(max_length=max_length, candidates=candidates, depth=depth)
    if candidates < 2:
        raise CrosscutError("candidates must be at least 2: one that answers the query, and one that does not")
    if negatives == "first-stage" and depth < candidates - 1:
        raise CrosscutError(
            f"depth {depth} has too few items for {candidates} candidates: it must be at least {candidates - 1}"
        )
    _check_share(top_share=top_share, regularise_weight=regularise_weight)
    chosen = Settings.of(settings)
    layer_rate = LAYER_RATE * chosen.learning_rate if layer_rate is None else layer_rate
    if not 0 < layer_rate < float("inf"):
        raise CrosscutError(f"layer_rate must be above 0, but is {layer_rate!r}")
    with needs_extra("train", "training"):
        from crosscut.compare.model import check_settings
        from crosscut.compare.text_encoder import TextEncoder
        from crosscut.train import compare_task, trainer, vectors
    kind = model_class(model)
    own: dict[str, Any] = {"scale": scale} if model == "bi" else {}
    own |= {name: value for name, value in (model_settings or {}).items() if value is not None}
    check_settings(kind, own)
    train, dev = read_splits(data, chosen)
    by_stage = negatives == "first-stage"
    is_needed = by_stage or regularise != "none"
    stage = as_encoder(first_stage or base, chosen.own_device) if is_needed else None
    record = {
        "model": model,
        "model_settings": own,
        "two_encoders": two_encoders or fixed_items,
        "fixed_items": fixed_items,
        "data": str(data),
        "examples": train.digest(),
        "base": str(base),
        "first_stage": stage and stage.name,
        "first_stage_digest": stage and stage.digest(),
        "negatives": negatives,
        "candidates": candidates,
        "depth": depth if by_stage else None,
        "top_share": top_share if by_stage else None,
        "regularise": regularise,
        "regularise_weight": regularise_weight,
        "scale": scale,
        "layer_rate": layer_rate,
        "max_length": max_length,
        **chosen.record(),
    }

    def make(work: Path, arguments: Any) -> compare_task.CompareTask:
        def fresh(encoders: int) -> CompareModel:
            loaded = (vectors.load_base(base, train.markers, max_length, chosen.seed) for _ in range(encoders))
            return kind(*map(TextEncoder, loaded), **own)

        built = fresh(1 + record["two_encoders"])
        if fixed_items:
            built.fix_items()  # or say that this model cannot
        with arguments.main_process_first(local=False):
            rows, dev_rows = _candidates(stage, train, dev, work, record, chosen)
            own_length = max_length is None
            fixed = (
                _fixed(fresh(1), stage if own_length else None, train, dev, work, chosen) if fixed_items else None
            )
        more: dict[str, Any] = {"regularise": regularise, "weight": regularise_weight, "layer_rate": layer_rate}
        more |= {
            "eval_batch": chosen.batch_size,
            "fixed": fixed,
            "progress": progress and arguments.process_index == 0,
        }
        return compare_task.CompareTask(built, rows, train, dev_rows, dev, **more)

    order = trainer.Order(Path(out), "compare", record, chosen, len(train), licence, overwrite, progress)
    return trainer.train(order, compare_task.CompareTask, make)


def _candidates(
    stage: Encoder | None,
    train: Examples,
    dev: Examples,
    work: Path,
    record: Mapping[str, Any],
    settings: Settings,
) -> tuple[Sampled | Drawn, Ranked | Drawn]:
    """Rows to train on, and to evaluate on. The first stage is asked once: its vectors are kept for the run."""
    count, seed = record["candidates"], settings.seed
    if stage is None:
        return Drawn(train, None, count, seed), Drawn(dev, None, count, seed)
    found = _vectors(stage, train, work / f"{folder.CANDIDATES}train", record["scale"], None, settings)
    if record["negatives"] == "random":
        return Drawn(train, found, count, seed), Drawn(dev, None, count, seed)
    known = found.items if dev.items == train.items else None
    dev_found = _vectors(stage, dev, work / f"{folder.CANDIDATES}dev", record["scale"], known, settings)

    def mined(name: str, examples: Examples, by: FirstStage, depth: int, answers_too: bool) -> np.ndarray:
        find = vector_finder(by.queries, by.items, settings.own_device)
        path = work / f"{folder.CANDIDATES}{name}.npy"
        return folder.kept(path, lambda: mine(examples, find, depth, answers_too))

    ranking = mined("train", train, found, record["depth"], answers_too=False)
    rows = Sampled(train, found, ranking, count, record["top_share"], seed, settings.own_device)
    return rows, Ranked(mined("dev", dev, dev_found, count, answers_too=True))


def _vectors(
    stage: Encoder, examples: Examples, path: Path, scale: float, items: np.ndarray | None, settings: Settings
) -> FirstStage:
    asked = partial(_encoded, stage, examples.queries, "query", settings)
    queries = folder.kept(path.with_name(f"{path.name}-queries.npy"), asked)
    return FirstStage(queries, _item_vectors(stage, examples, path, settings) if items is None else items, scale)


def _item_vectors(stage: Encoder, examples: Examples, path: Path, settings: Settings) -> np.ndarray:
    asked = partial(_encoded, stage, examples.items, "item", settings)
    return folder.kept(path.with_name(f"{path.name}-items.npy"), asked)


def _encoded(stage: Encoder, texts: Sequence[str], role: Role, settings: Settings) -> np.ndarray:
    with _rounding(settings):
        return stage.encode(texts, role)


def _rounding(settings: Settings) -> AbstractContextManager[Any]:
    """Encode as exactly as the training computes: a CPU that is told to take bf16 is many times as fast so."""
    import torch

    return torch.autocast("cpu", torch.bfloat16, enabled=settings.precision == "bf16")


def _fixed(
    model: CompareModel, stage: Encoder | None, train: Examples, dev: Examples, work: Path, settings: Settings
) -> tuple[ItemVectors, ItemVectors]:
    """Rows of the items to train on and to evaluate on, as an index will hold them.

    One vector of an item by the very encoder of the first stage is there already: its length does not matter.
    """
    from crosscut.compare.comparer import ModelComparer
    from crosscut.scorers.model_files import state_digest

    own = state_digest(model.encoder("item").model)
    known = stage if stage is not None and model.per_item == 1 and stage.digest() == own else None
    comparer = ModelComparer(model, device=settings.own_device)

    def encoded(items: Sequence[str]) -> ItemVectors:
        with _rounding(settings):
            return comparer.encode_items(items)

    def rows(examples: Examples, name: str) -> ItemVectors:
        path = work / f"{folder.CANDIDATES}{name}"
        if known is not None:
            return ItemVectors.single(_item_vectors(known, examples, path, settings).astype(np.float16))
        made = cache(partial(encoded, examples.items))
        return ItemVectors(
            folder.kept(path.with_name(f"{path.name}-rows.npy"), lambda: made().rows),
            folder.kept(path.with_name(f"{path.name}-starts.npy"), lambda: made().starts),
        )

    made = rows(train, "train")
    return made, made if dev.items == train.items else rows(dev, "dev")


def _check_share(**shares: float) -> None:
    for name, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise CrosscutError(f"{name} must be a share between 0 and 1, but is {share!r}")
