"""What every compare model is to torch: an encoder or two, rows of texts, scores of many candidates at once."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from crosscut.compare.text_encoder import States, TextEncoder
from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError

Rows = tuple[torch.Tensor, torch.Tensor | None]  # (texts, rows, d), and True where there is one (None: everywhere)


class CompareModel(torch.nn.Module):
    """A compare model; `encoder` is for items, and for queries too unless there is a `query_encoder`.

    A kind of model implements `rows` and `compare`. Its other arguments are its settings, plain values by keyword;
    `settings` has those that its scores depend on.
    """

    kind: ClassVar[str]
    per_item: int | None = 1
    largest: int | None = None  # candidates that see each other in one pass; None: they do not see each other
    reads_layers = False  # whether `rows` needs what each layer of the encoder reads

    def __init__(self, encoder: TextEncoder, query_encoder: TextEncoder | None = None) -> None:
        super().__init__()
        both = {"item": encoder} | ({} if query_encoder is None else {"query": query_encoder})
        self.encoders = torch.nn.ModuleDict(both)
        if query_encoder is not None and query_encoder.width != encoder.width:
            raise CrosscutError(
                f"the encoders have {query_encoder.width} and {encoder.width} dimensions: they must have as many"
            )
        self.settings: dict[str, Any] = {}

    @property
    def width(self) -> int:
        """Columns of rows."""
        return self.encoder("item").width

    def encoder(self, role: Role) -> TextEncoder:
        return self.encoders[role if role in self.encoders else "item"]

    def encode(self, role: Role, given: dict[str, torch.Tensor]) -> Rows:
        """Rows of texts; see `TextEncoder.states` for `given`."""
        return self.rows(role, self.states(role, given))

    def states(self, role: Role, given: dict[str, torch.Tensor]) -> States:
        return self.encoder(role).states(given, self.reads_layers and role == "query")

    def whole(self, states: States) -> Rows:
        """Rows of queries from a run through the whole encoder, with all `layers`, that others have part in."""
        return self.rows("query", states)

    @abstractmethod
    def rows(self, role: Role, states: States) -> Rows:
        """What is kept of texts."""

    @abstractmethod
    def compare(
        self,
        queries: torch.Tensor,
        query_there: torch.Tensor | None,
        items: torch.Tensor,
        there: torch.Tensor | None,
    ) -> torch.Tensor:
        """Scores (B, K), float32, from rows of queries (B, R, d) and of their candidates (B, K, R', d).

        `query_there` (B, R) and `there` (B, K, R') are True where there is a row, None: everywhere. A candidate
        without rows gets any number, and changes no other score.
        """

    def fix_items(self) -> None:
        """Freeze whatever makes an item's rows, so that they stay as they are while the rest learns."""
        self.encoder("item").requires_grad_(False)

    def own_state(self) -> dict[str, torch.Tensor]:
        """The weights beside those of the encoders."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith("encoders.")}

    def pooled_rows(self, role: Role, states: States) -> Rows:
        """The one vector of each text as its one row."""
        return self.encoder(role).pooled(states)[:, None], None


def to_length(rows: torch.Tensor) -> torch.Tensor:
    """Rows scaled to length √d, as a LayerNorm leaves them.

    The dot product of two, over √d, is √d times their cosine: with 384 dimensions about 20 times, the usual scale
    of cosines in a softmax.

    >>> to_length(torch.tensor([3.0, 0.0, 0.0, 4.0])).tolist()  # doctest: +ELLIPSIS
    [1.2..., 0.0, 0.0, 1.6...]
    """
    return F.normalize(rows.float(), dim=-1).to(rows.dtype) * rows.shape[-1] ** 0.5


def products(rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Dot products of `rows` (..., N, d) and `others` (..., M, d), in float32 also where a training has bfloat16.

    A score of 10 would be rounded to steps of 1/16.

    >>> products(torch.eye(2), torch.tensor([[3.0, 4.0]])).tolist()
    [[3.0], [4.0]]
    """
    with torch.autocast(rows.device.type, enabled=False):
        return rows.float() @ others.float().transpose(-1, -2)


def refuse_fixed(kind: str, what: str) -> None:
    raise CrosscutError(f"fixed_items does not go with {what}: {kind} would have to learn rows of items for that")


def check_settings(model: type[CompareModel], settings: dict[str, Any]) -> None:
    """Refuse settings that this kind of model does not have.

    >>> from crosscut.compare.registry import model_class
    >>> check_settings(model_class("poly"), {"skip": "mean"})
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: the compare model poly has no setting 'skip': it has codes
    """
    parameters = inspect.signature(model).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for name in settings:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise CrosscutError(f"the compare model {model.kind} has no setting {name!r}: it has {listed}")


def check_token_width(encoder: TextEncoder, kind: str) -> None:
    """Refuse an encoder whose vectors of texts have other dimensions than those of tokens."""
    if encoder.width != encoder.token_width:
        raise CrosscutError(
            f"the compare model {kind} needs an encoder whose vectors of texts and tokens are equally long, but "
            f"this one's have {encoder.width} and {encoder.token_width} dimensions"
        )
