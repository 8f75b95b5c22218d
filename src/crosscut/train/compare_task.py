"""A compare model while it is trained: queries with their candidates, the loss, and how well it ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from crosscut.compare.base import ItemVectors
from crosscut.compare.comparer import save
from crosscut.compare.model import CompareModel
from crosscut.compare.model import Rows as TextRows
from crosscut.encoders.base import Role
from crosscut.errors import CrosscutError
from crosscut.scorers.tokens import TokenStore
from crosscut.train.batches import Batch, TokenRows, WholeTexts, device_of, to_device
from crosscut.train.data import Examples
from crosscut.train.negatives import Row
from crosscut.train.process import quiet
from crosscut.train.trainer import Rows, Spread, Task


class Compared(torch.nn.Module):
    """Scores of the candidates of some queries. An item that several queries have is encoded once.

    fixed: the rows of all items, where they stay as they are.
    """

    def __init__(self, model: CompareModel, tokens: TokenRows, fixed: ItemVectors | None = None) -> None:
        super().__init__()
        self.model, self.tokens = model, tokens
        for name in ("rows", "starts"):
            made = None if fixed is None else torch.as_tensor(getattr(fixed, name))
            self.register_buffer(f"fixed_{name}", made, persistent=False)

    def forward(
        self, queries: Batch, items: Batch, places: torch.Tensor, there: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`places` (queries, candidates): which of the items; `there`: False where a query has no more."""
        query_rows, query_there = self.encode("query", **queries)
        rows, rows_there = self.encode("item", **items) if self.fixed_rows is None else self._fixed(**items)
        if rows_there is not None:
            rows_there = rows_there[places]
            rows_there = rows_there if there is None else rows_there & there[..., None]
        elif there is not None:
            rows_there = there[..., None].expand(-1, -1, rows.shape[1])
        return self.model.compare(query_rows, query_there, rows[places], rows_there)

    def _fixed(self, numbers: torch.Tensor, longest: int) -> TextRows:
        """Rows of items by number, of which the one with most has `longest`."""
        places = self.fixed_starts[numbers][:, None] + torch.arange(longest, device=numbers.device)
        there = places < self.fixed_starts[numbers + 1][:, None]
        rows = self.fixed_rows[places.clamp(max=len(self.fixed_rows) - 1)].float()
        return rows, None if longest == 1 else there

    def encode(
        self, role: Role, parts: torch.Tensor, order: torch.Tensor, chunks: list[tuple[int, int, int, bool]]
    ) -> TextRows:
        """Rows of texts that come in chunks of like length (see `TokenRows.inputs`), in the order of the batch."""
        made = []
        for start, end, width, is_padded in chunks:
            ids, _, mask = self.tokens.table(parts[:, :, start:end], width)
            given = {"input_ids": ids} | ({"attention_mask": mask} if is_padded else {})
            made.append(self.model.encode(role, given))
        longest = max(rows.shape[1] for rows, _ in made)
        whole = torch.cat([F.pad(rows, (0, 0, 0, longest - rows.shape[1])) for rows, _ in made])
        back = torch.empty_like(order).index_copy(0, order, torch.arange(len(order), device=order.device))
        if all(there is None and rows.shape[1] == longest for rows, there in made):
            return whole[back], None
        theres = [rows.new_ones(rows.shape[:2], dtype=torch.bool) if t is None else t for rows, t in made]
        return whole[back], torch.cat([F.pad(t, (0, longest - t.shape[1])) for t in theres])[back]


class CompareTask(Task):
    """Learn to rank the item that answers a query first: λ1 · cross-entropy + λ2 · KL (CMC, eq. 5), λ1 = 1 − λ2.

    regularise: "paper" is KL(p‖r), where p is the softmax of the model's scores and r that of the first stage's;
    "reverse" is KL(r‖p), and "none" leaves the cross-entropy alone. weight: λ2. dev_rows: the candidates of
    the queries to evaluate on. layer_rate: learning rate of the model's own layers. fixed: rows of the items to
    train on and to evaluate on, if they stay as they are.
    """

    best = "mrr"

    def __init__(
        self,
        model: CompareModel,
        rows: Rows,
        train: Examples,
        dev_rows: Rows,
        dev: Examples,
        *,
        regularise: str,
        weight: float,
        layer_rate: float,
        eval_batch: int,
        fixed: tuple[ItemVectors, ItemVectors] | None = None,
        progress: bool = False,
    ) -> None:
        self.rows, self.train, self.dev_rows, self.dev = rows, train, dev_rows, dev
        self.regularise, self.weight, self.layer_rate = regularise, weight, layer_rate
        self._eval_batch, self._model = eval_batch, model
        encoder = model.encoder("item")
        store = TokenStore(WholeTexts(encoder.model.tokenizer, encoder.model.max_seq_length))
        self._tokens = TokenRows(store, [([], []), ([], [])], [0], pad=encoder.pad)
        self._fixed = None if fixed is None else ItemVectors.concatenate(fixed)
        self.module = Compared(model, self._tokens, self._fixed)
        if fixed is not None:
            model.fix_items()
        texts = [("query", train.queries), ("item", train.items), ("query", dev.queries), ("item", dev.items)]
        texts = [(role, some if fixed is None or role == "query" else []) for role, some in texts]
        prompted = ([encoder.prompts[role] + text for text in some] for role, some in texts)
        numbers = list(self._tokens.add(*prompted, progress=progress))
        if fixed is not None:
            numbers[1], numbers[3] = np.split(np.arange(sum(map(len, fixed))), [len(fixed[0])])
        self._known = {id(train): numbers[:2], id(dev): numbers[2:]}

    def inners(self) -> list[Any]:
        """Those that learn."""
        inners = [encoder.inner for encoder in self._model.encoders.values()]
        return [inner for inner in inners if any(weight.requires_grad for weight in inner.parameters())]

    def learning_rates(self) -> Iterable[tuple[float, list[torch.nn.Parameter]]]:
        own = [value for name, value in self._model.named_parameters() if not name.startswith("encoders.")]
        return [(self.layer_rate, own)]

    def collate(self, rows: Sequence[Row]) -> Batch:
        batch = {"inputs": self._inputs(self.train, rows)}
        if scores := [row.scores for row in rows if row.scores is not None]:
            batch["first_stage"] = torch.as_tensor(np.stack(scores))
        return batch

    def _inputs(self, examples: Examples, rows: Sequence[Row]) -> Batch:
        queries, items = self._known[id(examples)]
        table = np.stack([row.items for row in rows])
        there = table >= 0
        chosen, found = np.unique(table[there], return_inverse=True)
        places = np.zeros(table.shape, np.int64)
        places[there] = found.ravel()
        made: Batch = {
            "queries": self._texts(queries[[row.query for row in rows]]),
            "items": self._texts(items[chosen]) if self._fixed is None else self._rows(items[chosen]),
            "places": torch.as_tensor(places),
        }
        return made if there.all() else made | {"there": torch.as_tensor(there)}

    def _texts(self, numbers: np.ndarray) -> Batch:
        return self._tokens.inputs([(numbers, self._tokens.sizes(numbers))], device_of(self.module))

    def _rows(self, numbers: np.ndarray) -> Batch:
        assert self._fixed is not None
        return {"numbers": torch.as_tensor(numbers), "longest": int(self._fixed.counts[numbers].max())}

    def loss(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        there = batch["inputs"].get("there")
        own = _logs(output, there)
        # The item that answers a query is its first candidate.
        loss = -own[:, 0].mean()
        if self.regularise == "none" or not self.weight:
            return loss
        stage = _logs(batch["first_stage"], there)
        one, other = (own, stage) if self.regularise == "paper" else (stage, own)
        divergence = one.exp() * (one - other)
        if there is not None:
            divergence = divergence.masked_fill(~there, 0)
        return (1 - self.weight) * loss + self.weight * divergence.sum(dim=1).mean()

    def evaluate(self, spread: Spread) -> dict[str, float]:
        """Among the candidates: how often the first one answers the query (also of those alone that have an answer
        among them: normalised), the mean reciprocal rank of the first answer, and how many have one."""
        scores = spread(len(self.dev_rows), lambda some: self.scores([self.dev_rows[query] for query in some]))
        ranks = np.full(len(scores), np.inf)
        for query, values in enumerate(scores):
            right = np.isin(self.dev_rows[query].items, self.dev.twins(query))
            if right.any():
                ranks[query] = 1 + (values[~right] >= values[right].max()).sum()  # a tie counts against the model
        found = np.isfinite(ranks)
        first = ranks == 1
        return {
            "accuracy": float(first.mean()),
            "normalised": float(first[found].mean()) if found.any() else 0.0,
            "mrr": float((1 / ranks).mean()),
            "found": float(found.mean()),
        }

    def scores(self, rows: Sequence[Row]) -> np.ndarray:
        """Of the candidates (columns) of queries that were set apart; -inf where there are no more."""
        made, device = [], device_of(self.module)
        for start in range(0, len(rows), self._eval_batch):
            some = rows[start : start + self._eval_batch]
            values = self.module(**to_device(device, self._inputs(self.dev, some))).float().cpu().numpy()
            there = np.stack([row.items for row in some]) >= 0
            if not np.isfinite(values[there]).all():
                raise CrosscutError("the model gives scores that are no finite numbers: try a lower learning_rate")
            made.append(np.where(there, values, -np.inf))
        return np.concatenate(made) if made else np.zeros((0, 0), np.float32)

    def save(self, folder: Path) -> None:
        with quiet():
            save(self._model, folder)


def _logs(scores: torch.Tensor, there: torch.Tensor | None) -> torch.Tensor:
    """Logarithms of the softmax, any number where there is no candidate."""
    if there is None:
        return scores.log_softmax(dim=1)
    return scores.masked_fill(~there, -torch.inf).log_softmax(dim=1).masked_fill(~there, 0)
