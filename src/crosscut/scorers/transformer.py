"""A cross-encoder from the Hugging Face hub or a folder, run by torch as fast as the machine allows."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.scorers.base import Pair, Scorer
from crosscut.scorers.model_files import folder_digest, loading, model_location
from crosscut.scorers.tokens import PairTokens, TokenPairs, check_limits
from crosscut.system import needs_extra

if TYPE_CHECKING:
    import torch

SLAB = 16_384  # pairs that are sorted by length together


class TransformerScorer(Scorer):
    """A sequence-classification model whose logit is the score, or a model with marked vectors ([EMB]).

    Texts are tokenised once and pairs are put together from their tokens. A query is cut to `query_tokens` and
    an item to `item_tokens` of its own tokens, and a pair that is still longer than `max_length` loses the end
    of its longer text first; `truncated` counts the pairs that lost a token. Without these limits, only what
    the model cannot read is cut. `label` says which logit of several is the score.

    `device` is the GPU if there is one; `dtype` is float16 on a GPU and float32 elsewhere. `batch_tokens` is
    how many tokens are scored at once; it is halved when memory runs out. Weights are read from safetensors
    files only, as the older format can run code.

    >>> TransformerScorer(Path("no/such/folder"))
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no model folder no/such/folder
    """

    def __init__(
        self,
        model: str | Path,
        *,
        query_tokens: int | None = None,
        item_tokens: int | None = None,
        max_length: int | None = None,
        label: int | None = None,
        batch_tokens: int | None = None,
        device: str | None = None,
        dtype: str | None = None,
    ) -> None:
        limits = {"query_tokens": query_tokens, "item_tokens": item_tokens, "max_length": max_length}
        check_limits(**limits, batch_tokens=batch_tokens)
        location = model_location(model)
        with needs_extra("torch", f"the model {str(model)!r}"):
            from crosscut.scorers import torch_models
        self.name = str(model)
        self.truncated = 0
        self.device = torch_models.pick_device(device)
        self._type = torch_models.pick_dtype(dtype, self.device)
        with loading(location):
            loaded = torch_models.load(location, label, self.device, self._type)
        self.max_length = torch_models.longest(loaded, max_length, self.name)
        self.tokens = PairTokens(
            loaded.tokenizer.backend_tokenizer,
            self.max_length,
            query_tokens,
            item_tokens,
            loaded.markers,
            types=loaded.typed,
        )
        self._runner = torch_models.runner(loaded, self.tokens, self.device)
        self.batch_tokens = batch_tokens or torch_models.fitting_tokens(loaded.model, self.device)
        self.config = loaded.model.config
        self._folder = loaded.folder
        self._lock = (
            threading.Lock()
        )  # the tokens on the device, and the graphs that read them, serve one at a time
        self._options = {key: value for key, value in (limits | {"label": label}).items() if value is not None}
        self._digest: str | None = None

    def digest(self) -> str:
        """Of the weights, and of every option that changes scores."""
        if self._digest is None:
            self._digest = folder_digest(self._folder)
            if chosen := sorted(self._options.items()):
                self._digest += f"-{hashlib.sha256(str(chosen).encode()).hexdigest()[:16]}"
        return self._digest

    def options(self) -> dict[str, Any]:
        """The limits and the label, where they were given."""
        return dict(self._options)

    def _score(self, pairs: Sequence[Pair]) -> np.ndarray:
        import torch

        from crosscut.scorers.torch_models import any_shape

        scores = np.empty(len(pairs), np.float32)
        with self._lock, torch.inference_mode(), any_shape():
            # While the GPU works on one slab, the next is prepared: nothing waits for it before all is handed on.
            slabs = [
                (slice(start, start + SLAB), *self._begin(pairs[start : start + SLAB]))
                for start in range(0, len(pairs), SLAB)
            ]
            for slab, order, parts in slabs:
                scores[slab][order] = torch.cat(parts).cpu().numpy()
        return scores

    def _begin(self, pairs: Sequence[Pair]) -> tuple[np.ndarray, list[torch.Tensor]]:
        """Hand the pairs to the device; gives their order there, and the scores that will be."""
        encoded = self.tokens.pairs(pairs)
        self.truncated += encoded.truncated
        if not encoded.lengths.all():
            raise CrosscutError(
                f"a pair has neither a query nor an item that {self.name} could read, "
                "and its tokenizer adds no tokens of its own: leave empty texts out"
            )
        # The longest first, so that memory runs out at once or never.
        order = np.argsort(-encoded.lengths, kind="stable")
        return order, self._run(encoded, order)

    def _run(self, encoded: TokenPairs, order: np.ndarray) -> list[torch.Tensor]:
        lengths = encoded.lengths[order]
        sent = self._runner.send(encoded, order)
        parts: list[torch.Tensor] = []
        start = 0
        while start < len(order):
            end = self._runner.end(lengths, start, self.batch_tokens)
            try:
                parts.append(self._runner.score(sent, lengths, start, end))
            except Exception as error:
                if not out_of_memory(error):
                    raise
                self._halve(lengths[start:end])
                continue
            start = end
        return parts

    def _check_finite(self, scores: np.ndarray, pairs: Sequence[Pair]) -> None:
        try:
            super()._check_finite(scores, pairs)
        except CrosscutError as error:
            import torch

            if self._type != torch.float16:
                raise
            raise CrosscutError(
                f"{error}; it ran in float16, which ends at 65504: try the option dtype=bfloat16 or dtype=float32"
            ) from None

    def _halve(self, lengths: np.ndarray) -> None:
        import torch

        if len(lengths) == 1:
            raise CrosscutError(
                f"there is not enough memory on {self.device} to score a single pair of {lengths[0]} tokens "
                f"with {self.name}: use a smaller model, another device, or a smaller max_length"
            )
        self.batch_tokens = max(1, min(self.batch_tokens, int(lengths[0]) * len(lengths)) // 2)
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()


def out_of_memory(error: Exception) -> bool:
    """Whether this is what torch says when there is no memory left, on whatever device."""
    import torch

    # torch has a class for this on a GPU only.
    is_cpu = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    if is_cpu or isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return True
    # While a graph is recorded, the end of the recording fails as well, and hides why.
    return isinstance(error.__context__, Exception) and out_of_memory(error.__context__)
