"""Texts as token ids, each tokenised once, and pairs put together from them as the tokenizer would."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.scorers.base import Pair

# A store that has grown beyond this many tokens (4 bytes each) is emptied before the next texts come.
STORE_TOKENS = 1 << 28
_PROBES = ["a", "the cat sat on the mat", "I do not know.", "É 東 x"]


@dataclass(frozen=True)
class Template:
    """What stands before, between and after the tokens of query and item, as (ids, token types)."""

    before: tuple[list[int], list[int]]
    between: tuple[list[int], list[int]]
    after: tuple[list[int], list[int]]
    query_type: int
    item_type: int

    @classmethod
    def of(cls, tokenizer: Any) -> Template:
        """Read the template off what the tokenizer makes of a pair, and check that it always does that."""
        template = cls._read(tokenizer.encode(_PROBES[0], _PROBES[1]))
        store = TokenStore(tokenizer)
        probes = store.add(_PROBES)
        for query in range(len(_PROBES)):
            for item in range(len(_PROBES)):
                whole = tokenizer.encode(_PROBES[query], _PROBES[item])
                made = template.fill(store.ids(probes[query]), store.ids(probes[item]))
                if (whole.ids, whole.type_ids) != tuple(part.tolist() for part in made):
                    raise CrosscutError(
                        "this tokenizer does not put a pair together from the tokens of its two texts "
                        "(its pair differs from its parts), so it cannot be used here"
                    )
        return template

    @classmethod
    def _read(cls, encoding: Any) -> Template:
        parts = encoding.sequence_ids
        if parts.count(0) == 0 or parts.count(1) == 0:
            raise CrosscutError("this tokenizer does not take pairs of texts, as a cross-encoder needs")
        first, last = (parts.index(part) for part in (0, 1)), len(parts) - parts[::-1].index(1)
        start, item = first
        end = len(parts) - parts[::-1].index(0)
        cut = [slice(0, start), slice(end, item), slice(last, None)]
        before, between, after = ((encoding.ids[part], encoding.type_ids[part]) for part in cut)
        return cls(before, between, after, encoding.type_ids[start], encoding.type_ids[item])

    def marked(self, query_marker: int, item_marker: int) -> Template:
        """The same with a marker token at the head of the query and of the item (the [EMB] form)."""
        return replace(
            self,
            before=([*self.before[0], query_marker], [*self.before[1], self.query_type]),
            between=([*self.between[0], item_marker], [*self.between[1], self.item_type]),
        )

    def untyped(self) -> Template:
        """The same for a model that is given no token types."""
        before, between, after = ((ids, [0] * len(ids)) for ids, _ in (self.before, self.between, self.after))
        return Template(before, between, after, query_type=0, item_type=0)

    @property
    def size(self) -> int:
        """Tokens that every pair has beside those of its texts."""
        return len(self.before[0]) + len(self.between[0]) + len(self.after[0])

    def fill(self, query: np.ndarray, item: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids and token types of one pair."""
        ids = np.concatenate([self.before[0], query, self.between[0], item, self.after[0]])
        types = np.repeat([self.query_type, self.item_type], [len(query), len(item)])
        types = np.concatenate(
            [self.before[1], types[: len(query)], self.between[1], types[len(query) :], self.after[1]]
        )
        return ids.astype(np.int64), types.astype(np.int64)


class TokenStore:
    """Token ids of texts, one after the other in one array, each text tokenised when it first comes."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
        self.clear()

    def clear(self) -> None:
        self._numbers: dict[str, int] = {}
        self._starts = np.zeros(1, np.int64)
        self._flat = np.zeros(0, np.int32)
        self.generation = object()  # whoever keeps a copy can see that this one was emptied

    @property
    def flat(self) -> np.ndarray:
        """All tokens of all texts."""
        return self._flat[: self._starts[-1]]

    @property
    def starts(self) -> np.ndarray:
        """Where each text begins in `flat`; one more at the end."""
        return self._starts

    def add(self, texts: Sequence[str]) -> np.ndarray:
        """The number of each text, after tokenising those that are new."""
        numbers = self._numbers
        new = [text for text in dict.fromkeys(texts) if text not in numbers]
        if new:
            if not all(isinstance(text, str) for text in new):
                raise TypeError("a text is not a string")  # of two strings the tokenizer would make one text
            rows = [encoding.ids for encoding in self._encode(new, add_special_tokens=False)]
            first = len(self._starts) - 1
            self._append(rows)
            # Last, so that an interruption leaves no number without tokens.
            numbers.update(zip(new, range(first, first + len(new)), strict=True))
        return np.fromiter(map(numbers.__getitem__, texts), np.int64, len(texts))

    def ids(self, number: int) -> np.ndarray:
        return self._flat[self._starts[number] : self._starts[number + 1]]

    def _append(self, rows: list[list[int]]) -> None:
        start = int(self._starts[-1])
        ends = start + np.cumsum([len(row) for row in rows])
        if ends[-1] > len(self._flat):
            room = np.zeros(max(int(ends[-1]), 2 * len(self._flat)), np.int32)
            room[:start] = self.flat
            self._flat = room
        self._flat[start : ends[-1]] = [token for row in rows for token in row]
        self._starts = np.concatenate([self._starts, ends])


class PairTokens:
    """Pairs of texts as tokens, cut by a stated policy.

    A query is cut to `query_tokens` and an item to `item_tokens` of its own tokens. If the pair is then still
    longer than `max_length` (special tokens included), the longer of the two texts is cut first, as tokenizers
    do by default. `None` is no limit. `tokenizer` is a `tokenizers.Tokenizer`; it is not changed. `markers` are
    put at the head of query and item; without `types` all token types are 0.
    """

    def __init__(
        self,
        tokenizer: Any,
        max_length: int | None,
        query_tokens: int | None = None,
        item_tokens: int | None = None,
        markers: tuple[int, int] | None = None,
        types: bool = True,
    ) -> None:
        plain = type(tokenizer).from_str(tokenizer.to_str())
        plain.no_truncation()
        plain.no_padding()
        self.template = Template.of(plain)
        if not types:
            self.template = self.template.untyped()
        if markers:
            self.template = self.template.marked(*markers)
        self.store = TokenStore(plain)
        self._lock = threading.Lock()
        check_limits(query_tokens=query_tokens, item_tokens=item_tokens, max_length=max_length)
        if max_length is not None and max_length < self.template.size + 2:
            raise CrosscutError(f"max_length must be at least {self.template.size + 2}, but is {max_length}")
        self.room = None if max_length is None else max_length - self.template.size
        self.query_tokens, self.item_tokens = query_tokens, item_tokens

    def pairs(self, pairs: Sequence[Pair]) -> TokenPairs:
        """Tokenise what is new in `pairs` and cut all to the limits."""
        with self._lock:
            if len(self.store.flat) > STORE_TOKENS:
                self.store.clear()
            queries = self.store.add([query for query, _ in pairs])
            items = self.store.add([item for _, item in pairs])
            flat, starts = self.store.flat, self.store.starts
        sizes = np.diff(starts)
        whole = sizes[queries], sizes[items]
        cut = cut_lengths(*whole, self.query_tokens, self.item_tokens, self.room)
        lost = (cut[0] < whole[0]) | (cut[1] < whole[1])
        return TokenPairs(self.template, flat, starts, queries, items, *cut, lost)


@dataclass(frozen=True)
class TokenPairs:
    """Pairs as numbers of texts in a store, as it was then, and how many tokens of each text are kept."""

    template: Template
    flat: np.ndarray
    starts: np.ndarray
    queries: np.ndarray
    items: np.ndarray
    query_lengths: np.ndarray
    item_lengths: np.ndarray
    cut: np.ndarray  # True where a token was lost

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each pair, special ones included."""
        return self.query_lengths + self.item_lengths + self.template.size

    @property
    def truncated(self) -> int:
        return int(self.cut.sum())

    def rows(self, positions: np.ndarray, pad: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ids, token types and mask of some pairs (pairs × longest), filled up on the right with `pad`."""
        lengths, rows = self.lengths[positions], np.arange(len(positions))
        queries, items = self.query_lengths[positions], self.item_lengths[positions]
        shape = (len(positions), int(lengths.max(initial=0)))
        ids, types = np.full(shape, pad, np.int64), np.zeros(shape, np.int64)
        template, column = self.template, np.zeros(len(positions), np.int64)
        texts = (
            (self.starts[self.queries[positions]], queries, template.query_type),
            (self.starts[self.items[positions]], items, template.item_type),
            (np.zeros_like(lengths), np.zeros_like(lengths), 0),  # after the last special tokens there is nothing
        )
        # All pairs at once, part after part: special tokens, query, special tokens, item, special tokens.
        for (marks, mark_types), (start, count, kind) in zip(
            (template.before, template.between, template.after), texts, strict=True
        ):
            places = rows[:, None], column[:, None] + np.arange(len(marks))
            ids[places], types[places] = marks, mark_types
            column = column + len(marks)
            step = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            places = np.repeat(rows, count), np.repeat(column, count) + step
            ids[places], types[places] = self.flat[np.repeat(start, count) + step], kind
            column = column + count
        return ids, types, (np.arange(shape[1]) < lengths[:, None]).astype(np.int64)


def check_limits(**limits: int | None) -> None:
    """Refuse limits that are neither None nor a whole number of at least 1.

    >>> check_limits(query_tokens=None, item_tokens=0)
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: item_tokens must be a whole number of at least 1, but is 0
    """
    for name, limit in limits.items():
        if limit is None:
            continue
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise CrosscutError(f"{name} must be a whole number of at least 1, but is {limit!r}")
        if limit >= 2**31:
            raise CrosscutError(f"{name} must be below 2**31, but is {limit}")


def cut_lengths(
    queries: np.ndarray, items: np.ndarray, query_tokens: int | None, item_tokens: int | None, room: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens of each query and item are kept (see `PairTokens`); `room` is for both together.

    >>> [part.tolist() for part in cut_lengths(np.array([3, 9]), np.array([5, 9]), None, 4, 10)]
    [[3, 6], [4, 4]]
    """
    if query_tokens is not None:
        queries = np.minimum(queries, query_tokens)
    if item_tokens is not None:
        items = np.minimum(items, item_tokens)
    if room is None:
        return queries, items
    short, long = np.minimum(queries, items), np.maximum(queries, items)
    over = short + long > room
    # The longer is cut down to the shorter, and from there on both by turns.
    halved = over & (2 * short > room)
    kept_short = np.where(halved, room // 2, short)
    kept_long = np.where(over, room - kept_short, long)
    query_is_long = queries > items
    return np.where(query_is_long, kept_long, kept_short), np.where(query_is_long, kept_short, kept_long)


def length_batches(lengths: np.ndarray, tokens: int, waste: float = 0.0) -> Iterator[np.ndarray]:
    """Positions of like length, longest first, `tokens` per batch at most (but at least one pair).

    A batch is as long as its longest pair; `waste` is the share of it that may be padding (0: equal lengths).

    >>> [batch.tolist() for batch in length_batches(np.array([3, 5, 3, 5]), tokens=100)]
    [[1, 3], [0, 2]]
    """
    order = np.argsort(-lengths, kind="stable")
    lengths = lengths[order]
    start = 0
    while start < len(order):
        end = batch_end(lengths, start, tokens, waste)
        yield order[start:end]
        start = end


def batch_end(lengths: np.ndarray, start: int, tokens: int, waste: float = 0.0) -> int:
    """Where the batch that begins at `start` ends, `lengths` being sorted; see `length_batches`.

    >>> batch_end(np.array([5, 5, 3, 3]), 0, tokens=100), batch_end(np.array([5, 5, 3, 3]), 0, 100, waste=0.5)
    (2, 4)
    """
    longest = int(lengths[start])
    end = min(start + max(1, tokens // longest), len(lengths))
    used = np.cumsum(lengths[start:end])
    full = used >= (1 - waste) * longest * np.arange(1, end - start + 1)
    return end if full.all() else start + int(np.argmin(full))
