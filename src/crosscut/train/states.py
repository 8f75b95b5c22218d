"""A smaller cross-encoder that learns the teacher's scores and, token by token, what its layers make of a pair.

Both come from one pass of the teacher over the tokens that the student reads, in the step that learns from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AutoModelForSequenceClassification

from crosscut.errors import CrosscutError
from crosscut.scorers import TransformerScorer
from crosscut.scorers.model_files import loading, model_location
from crosscut.scorers.torch_models import Loaded, keep_head_in_float32
from crosscut.train.attention import attend_by_rows
from crosscut.train.batches import Batch
from crosscut.train.pairs import PairScores
from crosscut.train.process import quiet
from crosscut.train.students import RegressionTask


class TeacherStates:
    """The hidden states and the scores of a teacher for the very tokens that the student reads.

    The student's tokens may be fewer than the teacher's and have other numbers: they are found by their names.
    """

    def __init__(self, model: Any, label: int, numbers: torch.Tensor) -> None:
        self._model, self._label, self._numbers = model, label, numbers

    @classmethod
    def of(cls, teacher: Any, student: Loaded) -> TeacherStates:
        scorer = getattr(teacher, "scorer", None)
        if not isinstance(scorer, TransformerScorer):
            raise CrosscutError(f"states are learned from a cross-encoder that torch runs, and not {teacher.name}")
        location = model_location(scorer.name)
        if getattr(scorer.config, "crosscut", None) is not None:
            raise CrosscutError(
                f"states are learned from a cross-encoder with the head cls, and {location} has emb"
            )
        with loading(location), quiet():
            model = AutoModelForSequenceClassification.from_pretrained(location, use_safetensors=True)
        attend_by_rows(model.requires_grad_(False).eval())
        own, wide = student.model.config, model.config
        if own.hidden_size != wide.hidden_size or own.num_hidden_layers > wide.num_hidden_layers:
            raise CrosscutError(
                f"the student has {own.num_hidden_layers} layers of width {own.hidden_size}, and the teacher "
                f"{wide.num_hidden_layers} of {wide.hidden_size}: states need one width, and no more layers"
            )
        known = scorer.tokens.store.tokenizer.get_vocab()
        words = student.tokenizer.get_vocab()
        if strange := sorted(word for word in words if word not in known):
            raise CrosscutError(f"the teacher does not know the student's token {strange[0]!r}")
        numbers = torch.zeros(max(words.values()) + 1, dtype=torch.long)
        for word, number in words.items():
            numbers[number] = known[word]
        return cls(model, scorer.options().get("label", 0), numbers)

    def __call__(self, given: Batch) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        device = given["input_ids"].device
        if self._numbers.device != device:
            self._numbers = self._numbers.to(device)
            # In half the bytes on a GPU, where the student, too, runs in bfloat16.
            self._model.to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
            keep_head_in_float32(self._model)
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            theirs = given | {"input_ids": self._numbers[given["input_ids"]]}
            said = self._model(**theirs, output_hidden_states=True)
            return said.hidden_states, said.logits[:, self._label].float()


class StateScores(PairScores):
    """Scores of pairs. While it learns, also the teacher's, and how far the states of its layers are from its."""

    def __init__(self, *given: Any, teacher: TeacherStates) -> None:
        super().__init__(*given)
        self._teacher = teacher

    def run(self, given: Batch, parts: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled():
            return super().run(given, parts)
        given = self.known_to_model(given)
        said = self.inner(**given, output_hidden_states=True)
        mask = given.get("attention_mask", torch.ones_like(given["input_ids"]))
        states, scores = self._teacher(given)
        apart = distance(said.hidden_states[1:], states[1:], mask)
        return torch.stack([self.read(said, parts), scores, apart], dim=1)


def distance(own: Any, theirs: Any, mask: torch.Tensor) -> torch.Tensor:
    """How far each row's states are from the teacher's, as a share of these, on the mean of the layers.

    A student of S layers learns every (T / S)-th of T.

    >>> import torch
    >>> zero, one = torch.zeros(1, 2, 3), torch.ones(1, 2, 3)
    >>> distance([one], [zero, one], torch.ones(1, 2)), distance([zero], [zero, one], torch.ones(1, 2))
    (tensor([0.]), tensor([1.]))
    """
    parts = []
    for place, state in enumerate(own, start=1):
        wanted = theirs[round(place * len(theirs) / len(own)) - 1].float()
        apart = ((state.float() - wanted).square().sum(-1) * mask).sum(-1)
        parts.append(apart / (wanted.square().sum(-1) * mask).sum(-1))
    return torch.stack(parts).mean(dim=0)


class StateTask(RegressionTask):
    """The mean score of all teachers, and the states of the first with the weight `states`.

    What the others say on their mean is in the rows.
    """

    def __init__(self, *given: Any, teachers: Sequence[Any], states: float, **more: Any) -> None:
        self._teacher, self._share, self._states = teachers[0], 1 / len(teachers), states
        super().__init__(*given, **more)

    def make_module(self, loaded: Loaded, marks: tuple[int, int]) -> PairScores:
        return StateScores(loaded, self._tokens, marks, teacher=TeacherStates.of(self._teacher, loaded))

    def loss(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        own, first, apart = output.unbind(dim=1)
        target = self._share * first + (1 - self._share) * batch["target"]
        return F.mse_loss(own, target) + self._states * apart.mean()
