"""A bi-encoder while it is trained: texts as batches, their vectors, and what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.scorers.model_files import loading, model_location
from crosscut.scorers.tokens import TokenStore
from crosscut.train.batches import BLOCK, Batch, Chunked, TokenRows, WholeTexts, device_of, to_device
from crosscut.train.data import Examples
from crosscut.train.folder import kept
from crosscut.train.mining import mine, vector_finder
from crosscut.train.negatives import Groups, Row
from crosscut.train.pairs import check_weights
from crosscut.train.process import quiet
from crosscut.train.trainer import Rows, Spread, Task

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
    with suppress(OSError), quiet():  # it was loaded from another place: from a subfolder of a model on the hub
        # Once more, as sentence-transformers does not say what it did not find.
        options = {"use_safetensors": True, "output_loading_info": True}
        _, report = type(model).from_pretrained(model.name_or_path, config=model.config, **options)
        check_weights(model, report["missing_keys"], location)
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


class Vectors(Chunked):
    """Vectors of texts."""

    def __init__(self, encoder: Any, rows: TokenRows) -> None:
        super().__init__()
        self.encoder, self.rows = encoder, rows
        self._typed = "token_type_ids" in encoder.tokenizer.model_input_names

    @property
    def inner(self) -> Any:
        """The model without pooling."""
        return self.encoder[0].auto_model

    def run(self, given: Batch, parts: torch.Tensor) -> torch.Tensor:
        if not self._typed:
            del given["token_type_ids"]
        return self.encoder(given)["sentence_embedding"].float()


class VectorTask(Task):
    """What all tasks with vectors share."""

    best = "recall@10"

    def __init__(
        self, encoder: Any, rows: Rows, train: Examples, dev: Examples, *, scale: float, progress: bool = False
    ) -> None:
        self.rows, self.train, self.dev, self.scale = rows, train, dev, scale
        self._encoder, tokenizer = encoder, encoder.tokenizer
        store = TokenStore(WholeTexts(tokenizer, encoder.max_seq_length))
        self._tokens = TokenRows(store, [([], []), ([], [])], [0], pad=tokenizer.pad_token_id or 0)
        self.module = Vectors(encoder, self._tokens)
        names = encoder.prompts or {}
        self._prompts = {
            role: next((names[n] for n in known if names.get(n)), "") for role, known in PROMPTS.items()
        }
        texts: list[tuple[Role, list[str]]] = [("query", train.queries), ("item", train.items)]
        texts += [("query", dev.queries), ("item", dev.items)]
        numbers = self.numbers(*texts, progress=progress)
        self.known = {id(train): numbers[:2], id(dev): numbers[2:]}

    def numbers(self, *texts: tuple[Role, Sequence[str]], progress: bool = False) -> list[np.ndarray]:
        """What `inputs` takes, for texts in their roles."""
        prompted = ([self._prompts[role] + text for text in some] for role, some in texts)
        return self._tokens.add(*prompted, progress=progress)

    def evaluate(self, spread: Spread) -> dict[str, float]:
        """How many of the items that answer a query are among its first k, on the mean of the queries."""
        ks = [k for k in KS if k < max(map(len, self.dev.pools))]
        best = self.nearest(self.dev, max([*ks, 10]), spread)
        return recalls(best, self.dev.positives, {10, *ks})

    def nearest(self, examples: Examples, depth: int, spread: Spread, answers_too: bool = True) -> np.ndarray:
        """The first `depth` items of each query by the model as it is now; see `mine`."""
        queries, items = (self.all_vectors(numbers, spread) for numbers in self.known[id(examples)])
        return mine(examples, vector_finder(queries, items, str(device_of(self.module))), depth, answers_too)

    def all_vectors(self, numbers: np.ndarray, spread: Spread) -> np.ndarray:
        """`vectors`, by all processes together."""
        return spread(len(numbers), lambda places: self.vectors(numbers[places]))

    def vectors(self, numbers: np.ndarray) -> np.ndarray:
        """Of the texts with these numbers, without learning from them."""
        device, width = device_of(self.module), dimensions(self._encoder)
        made = [np.zeros((0, width), np.float32)]
        for start in range(0, len(numbers), BLOCK):
            inputs = self.inputs(numbers[start : start + BLOCK])
            made.append(self.module(**to_device(device, inputs)).cpu().numpy())
        return np.concatenate(made)

    def inputs(self, numbers: np.ndarray) -> Batch:
        """The arguments of `module` for the texts with these numbers."""
        return self._tokens.inputs([(numbers, self._tokens.sizes(numbers))], device_of(self.module))

    def save(self, folder: Path) -> None:
        with quiet():
            self._encoder.save(str(folder), create_model_card=False)


class InBatchTask(VectorTask):
    """Learn to find the item that answers a query among all items of the batch, hard ones included.

    With `depth`, each query's own negatives are found anew by the model itself when an epoch begins. They are kept
    in `work`, so that a run that was stopped within an epoch goes on with the same.
    """

    rows: Groups

    def __init__(self, *given: Any, depth: int | None, work: Path, **more: Any) -> None:
        super().__init__(*given, **more)
        self._depth, self._work = depth, work

    def begin_epoch(self, epoch: int, spread: Spread) -> None:
        super().begin_epoch(epoch, spread)
        if self._depth:
            self.rows.mined[-1] = kept(
                self._work / f"mined-{epoch}.npy",
                lambda: self.nearest(self.train, self._depth or 0, spread, answers_too=False),
            )

    def collate(self, rows: Sequence[Row]) -> Batch:
        queries, items = self.known[id(self.train)]
        chosen, places = np.unique(np.concatenate([row.items for row in rows]), return_inverse=True)
        firsts = np.cumsum([0, *(len(row.items) for row in rows[:-1])])
        target = places.ravel()[firsts]
        # Another item that answers the query is no negative, and neither a reason to be corrected.
        other = np.zeros((len(rows), len(chosen)), bool)
        for line, row in zip(other, rows, strict=True):
            twins = self.train.twins(row.query)
            found = np.searchsorted(chosen, twins).clip(max=len(chosen) - 1)
            line[found[chosen[found] == twins]] = True
        other[np.arange(len(rows)), target] = False
        numbers = np.concatenate([queries[[row.query for row in rows]], items[chosen]])
        return {"inputs": self.inputs(numbers), "target": torch.as_tensor(target), "other": torch.as_tensor(other)}

    def loss(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        queries, items = output.split([len(batch["target"]), len(output) - len(batch["target"])])
        scores = (self.scale * queries @ items.T).masked_fill(batch["other"], -torch.inf)
        return torch.nn.functional.cross_entropy(scores, batch["target"])


def dimensions(encoder: Any) -> int:
    """Of its vectors; older versions of the library have another name for this."""
    new = getattr(encoder, "get_embedding_dimension", None)
    return int(new() if new else encoder.get_sentence_embedding_dimension())


def recalls(best: np.ndarray, wanted: Sequence[Sequence[int]], ks: Any) -> dict[str, float]:
    """Of the `wanted` items of each query, the share that is among the first k of `best`."""
    found = {
        k: np.mean([np.isin(list(items), row[:k]).mean() for row, items in zip(best, wanted, strict=True)])
        for k in sorted(ks)
    }
    return {f"recall@{k}": float(value) for k, value in found.items()}
