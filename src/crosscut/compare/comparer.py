"""A compare model at work: texts in batches of like length, candidates in one pass, folders on disk."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import snapshot_download
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from tqdm import tqdm
from transformers.utils import cached_file

from crosscut.compare.base import Comparer, ItemVectors, QueryVectors
from crosscut.compare.bi import BiEncoder
from crosscut.compare.model import CompareModel, Rows, check_settings
from crosscut.compare.registry import model_class
from crosscut.compare.text_encoder import TextEncoder
from crosscut.data.atomic import atomic_write
from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.scorers.model_files import loading, model_location
from crosscut.scorers.tokens import check_limits, length_batches
from crosscut.scorers.torch_models import any_shape, fitting_tokens, pick_device
from crosscut.scorers.transformer import out_of_memory

FORMAT = 1
ABOUT = "compare.json"
LAYERS = "layers.safetensors"
FOLDERS = {"item": "encoder", "query": "query-encoder"}
BI = "bi:"
TEXTS = 16_384  # that are tokenised together
ROWS = {"cuda": 262_144, "cpu": 32_768}  # of candidates in a pass, where it can be divided


class ModelComparer(Comparer):
    """A compare model that torch runs, on a GPU in half precision; its scores are float32 there, too.

    chunk: compare at most so many candidates with each other. CMC otherwise takes up to 16,384 in one pass, and
    more in chunks of that size, each with the same query; the scores of candidates in different chunks then come
    from different comparisons. To the other models candidates are apart in any case, and chunks change nothing.
    """

    def __init__(
        self, model: CompareModel, *, device: str | None = None, chunk: int | None = None, name: str | None = None
    ) -> None:
        check_limits(chunk=chunk)
        self.device = pick_device(device)
        self.model, self.kind, self.per_item, self.width = model.eval(), model.kind, model.per_item, model.width
        self.name, self.chunk = name or model.kind, chunk
        self._digest: str | None = None
        if self.device.startswith("cuda"):
            self.digest()  # of the weights as they were saved: it is the same on every device
            model.half()
        model.to(self.device)
        self._tokens = fitting_tokens(model.encoder("item").inner, self.device)

    def digest(self) -> str:
        """Of the weights and settings: the same before it is saved and after it is loaded."""
        if self._digest is None:
            sha = hashlib.sha256(json.dumps([self.kind, self.model.settings], sort_keys=True).encode())
            for encoder in self.model.encoders.values():
                sha.update(encoder.digest().encode())
            for name, value in sorted(self.model.own_state().items()):
                sha.update(name.encode() + value.detach().cpu().float().contiguous().numpy().tobytes())
            self._digest = sha.hexdigest()[:16]
        return self._digest

    def save(self, folder: str | Path) -> None:
        if self.device.startswith("cuda"):
            raise CrosscutError("a compare model on a GPU is in half precision: save it from device='cpu'")
        save(self.model, Path(folder))

    def _encode(self, texts: Sequence[str], role: Role, progress: bool) -> ItemVectors:
        parts = []
        with tqdm(total=len(texts), unit="text", desc="vectors", disable=None if progress else True) as bar:
            for start in range(0, len(texts), TEXTS):
                parts.append(self._encode_block(texts[start : start + TEXTS], role, bar))
        return ItemVectors.concatenate(parts)

    def _encode_block(self, texts: Sequence[str], role: Role, bar: Any) -> ItemVectors:
        encoder = self.model.encoder(role)
        tokens = encoder.tokens(texts, role)
        lengths, order, parts = np.array([len(ids) for ids in tokens]), [], []
        with torch.inference_mode(), any_shape():
            for batch in length_batches(lengths, self._tokens, waste=0.1):
                parts.append(flat(self.model.encode(role, self._inputs([tokens[n] for n in batch], encoder.pad))))
                order.append(batch)
                bar.update(len(batch))
        back = np.argsort(np.concatenate(order))
        return ItemVectors.concatenate(parts).take(back)

    def _inputs(self, tokens: Sequence[Sequence[int]], pad: int) -> dict[str, torch.Tensor]:
        """Longest first, as `length_batches` gives them."""
        return {name: value.to(self.device) for name, value in as_inputs(tokens, pad).items()}

    def _score(self, queries: QueryVectors, candidates: Sequence[ItemVectors]) -> list[np.ndarray]:
        scores: list[np.ndarray] = [np.zeros(0)] * len(candidates)
        with torch.inference_mode(), any_shape():
            for group in self._groups(candidates):
                try:
                    made = self._score_group(queries.take(group), [candidates[place] for place in group])
                except (RuntimeError, MemoryError) as error:
                    if not out_of_memory(error):
                        raise
                    raise CrosscutError(
                        f"there is not enough memory on {self.device} to compare {len(candidates[group[0]])} "
                        f"candidates with {self.name}: give it fewer, or a smaller chunk, as in "
                        "as_comparer(model, chunk=1024)"
                    ) from error
                for place, values in zip(group, made, strict=True):
                    scores[place] = values
        return scores

    def _groups(self, candidates: Sequence[ItemVectors]) -> Iterator[list[int]]:
        """Queries with equally many candidates go together, so that no pass has padding among candidates."""
        by_size: dict[int, list[int]] = {}
        for place, items in enumerate(candidates):
            by_size.setdefault(len(items), []).append(place)
        for size, places in by_size.items():
            step = 1 if self.per_item is None else max(1, self._room // (size * self.per_item))
            yield from (places[start : start + step] for start in range(0, len(places), step))

    @property
    def _room(self) -> int:
        return ROWS["cuda" if self.device.startswith("cuda") else "cpu"]

    def _score_group(self, queries: QueryVectors, candidates: Sequence[ItemVectors]) -> np.ndarray:
        rows, there = self._padded(queries)
        size = len(candidates[0])
        scores = np.empty((len(candidates), size), np.float32)
        for places in self._passes(candidates, asked=rows.shape[1]):
            chunks, each = places.shape
            chosen = places.reshape(-1)
            in_order = np.array_equal(chosen, np.arange(size))
            taken = candidates if in_order else [items.take(chosen) for items in candidates]
            items, items_there = self._padded(taken[0] if len(taken) == 1 else ItemVectors.concatenate(taken))
            shape = (chunks * len(candidates), each, items.shape[1])
            items = items.reshape(*shape, -1)
            items_there = None if items_there is None else items_there.reshape(shape)
            asked = rows.repeat_interleave(chunks, dim=0)
            asked_there = None if there is None else there.repeat_interleave(chunks, dim=0)
            made = self.model.compare(asked, asked_there, items, items_there)
            scores[:, chosen] = made.reshape(len(candidates), -1).cpu().numpy()
        return scores

    def _passes(self, candidates: Sequence[ItemVectors], asked: int) -> Iterator[np.ndarray]:
        """Places (chunks, size) of the candidates of each pass; those of one chunk see each other.

        asked: rows of a query, which a model with a row per token may put before each of the candidates.
        """
        size, room = len(candidates[0]), max(1, self._room // len(candidates))
        if self.model.largest is not None:
            chunks = _cut(np.arange(size), min(self.chunk or self.model.largest, self.model.largest))
            yield from _stacked(chunks, room)
        elif self.per_item is None:  # one query alone: its candidates by length
            yield from (part[None] for part in length_batches(candidates[0].counts + asked, room, waste=0.25))
        else:
            yield from (part[None] for part in _cut(np.arange(size), max(1, room // self.per_item)))

    def _padded(self, vectors: ItemVectors) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Rows of each text, filled up to the longest, and where there are some."""
        table = torch.as_tensor(np.ascontiguousarray(vectors.rows)).to(self.device)
        table = table.to(next(self.model.parameters()).dtype)
        counts = vectors.counts
        longest = max(1, int(counts.max(initial=0)))
        if (counts == longest).all():
            return table.reshape(len(vectors), longest, -1), None
        there = torch.as_tensor(np.arange(longest) < counts[:, None]).to(self.device)
        padded = table.new_zeros(len(vectors), longest, table.shape[1])
        padded[there] = table
        return padded, there


def as_inputs(tokens: Sequence[Sequence[int]], pad: int) -> dict[str, torch.Tensor]:
    """Texts as `TextEncoder.states` takes them. Of one length they need no mask, and attention is fastest.

    >>> as_inputs([[1, 2], [3]], pad=0)
    {'input_ids': tensor([[1, 2],
            [3, 0]]), 'attention_mask': tensor([[1, 1],
            [1, 0]])}
    """
    width = max(map(len, tokens))
    ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in tokens])
    lengths = torch.tensor([len(row) for row in tokens])
    if int(lengths.min()) == width:
        return {"input_ids": ids}
    return {"input_ids": ids, "attention_mask": (torch.arange(width) < lengths[:, None]).long()}


def flat(made: Rows) -> ItemVectors:
    """Rows of texts one after the other, without those that are not there.

    >>> flat((torch.ones(2, 2, 3), torch.tensor([[True, True], [True, False]]))).counts.tolist()
    [2, 1]
    """
    rows, there = made
    if there is None:
        counts = np.full(len(rows), rows.shape[1])
        table = rows.reshape(-1, rows.shape[2])
    else:
        counts, table = there.sum(dim=1).cpu().numpy(), rows[there]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
    return ItemVectors(table.float().cpu().numpy(), starts)


def _cut(places: np.ndarray, size: int) -> list[np.ndarray]:
    """In as few parts as can be, of equal size: no candidate is left to be compared with few others."""
    return np.array_split(places, max(1, -(-len(places) // size)))


def _stacked(chunks: Sequence[np.ndarray], room: int) -> Iterator[np.ndarray]:
    """Chunks of equal size as one array, of about `room` places at most.

    >>> [part.tolist() for part in _stacked(_cut(np.arange(5), 2), room=4)]
    [[[0, 1], [2, 3]], [[4]]]
    """
    for _, alike in groupby(chunks, len):
        some = np.stack(list(alike))
        yield from _cut(some, max(1, room // some.shape[1]))


def save(model: CompareModel, folder: Path) -> None:
    """Write `compare.json`, the encoders, and the model's own layers if it has any."""
    folder.mkdir(parents=True, exist_ok=True)
    for role, place in FOLDERS.items():
        if role not in model.encoders and (folder / place).exists():  # of a model that was there before
            shutil.rmtree(folder / place)
    for role, encoder in model.encoders.items():
        encoder.model.save(str(folder / FOLDERS[role]), create_model_card=False)
    if layers := model.own_state():
        with atomic_write(folder / LAYERS, "wb") as file:
            file.write(to_bytes({name: value.detach().cpu().contiguous() for name, value in layers.items()}))
    with atomic_write(folder / ABOUT) as text:
        json.dump({"format": FORMAT, "kind": model.kind, "settings": model.settings}, text, indent=2)


def load(obj: str | Path, device: str | None = None, chunk: int | None = None) -> ModelComparer:
    """The compare model in a folder, or the bi-encoder of that name."""
    name = str(obj)
    location = model_location(name.removeprefix(BI))
    folder = None if name.startswith(BI) else _folder(location)
    if folder is None:
        _check_is_encoder(Path(location))
    model = BiEncoder(TextEncoder.load(location)) if folder is None else load_model(folder)
    return ModelComparer(model, device=device, chunk=chunk, name=name)


def _folder(location: str) -> Path | None:
    """The folder of a compare model, which may be on the hub; None if there is another model."""
    if Path(location).is_dir():
        return Path(location) if (Path(location) / ABOUT).is_file() else None
    with suppress(
        OSError, ValueError
    ):  # the hub cannot be reached, or has no such model: `TextEncoder.load` says so
        if cached_file(location, ABOUT, _raise_exceptions_for_missing_entries=False):
            # Safetensors only: the older formats of weights can run code.
            return Path(
                snapshot_download(location, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model"])
            )
    return None


def _check_is_encoder(folder: Path) -> None:
    if (folder / ABOUT).is_file():
        raise CrosscutError(f"{folder} is a compare model, and no bi-encoder: leave {BI!r} out")
    names = ("modules.json", "config.json", "config_sentence_transformers.json")
    if folder.is_dir() and not any((folder / name).is_file() for name in names):
        raise CrosscutError(
            f"{folder} is not the folder of a compare model: it has no {ABOUT}, and no config.json of an encoder"
        )
    with suppress(OSError, ValueError, AttributeError):
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        heads = [kind for kind in about.get("architectures") or [] if kind.endswith("ForSequenceClassification")]
        if heads and not (folder / "modules.json").is_file():
            raise CrosscutError(
                f"{folder} is a {heads[0]}, which scores pairs: it is for --scorer, not for --compare"
            )


def load_model(folder: Path) -> CompareModel:
    about = _read_about(folder)
    if not (folder / FOLDERS["item"]).is_dir():
        raise CrosscutError(
            f"{folder} is not whole: it has no folder {FOLDERS['item']}/, with the encoder of items"
        )
    with loading(str(folder)):
        kind = model_class(str(about["kind"]))
        encoders = [TextEncoder.load(folder / place) for place in FOLDERS.values() if (folder / place).is_dir()]
        check_settings(kind, about["settings"])
        model = kind(*encoders, **about["settings"])
        wanted = set(model.own_state())
        layers = load_file(folder / LAYERS) if wanted else {}
        if wanted != set(layers):
            raise CrosscutError(
                f"{folder / LAYERS} has not the weights of a {model.kind}: is it of another model?"
            )
        model.load_state_dict(layers, strict=False)
    return model


def _read_about(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        kind, format = str(about["kind"]), about["format"]
        _ = dict(about["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CrosscutError(f"cannot read {path}: it is not the folder of a compare model, or damaged") from error
    if format != FORMAT:
        raise CrosscutError(
            f"{path} has format {format!r}, but this version of crosscut reads {FORMAT}: update it"
        )
    model_class(kind)
    return about
