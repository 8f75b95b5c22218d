"""Loading a cross-encoder into torch, and the two ways to run one: packed, or in padded batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import cached_file

from crosscut.errors import CrosscutError
from crosscut.scorers.graphs import Graphs
from crosscut.scorers.packed import PackedBert, Packer, can_pack
from crosscut.scorers.tokens import PairTokens, TokenPairs, batch_end

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
GPU_TOKENS = 65_536  # enough to fill it
CPU_TOKENS = 4_096  # few enough to stay in its caches


@dataclass(frozen=True)
class Loaded:
    """A model as transformers loads it. `markers`: ids of the [EMB] markers of query and item, if it has them."""

    model: Any
    tokenizer: Any
    folder: Path
    label: int
    markers: tuple[int, int] | None

    @property
    def typed(self) -> bool:
        """Whether the model reads token types."""
        named = "token_type_ids" in self.tokenizer.model_input_names
        return named and getattr(self.model.config, "type_vocab_size", 1) > 0


def load(location: str, label: int | None, device: str, dtype: torch.dtype) -> Loaded:
    """The model at `location`, a folder or a name on the hub; refused unless it can score pairs.

    A model of the [EMB] form (ANNCUR §2.6: the score is the dot product of two marked vectors) says so in its
    config.json: `"crosscut": {"head": "emb", "query_marker": TOKEN, "item_marker": TOKEN}`.
    """
    folder = _snapshot(location)
    config = AutoConfig.from_pretrained(location)
    tokenizer = _tokenizer(location, folder)
    form = getattr(config, "crosscut", None)
    if form is None:
        markers, kind, label = None, AutoModelForSequenceClassification, _label(config, label, location)
        _check_head(config, location)
    else:
        markers, kind, label = _markers(form, tokenizer, label, location), AutoModel, 0
    model, report = kind.from_pretrained(location, use_safetensors=True, output_loading_info=True)
    # The library fills what is missing with random numbers, and the scores would mean nothing.
    missing = sorted(key for key in report["missing_keys"] if not (markers and key.startswith("pooler.")))
    if missing:
        raise CrosscutError(f"the model {location} is not a trained cross-encoder: it lacks {', '.join(missing)}")
    return Loaded(model.to(device=device, dtype=dtype).eval(), tokenizer, folder, label, markers)


def pick_device(asked: str | None) -> str:
    """The device asked for, if it is there; the GPU if there is one."""
    if asked is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=asked).cpu()  # there and back: some devices only pretend to hold numbers
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise CrosscutError(
            f"the device {asked!r} is not available ({reason}): use 'cpu', or leave the device out"
        ) from error
    return asked


def pick_dtype(asked: str | None, device: str) -> torch.dtype:
    asked = asked or ("float16" if device.startswith("cuda") else "float32")
    if asked not in DTYPES:
        raise CrosscutError(f"dtype must be one of {', '.join(DTYPES)}, but is {asked!r}")
    return DTYPES[asked]


def fitting_tokens(model: Any, device: str) -> int:
    """Tokens per batch to begin with: what keeps the device busy, if its free memory allows."""
    if not device.startswith("cuda"):
        return CPU_TOKENS
    hidden = getattr(model.config, "hidden_size", 1024)
    wide = hidden * 8 + 2 * getattr(model.config, "intermediate_size", 4 * hidden)
    free, _ = torch.cuda.mem_get_info(device)
    return int(max(512, min(GPU_TOKENS, free // (4 * wide))))


def longest(loaded: Loaded, asked: int | None, name: str) -> int | None:
    """The shortest of the limits on a pair's tokens; None when neither tokenizer nor model has one."""
    limits = [loaded.tokenizer.model_max_length, _positions(loaded.model)]
    # A tokenizer without a limit says so by an absurdly large number.
    limit = min((value for value in limits if value is not None and value < 10**9), default=None)
    if asked is None:
        return limit
    shortest = loaded.tokenizer.num_special_tokens_to_add(pair=True) + 2
    if asked < shortest or (limit is not None and asked > limit):
        raise CrosscutError(
            f"max_length {asked} does not suit {name}: it must be at least {shortest}"
            + (f" and at most {limit}" if limit is not None else "")
        )
    return asked


class Runner(Protocol):
    """Scores batches of pairs that stand in order of length, longest first."""

    def end(self, lengths: np.ndarray, start: int, tokens: int) -> int:
        """Where a batch of at most `tokens` that begins at `start` ends (it has at least one pair)."""

    def send(self, pairs: TokenPairs, order: np.ndarray) -> Any:
        """What `score` needs, brought to the device."""

    def score(self, sent: Any, lengths: np.ndarray, start: int, end: int) -> torch.Tensor:
        """Scores (float32) of the pairs from `start` to `end`."""


def runner(loaded: Loaded, tokens: PairTokens, device: str) -> Runner:
    """The fast way where the architecture has one, the general way otherwise.

    In both the head runs in float32: a logit of 10 in float16 would be rounded to steps of 1/128.
    """
    return (PackedRunner if can_pack(loaded.model.config) else PaddedRunner)(loaded, tokens, device)


class PackedRunner:
    """Pairs end to end, without padding (see `packed`). The head runs in float32: a logit of 10 in float16 would
    be rounded to steps of 1/128. On a GPU a batch is one recorded graph, so that no kernel waits for its launch.
    """

    def __init__(self, loaded: Loaded, tokens: PairTokens, device: str) -> None:
        self._packer = Packer(tokens, device)
        self._encoder = PackedBert(loaded.model.base_model)
        self._head = None if loaded.markers else _first_token_head(loaded.model, loaded.label)
        template = tokens.template
        self._marks = len(template.before[0]) - 1, len(template.before[0]) + len(template.between[0]) - 1
        self._graphs = None if self._encoder.needs_lengths else Graphs(self._forward, device)

    def end(self, lengths: np.ndarray, start: int, tokens: int) -> int:
        few = np.cumsum(lengths[start : start + tokens // int(lengths[-1]) + 1])
        return start + max(1, int(np.searchsorted(few, tokens, side="right")))

    def send(self, pairs: TokenPairs, order: np.ndarray) -> torch.Tensor:
        return self._packer.send(pairs, order)

    def score(self, sent: torch.Tensor, lengths: np.ndarray, start: int, end: int) -> torch.Tensor:
        sent, lengths = sent[:, start:end], lengths[start:end]
        size, longest = int(lengths.sum()), int(lengths[0])
        if self._graphs:
            return self._graphs.run(sent, size, longest, key=self._packer.flat)
        return self._forward(sent, size, longest, lengths)

    def _forward(
        self, sent: torch.Tensor, size: int, longest: int, lengths: np.ndarray | None = None
    ) -> torch.Tensor:
        batch = self._packer.pack(sent, size, longest, lengths)
        # A pair of length 0 (see Graphs) has no first token: any will do.
        first = batch.starts.clamp(max=size - 1)
        if self._head:
            return self._head(self._encoder(batch, first, first_only=True).float())
        query, item = first + self._marks[0], first + self._marks[1] + sent[2]
        marked = torch.cat([query, item]).clamp(max=size - 1)
        query, item = self._encoder(batch, marked).float().chunk(2)
        return (query * item).sum(-1)


class PaddedRunner:
    """Batches of like length through the model as transformers runs it: right for any architecture."""

    def __init__(self, loaded: Loaded, tokens: PairTokens, device: str) -> None:
        self._loaded, self._device = loaded, device
        keep_head_in_float32(loaded.model)
        self._typed = loaded.typed
        template = tokens.template
        self._marks = len(template.before[0]) - 1, len(template.before[0]) + len(template.between[0]) - 1
        self._pad = _padding(loaded, {*template.before[0], *template.between[0], *template.after[0]})

    def end(self, lengths: np.ndarray, start: int, tokens: int) -> int:
        return start + 1 if self._pad is None else batch_end(lengths, start, tokens, waste=0.05)

    def send(self, pairs: TokenPairs, order: np.ndarray) -> tuple[TokenPairs, np.ndarray]:
        return pairs, order

    def score(
        self, sent: tuple[TokenPairs, np.ndarray], lengths: np.ndarray, start: int, end: int
    ) -> torch.Tensor:
        pairs, order = sent
        ids, types, mask = (
            torch.as_tensor(array).to(self._device) for array in pairs.rows(order[start:end], pad=self._pad or 0)
        )
        given = {"input_ids": ids, "attention_mask": mask} | ({"token_type_ids": types} if self._typed else {})
        output = self._loaded.model(**given)
        if not self._loaded.markers:
            return output.logits[:, self._loaded.label].float()
        state, row = output.last_hidden_state.float(), torch.arange(end - start, device=self._device)
        query_lengths = torch.as_tensor(pairs.query_lengths[order[start:end]]).to(self._device)
        return (state[:, self._marks[0]] * state[row, self._marks[1] + query_lengths]).sum(-1)


def _padding(loaded: Loaded, special: set[int]) -> int | None:
    """The token that batches are filled up with; None where there is none, and pairs must go one by one.

    A decoder takes its logit from the last token that is not this one, by the word of its config.
    """
    config = loaded.model.config.get_text_config()
    # Some libraries make one up that the model has never heard of.
    known = range(len(loaded.model.get_input_embeddings().weight))
    if getattr(config, "pad_token_id", None) not in known:
        asked = loaded.tokenizer.pad_token_id
        # One that also ends every pair cannot tell where a pair ends.
        config.pad_token_id = asked if asked in known and asked not in special else None
    pad = config.pad_token_id
    return 0 if pad is None and loaded.markers else pad


def keep_head_in_float32(model: Any) -> None:
    """A logit of 10 in bfloat16 would be rounded to steps of 1/16."""
    for head in (getattr(model, name, None) for name in ("classifier", "score")):
        if head is not None:
            head.float().register_forward_pre_hook(lambda _, given: tuple(value.float() for value in given))


def _first_token_head(model: Any, label: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """From the first token's vector to the logit: BERT's pooler and classifier, or RoBERTa's own head."""
    pooler = copy.deepcopy(getattr(model.base_model, "pooler", None))
    classifier = copy.deepcopy(model.classifier).float()
    if pooler is None:
        return lambda first: classifier(first[:, None])[:, label]
    pooler = pooler.float()
    return lambda first: classifier(pooler(first[:, None]))[:, label]


def _snapshot(location: str) -> Path:
    if Path(location).is_dir():
        if not (Path(location) / "config.json").is_file():
            raise CrosscutError(f"{location} is not a model folder: it has no config.json")
        if not list(Path(location).glob("*.safetensors")):
            raise CrosscutError(
                f"the model folder {location} has no weights in the safetensors format: "
                "save the model again with save_pretrained"
            )
    return Path(cached_file(location, "config.json")).parent


def _tokenizer(location: str, folder: Path) -> Any:
    advice = "save its tokenizer there too, with tokenizer.save_pretrained"
    tokenizer = AutoTokenizer.from_pretrained(location)
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise CrosscutError(f"the model {location} has no fast tokenizer (a tokenizer.json): {advice}")
    # Without any file, transformers makes up a tokenizer that knows no word.
    files = {"tokenizer.json", *tokenizer.vocab_files_names.values()}
    if not any((folder / name).is_file() for name in files):
        raise CrosscutError(f"the model {location} has no tokenizer: {advice}")
    return tokenizer


def _check_head(config: Any, location: str) -> None:
    for kind in config.architectures or []:
        # Some other heads have weights of the same names and shapes.
        if not kind.endswith("ForSequenceClassification"):
            raise CrosscutError(
                f"the model {location} is no cross-encoder but a {kind}: use one that was trained to score pairs, "
                "a ...ForSequenceClassification"
            )


def _markers(form: Any, tokenizer: Any, label: int | None, location: str) -> tuple[int, int]:
    names = ("query_marker", "item_marker")
    if not isinstance(form, dict) or form.get("head") != "emb" or not all(form.get(name) for name in names):
        raise CrosscutError(
            f'"crosscut" in the config.json of {location} is {form!r}, but the one form that is known is '
            '{"head": "emb", "query_marker": TOKEN, "item_marker": TOKEN}'
        )
    if label is not None:
        raise CrosscutError(f"the model {location} has no labels (its head is emb): leave label={label} out")
    query, item = (tokenizer.get_vocab().get(form[name]) for name in names)
    for name, number in zip(names, (query, item), strict=True):
        if number is None:
            raise CrosscutError(
                f"the tokenizer of {location} does not know {form[name]!r}, the {name} of its config.json: "
                "add that token to it, and save it again"
            )
    return query, item


def _label(config: Any, asked: int | None, location: str) -> int:
    names = [str(config.id2label.get(number, number)) for number in range(config.num_labels)]
    listed = ", ".join(f"{number} is {name!r}" for number, name in enumerate(names))
    if asked is None:
        if len(names) == 1:
            return 0
        raise CrosscutError(
            f"the model {location} has {len(names)} labels ({listed}), but a score is one number: "
            "choose one with the option label=NUMBER, or use a cross-encoder that was trained with one"
        )
    if asked not in range(len(names)):
        raise CrosscutError(f"the model {location} has no label {asked!r}: {listed}")
    return asked


def _positions(model: Any) -> int | None:
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    # RoBERTa and its kin count positions from the padding index on, which costs as many places.
    return int(positions) - (0 if padding is None else padding + 1)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> torch.Tensor:
    """Scaled dot-product attention; on a CPU in float32, whatever the rest of a training has.

    The way back through it takes torch many times as long in bfloat16 there, where all else is faster so.

    >>> rows = torch.eye(2, dtype=torch.bfloat16)[None]
    >>> attend(rows, rows, rows, scale=100.0).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    if query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, scale=scale)
    mask = mask.float() if mask is not None and mask.is_floating_point() else mask
    with torch.autocast("cpu", enabled=False):
        made = F.scaled_dot_product_attention(
            query.float(), key.float(), value.float(), mask, dropout, scale=scale
        )
    return made.to(query.dtype)


@contextmanager
def any_shape() -> Iterator[None]:
    """Inside the block torch leaves cuDNN's attention alone, which it prefers on newer GPUs.

    That makes a plan for every new shape of a batch, in more time than most batches take; texts of all lengths
    are always new shapes. The kernels that remain need no plan.

    >>> with any_shape():
    ...     torch.backends.cuda.cudnn_sdp_enabled()
    False
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
