"""A cross-encoder while it is trained: the model with its head, pairs as batches, and how well it ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from crosscut.errors import CrosscutError
from crosscut.scorers.model_files import loading, model_location
from crosscut.scorers.tokens import PairTokens, cut_lengths
from crosscut.scorers.torch_models import Loaded, longest
from crosscut.train.batches import Batch, Chunked, TokenRows, device_of, to_device
from crosscut.train.data import Examples
from crosscut.train.negatives import Row
from crosscut.train.process import quiet
from crosscut.train.trainer import Rows, Spread, Task

HEADS = ("cls", "emb")
MARKERS = ("[QUERY]", "[ITEM]")


def load_base(base: str | Path, head: str, markers: Sequence[str], seed: int) -> Loaded:
    """The model to begin with, with the head that it shall have and `markers` among its tokens.

    What is new in it (a head, the vectors of markers) is drawn with `seed`.
    """
    location = model_location(base)
    torch.manual_seed(seed)
    with loading(location), quiet():
        config = AutoConfig.from_pretrained(location)
        tokenizer = AutoTokenizer.from_pretrained(location)
        form = _check_base(config, tokenizer, head, location)
        if head == "cls":
            config.num_labels = 1
            # So that sentence-transformers, too, gives the raw score.
            config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
            kind = AutoModelForSequenceClassification
        else:
            config.crosscut = form
            markers = [form["query_marker"], form["item_marker"], *markers]
            kind = AutoModel
        # In float32, whatever it was saved in: small steps would be lost in less.
        options = {"use_safetensors": True, "dtype": torch.float32, "output_loading_info": True}
        model, report = kind.from_pretrained(location, config=config, **options)
    check_weights(model, report["missing_keys"], location)
    if head == "emb" and getattr(model, "pooler", None) is not None:
        model.pooler.requires_grad_(False)  # the score does not pass through it
    tokenizer.add_tokens([word for word in markers if word not in tokenizer.get_vocab()], special_tokens=True)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        with quiet():
            model.resize_token_embeddings(len(tokenizer))
    ids = tokenizer.convert_tokens_to_ids(list(markers[:2])) if head == "emb" else None
    return Loaded(model, tokenizer, Path(location), 0, tuple(ids) if ids else None)


def check_weights(model: Any, missing: Iterable[str], location: str) -> None:
    """Refuse a model whose file lacks more than the head: the library would fill the rest with random numbers."""
    prefix = f"{model.base_model_prefix}." if hasattr(model, model.base_model_prefix) else ""
    lacking = sorted(name for name in missing if name.startswith(prefix) and "pooler." not in name)
    if lacking:
        raise CrosscutError(
            f"the model {location} lacks {len(lacking)} of the weights that its config.json speaks of, such as "
            f"{lacking[0]}: its files belong to another model"
        )


def _check_base(config: Any, tokenizer: Any, head: str, location: str) -> dict[str, str]:
    kinds = config.architectures or []
    if getattr(config, "is_encoder_decoder", False) or any(
        kind.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")) for kind in kinds
    ):
        raise CrosscutError(
            f"the model {location} is a {kinds[0] if kinds else config.model_type}, which generates text: "
            "begin with an encoder, such as BERT, RoBERTa, ModernBERT or MiniLM"
        )
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise CrosscutError(f"the model {location} has no fast tokenizer (a tokenizer.json): save one with it")
    form = getattr(config, "crosscut", None)
    if head == "cls":
        if form is not None:
            raise CrosscutError(f"the model {location} has the head emb: keep that head, or begin with another")
        is_classifier = any(kind.endswith("ForSequenceClassification") for kind in kinds)
        if is_classifier and config.num_labels != 1:
            raise CrosscutError(
                f"the model {location} has {config.num_labels} labels, but a score is one number: "
                "begin with a model without a head, or with a cross-encoder that has one label"
            )
    return form or {"head": "emb", "query_marker": MARKERS[0], "item_marker": MARKERS[1]}


class PairScores(Chunked):
    """Scores of pairs."""

    def __init__(self, loaded: Loaded, rows: TokenRows, marks: tuple[int, int]) -> None:
        """`marks`: where the marker of the query stands, and that of the item if the query were empty."""
        super().__init__()
        self.inner, self.rows = loaded.model, rows
        self._typed, self._marked, self._marks = loaded.typed, loaded.markers is not None, marks
        for name in ("classifier", "score"):
            if (head := getattr(self.inner, name, None)) is not None:
                head.forward = _in_float32(head.forward)

    def run(self, given: Batch, parts: torch.Tensor) -> torch.Tensor:
        return self.read(self.inner(**self.known_to_model(given)), parts)

    def known_to_model(self, given: Batch) -> Batch:
        """Without token types, where it has none."""
        return given if self._typed else {name: part for name, part in given.items() if name != "token_type_ids"}

    def read(self, output: Any, parts: torch.Tensor) -> torch.Tensor:
        """The scores in what the model says of a chunk."""
        if not self._marked:
            return output.logits[:, 0].float()
        state = output.last_hidden_state.float()
        item = state[torch.arange(len(state), device=state.device), self._marks[1] + parts[1, 1]]
        return (state[:, self._marks[0]] * item).sum(-1)


def _in_float32(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A logit of 10 in bfloat16 would be rounded to steps of 1/16."""

    def run(*given: torch.Tensor) -> torch.Tensor:
        with torch.autocast(given[0].device.type, enabled=False):
            return forward(*(tensor.float() for tensor in given))

    return run


class PairTask(Task):
    """Learn to rank the item that answers a query before the others: cross-entropy over the candidates."""

    best = "accuracy"

    def __init__(
        self,
        loaded: Loaded,
        rows: Rows,
        train: Examples,
        dev: Rows,
        dev_examples: Examples,
        *,
        query_tokens: int | None,
        item_tokens: int | None,
        max_length: int | None,
        eval_batch: int,
        progress: bool = False,
    ) -> None:
        self.rows, self.train, self.dev, self.dev_examples = rows, train, dev, dev_examples
        self._loaded, self._eval_batch = loaded, eval_batch
        self.max_length = longest(loaded, max_length, loaded.model.name_or_path)
        if max_length is not None:
            loaded.tokenizer.model_max_length = max_length
        tokens = PairTokens(
            loaded.tokenizer.backend_tokenizer,
            self.max_length,
            query_tokens,
            item_tokens,
            loaded.markers,
            types="token_type_ids" in loaded.tokenizer.model_input_names,
        )
        self._limits = tokens.query_tokens, tokens.item_tokens, tokens.room
        template = tokens.template
        self._tokens = TokenRows(
            tokens.store,
            (template.before, template.between, template.after),
            (template.query_type, template.item_type),
            pad=loaded.tokenizer.pad_token_id or 0,
        )
        first, second = len(template.before[0]) - 1, len(template.before[0]) + len(template.between[0]) - 1
        self.module = self.make_module(loaded, (first, second))
        texts = (train.queries, train.items, dev_examples.queries, dev_examples.items)
        numbers = self._tokens.add(*texts, progress=progress)
        self._numbers = {id(train): numbers[:2], id(dev_examples): numbers[2:]}

    def make_module(self, loaded: Loaded, marks: tuple[int, int]) -> PairScores:
        return PairScores(loaded, self._tokens, marks)

    def collate(self, rows: Sequence[Row]) -> Batch:
        return self._batch(self.train, rows)

    def loss(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        scores = output.view(batch["queries"], -1)
        return torch.nn.functional.cross_entropy(scores, scores.new_zeros(len(scores), dtype=torch.long))

    def evaluate(self, spread: Spread) -> dict[str, float]:
        """How often the positive is first among the candidates, and its mean reciprocal rank."""
        scores = self.dev_scores(spread)
        ranks = 1 + (scores[:, 1:] >= scores[:, :1]).sum(axis=1)  # a tie counts against the model
        return {"accuracy": float((ranks == 1).mean()), "mrr": float((1 / ranks).mean())}

    def dev_scores(self, spread: Spread) -> np.ndarray:
        """Of the candidates (columns) of the queries that were set apart; -inf where there are no more."""
        dev = self.dev
        return spread(len(dev), lambda queries: self.scores(self.dev_examples, [dev[q] for q in queries]))

    def scores(self, examples: Examples, rows: Sequence[Row]) -> np.ndarray:
        """Of the candidates (columns) of some rows; -inf where there are no more."""
        device, made = device_of(self.module), [np.zeros(0, np.float32)]
        for start in range(0, len(rows), self._eval_batch):
            batch = self._batch(examples, rows[start : start + self._eval_batch])
            made.append(self.module(**to_device(device, batch["inputs"])).cpu().numpy())
        if not np.isfinite(scores := np.concatenate(made)).all():
            raise CrosscutError("the model gives scores that are no finite numbers: try a lower learning_rate")
        if not rows:
            return np.zeros((0, 0), np.float32)
        table = np.where(np.stack([row.items for row in rows]) >= 0, np.float32(0), -np.inf)
        table[table == 0] = scores
        return table

    def save(self, folder: Path) -> None:
        with quiet():
            self._loaded.model.save_pretrained(folder)
        self._loaded.tokenizer.save_pretrained(folder)

    def _batch(self, examples: Examples, rows: Sequence[Row]) -> Batch:
        queries, items = self._numbers[id(examples)]
        table = np.stack([row.items for row in rows])
        there = table >= 0
        queries = np.repeat(queries[[row.query for row in rows]], there.sum(axis=1))
        items = items[table[there]]
        sizes = cut_lengths(self._tokens.sizes(queries), self._tokens.sizes(items), *self._limits)
        texts = tuple(zip((queries, items), sizes, strict=True))
        batch: Batch = {"inputs": self._tokens.inputs(texts, device_of(self.module)), "queries": len(rows)}
        if targets := [row.scores for row in rows if row.scores is not None]:
            batch["target"] = torch.as_tensor(np.stack(targets)[there], dtype=torch.float32)
        return batch
