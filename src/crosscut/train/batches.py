"""Rows of tokens. All texts are tokenised before training begins; a batch only says which of them stand where.

The tokens lie on the device of the model. What is left to do for a batch on the CPU is to sort some lengths, and
a few numbers per row are all that is sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from crosscut.scorers.tokens import TokenStore, length_batches

# Tokens in a chunk, and the share of them that may be padding: a GPU wants few, large chunks.
CHUNKS = {"cuda": (65_536, 0.25), "cpu": (16_384, 0.1)}
ONE_CHUNK = 8_192  # tokens, padding and all: on a GPU less takes no less time than this
BLOCK = 16_384  # texts that are tokenised together

Batch = dict[str, Any]
Marks = tuple[list[int], list[int]]  # tokens that every row has, and their types


class TokenRows:
    """Rows of `store`'s texts, between `marks`: one run of them before each text, and one after the last.

    `kinds` are the token types of the texts, `pad` is the token that rows are filled up with.
    """

    def __init__(self, store: TokenStore, marks: Sequence[Marks], kinds: Sequence[int], pad: int) -> None:
        self.store = store
        sizes = [len(tokens) for tokens, _ in marks]
        self._head = np.array([pad, *(token for tokens, _ in marks for token in tokens)], np.int32)
        types = [0, *(kind for _, types in marks for kind in types)]
        self._mark_types = torch.tensor([*types, -1])  # -1: see `_part_types`
        # Parts of a row are marks and texts by turns, and padding is the last.
        self._part_types = torch.tensor([kind for kind in kinds for _ in (0, 1)] + [0, 0])
        self._mark_starts = 1 + np.cumsum([0, *sizes[:-1]])
        self._mark_sizes = np.array(sizes)
        self._there: tuple[torch.device, int, torch.Tensor] | None = None

    def add(self, *lists: Sequence[str], progress: bool = False) -> list[np.ndarray]:
        """The numbers of the texts of each list; what is new is tokenised, on all cores."""
        texts = [text for some in lists for text in some]
        numbers = [np.zeros(0, np.int64)]
        with tqdm(total=len(texts), unit="text", desc="tokens", disable=None if progress else True) as bar:
            for start in range(0, len(texts), BLOCK):
                numbers.append(self.store.add(texts[start : start + BLOCK]))
                bar.update(len(numbers[-1]))
        return np.split(np.concatenate(numbers), np.cumsum([len(some) for some in lists])[:-1])

    def sizes(self, numbers: np.ndarray) -> np.ndarray:
        """Tokens of each text."""
        return self.store.starts[numbers + 1] - self.store.starts[numbers]

    def inputs(self, texts: Sequence[tuple[np.ndarray, np.ndarray]], device: torch.device) -> Batch:
        """The rows whose texts have these (numbers, lengths), as arguments of `Chunked.forward`."""
        count = len(texts[0][0])
        starts, lengths = np.empty((2, 2 * len(texts) + 1, count), np.int64)
        starts[::2], lengths[::2] = self._mark_starts[:, None], self._mark_sizes[:, None]
        for place, (numbers, kept) in enumerate(texts):
            starts[2 * place + 1] = self.store.starts[numbers] + len(self._head)
            lengths[2 * place + 1] = kept
        total = lengths.sum(axis=0).clip(min=1)  # to some tokenizers an empty text has no token
        most, waste = CHUNKS["cuda" if device.type == "cuda" else "cpu"]
        if device.type == "cuda" and len(total) * total.max(initial=0) <= ONE_CHUNK:
            waste = 1.0
        groups = list(length_batches(total, most, waste))
        order = np.concatenate([*groups, np.zeros(0, np.int64)])
        ends = np.cumsum([len(group) for group in groups]).tolist()
        chunks = [
            (end - len(group), end, int(total[group[0]]), bool(total[group[-1]] < total[group[0]]))
            for end, group in zip(ends, groups, strict=True)
        ]
        parts = np.stack([starts[:, order], lengths[:, order]])
        return {"parts": torch.as_tensor(parts), "order": torch.as_tensor(order), "chunks": chunks}

    def table(self, parts: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids, token types and mask of the rows that are made of `parts`, on their device."""
        starts, lengths = parts
        ends, column = lengths.cumsum(0), torch.arange(width, device=parts.device)
        part = (column >= ends[..., None]).sum(0)  # rows × width: which part of the row a token belongs to
        shifts = torch.cat([starts - ends + lengths, torch.zeros_like(starts[:1])])
        place = (column + shifts.T.gather(1, part)) * (part < len(starts))  # the first token of all is for padding
        types = self._mark_types.to(parts.device)[place.clamp(max=len(self._head))]
        types = torch.where(types < 0, self._part_types.to(parts.device)[part], types)
        mask = column < ends[-1, :, None].clamp(min=1)
        return self._tokens(parts.device)[place].long(), types, mask.long()

    def _tokens(self, device: torch.device) -> torch.Tensor:
        size = len(self.store.flat)
        if self._there is None or self._there[:2] != (device, size):
            tokens = torch.as_tensor(np.concatenate([self._head, self.store.flat])).to(device)
            self._there = device, size, tokens
            self._mark_types, self._part_types = self._mark_types.to(device), self._part_types.to(device)
        return self._there[2]


class Chunked(torch.nn.Module, ABC):
    """A module whose rows come in chunks of like length."""

    rows: TokenRows

    def forward(self, parts: torch.Tensor, order: torch.Tensor, chunks: list[tuple[int, int, int, bool]]) -> Any:
        """Values (float32) in the order of the batch; `order`: which row of it each row of the chunks is."""
        values = []
        for start, end, width, is_padded in chunks:
            some = parts[:, :, start:end]
            ids, types, mask = self.rows.table(some, width)
            given = {"input_ids": ids, "token_type_ids": types}
            # Without a mask attention takes its fastest way.
            values.append(self.run(given | ({"attention_mask": mask} if is_padded else {}), some))
        made = torch.cat(values)
        return torch.empty_like(made).index_copy(0, order, made)

    @abstractmethod
    def run(self, given: Batch, parts: torch.Tensor) -> torch.Tensor:
        """One value, or one row of values, for each row of a chunk."""


class WholeTexts:
    """A tokenizer for `TokenStore`: whole texts with their special tokens, cut to `limit`, as the library does."""

    def __init__(self, tokenizer: Any, limit: int | None) -> None:
        backend = tokenizer.backend_tokenizer
        self._tokenizer = type(backend).from_str(backend.to_str())
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        if limit:
            self._tokenizer.enable_truncation(limit, direction=tokenizer.truncation_side)
        self._encode = getattr(self._tokenizer, "encode_batch_fast", self._tokenizer.encode_batch)

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool) -> Any:
        return self._encode([text.strip() for text in texts])


def device_of(module: torch.nn.Module) -> torch.device:
    return next(module.parameters()).device


def to_device(device: torch.device, value: Any) -> Any:
    """A tensor, or all tensors in dicts and lists; anything else stays as it is."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {name: to_device(device, part) for name, part in value.items()}
    return [to_device(device, part) for part in value] if isinstance(value, list) else value
