"""A bi-encoder while it is trained: texts as batches, their vectors, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from crosscut.data.atomic import atomic_write
from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.scorers.model_files import loading, model_location
from crosscut.scorers.tokens import length_batches
from crosscut.train.data import Examples
from crosscut.train.negatives import Groups, Row, dense_blocks, mine
from crosscut.train.pairs import CHUNK, WASTE, to_device
from crosscut.train.process import quiet
from crosscut.train.trainer import Batch, Rows, Spread, Task

KS = (1, 10, 100)
PROMPTS = {"query": ("query",), "item": ("document", "passage", "corpus")}


def load_base(base: str | Path, markers: Sequence[str], max_length: int | None, seed: int) -> Any:
    """The model to begin with, a sentence-transformers one or any encoder; its vectors have unit length.

    What is new in it (the vectors of `markers`) is drawn with `seed`.
    """
    location = model_location(base)
    torch.manual_seed(seed)
    with loading(location), quiet():
        # Safetensors only: the older format of weights can run code. Float32: small steps would be lost in less.
        options = {"use_safetensors": True, "dtype": torch.float32}
        encoder = SentenceTransformer(location, device="cpu", model_kwargs=options)
    model: Any = getattr(encoder[0], "auto_model", None)
    tokenizer: Any = getattr(encoder, "tokenizer", None)
    if model is None or not hasattr(tokenizer, "backend_tokenizer"):
        raise CrosscutError(
            f"the model {location} is a {type(encoder[0]).__name__}, which cannot be trained here: begin with an "
            "encoder that has a fast tokenizer, such as BERT, RoBERTa, ModernBERT or MiniLM"
        )
    if not isinstance(encoder[-1], Normalize):
        encoder.append(Normalize())
    tokenizer.add_tokens([word for word in markers if word not in tokenizer.get_vocab()], special_tokens=True)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        with quiet():
            model.resize_token_embeddings(len(tokenizer))
    if getattr(model, "pooler", None) is not None:
        model.pooler.requires_grad_(False)  # no vector passes through it
    longest = encoder.max_seq_length
    if max_length is not None:
        if longest is not None and max_length > longest:
            raise CrosscutError(f"max_length {max_length} does not suit {base}: it must be at most {longest}")
        encoder.max_seq_length = max_length
    return encoder


class Vectors(torch.nn.Module):
    """Vectors of texts, which come in chunks of like length."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    @property
    def inner(self) -> Any:
        """The model without pooling."""
        return self.encoder[0].auto_model

    def forward(self, chunks: list[Batch], order: torch.Tensor) -> torch.Tensor:
        """Vectors (float32) in the order of the texts; `order`: which text each row of the chunks is."""
        vectors = torch.cat([self.encoder(dict(chunk))["sentence_embedding"].float() for chunk in chunks])
        return torch.empty_like(vectors).index_copy(0, order, vectors)


class VectorTask(Task):
    """What all tasks with vectors share. A text is tokenised once."""

    best = "recall@10"

    def __init__(self, encoder: Any, rows: Rows, train: Examples, dev: Examples, *, scale: float) -> None:
        self.module = Vectors(encoder)
        self.rows, self.train, self.dev, self.scale = rows, train, dev, scale
        self._encoder, self._tokenizer = encoder, encoder.tokenizer
        self._limit = encoder.max_seq_length
        names = encoder.prompts or {}
        self._prompts = {
            role: next((names[n] for n in known if names.get(n)), "") for role, known in PROMPTS.items()
        }
        self._known: dict[str, np.ndarray] = {}

    def evaluate(self, spread: Spread) -> dict[str, float]:
        """How many of the items that answer a query are among its first k, on the mean of the queries."""
        ks = [k for k in KS if k < max(map(len, self.dev.pools))]
        best = self.nearest(self.dev, max([*ks, 10]), spread)
        return recalls(best, self.dev.positives, {10, *ks})

    def nearest(self, examples: Examples, depth: int, spread: Spread, answers_too: bool = True) -> np.ndarray:
        """The first `depth` items of each query by the model as it is now; see `mine`."""
        known: dict[tuple[str, Role], np.ndarray] = {}
        sides: tuple[tuple[Role, list[str]], ...] = (("query", examples.queries), ("item", examples.items))
        for role, texts in sides:
            known |= zip(((text, role) for text in texts), self._all_vectors(texts, role, spread), strict=True)

        def rank(queries: list[str], items: list[str]) -> Iterator[np.ndarray]:
            return dense_blocks(
                np.stack([known[text, "query"] for text in queries]),
                np.stack([known[text, "item"] for text in items]),
            )

        return mine(examples, rank, depth, answers_too)

    def _all_vectors(self, texts: list[str], role: Role, spread: Spread) -> np.ndarray:
        return spread(len(texts), lambda places: self.vectors([texts[place] for place in places], role))

    def vectors(self, texts: Sequence[str], role: Role) -> np.ndarray:
        """Of some texts, without learning from them."""
        device = next(self.module.parameters()).device
        width = self._encoder.get_embedding_dimension()
        made = [np.zeros((0, width), np.float32)]
        for start in range(0, len(texts), 1024):
            batch = self.inputs([(text, role) for text in texts[start : start + 1024]])
            made.append(self.module(**to_device(device, batch)).float().cpu().numpy())
        return np.concatenate(made)

    def save(self, folder: Path) -> None:
        with quiet():
            self._encoder.save(str(folder), create_model_card=False)

    def inputs(self, texts: Sequence[tuple[str, Role]]) -> Batch:
        """The arguments of `module` for texts, each with its role."""
        ids = self._ids([self._prompts[role] + text for text, role in texts])
        lengths = np.array([len(row) for row in ids])
        chunks, order = [], []
        for positions in length_batches(lengths, CHUNK, WASTE):
            shape = (len(positions), int(lengths[positions].max()))
            tokens = np.full(shape, self._tokenizer.pad_token_id or 0, np.int64)
            for row, position in enumerate(positions):
                tokens[row, : lengths[position]] = ids[position]
            mask = (np.arange(shape[1]) < lengths[positions][:, None]).astype(np.int64)
            chunk = {"input_ids": torch.as_tensor(tokens), "attention_mask": torch.as_tensor(mask)}
            if "token_type_ids" in self._tokenizer.model_input_names:
                chunk["token_type_ids"] = torch.zeros_like(chunk["input_ids"])
            chunks.append(chunk)
            order.append(positions)
        return {"chunks": chunks, "order": torch.as_tensor(np.concatenate(order))}

    def _ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        if new := [text for text in dict.fromkeys(texts) if text not in self._known]:
            limit = {"truncation": True, "max_length": self._limit} if self._limit else {}
            made = self._tokenizer([text.strip() for text in new], **limit)["input_ids"]
            self._known |= {text: np.array(ids, np.int32) for text, ids in zip(new, made, strict=True)}
        return [self._known[text] for text in texts]


class InBatchTask(VectorTask):
    """Learn to find the item that answers a query among all items of the batch, hard ones included.

    With `depth`, each query's own negatives are found anew by the model itself when an epoch begins. They are kept
    in `work`, so that a run that was stopped within an epoch goes on with the same.
    """

    rows: Groups

    def __init__(self, *given: Any, scale: float, depth: int | None, work: Path) -> None:
        super().__init__(*given, scale=scale)
        self._depth, self._work = depth, work

    def begin_epoch(self, epoch: int, spread: Spread) -> None:
        super().begin_epoch(epoch, spread)
        if self._depth:
            self.rows.mined[-1] = kept(
                self._work / f"mined-{epoch}.npy",
                lambda: self.nearest(self.train, self._depth or 0, spread, answers_too=False),
            )

    def collate(self, rows: Sequence[Row]) -> Batch:
        items = list(dict.fromkeys(int(item) for row in rows for item in row.items))
        place = {item: number for number, item in enumerate(items)}
        texts: list[tuple[str, Role]] = [(self.train.queries[row.query], "query") for row in rows]
        texts += [(self.train.items[item], "item") for item in items]
        target = np.array([place[int(row.items[0])] for row in rows])
        kinds = self.train.kinds[items]
        # Another item that answers the query is no negative, and neither a reason to be corrected.
        other = np.stack([np.isin(kinds, self.train.answers(row.query)) for row in rows])
        other[np.arange(len(rows)), target] = False
        return {"inputs": self.inputs(texts), "target": torch.as_tensor(target), "other": torch.as_tensor(other)}

    def loss(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        queries, items = output.split([len(batch["target"]), len(output) - len(batch["target"])])
        scores = (self.scale * queries @ items.T).masked_fill(batch["other"], -torch.inf)
        return torch.nn.functional.cross_entropy(scores, batch["target"])


def kept(path: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """The array in the file `path`, which is made if it is not there."""
    if not path.exists():
        made = make()
        with atomic_write(path, "wb") as file:
            np.save(file, made, allow_pickle=False)
    return np.load(path, allow_pickle=False)


def recalls(best: np.ndarray, wanted: Sequence[Sequence[int]], ks: Any) -> dict[str, float]:
    """Of the `wanted` items of each query, the share that is among the first k of `best`."""
    found = {
        k: np.mean([np.isin(list(items), row[:k]).mean() for row, items in zip(best, wanted, strict=True)])
        for k in sorted(ks)
    }
    return {f"recall@{k}": float(value) for k, value in found.items()}
