"""Every kind of compare model on a tiny encoder with random weights."""

import tiny_families
import torch
import transformers

from crosscut.compare.comparer import ModelComparer
from crosscut.compare.registry import model_class
from crosscut.compare.text_encoder import TextEncoder

TEXTS = [*tiny_families.TEXTS, "blue sky", "the whale", "fire and floods", "cover", "a policy for a whale"]


def save_encoder(folder, family="bert", **options):
    tokenizer = tiny_families.tokenizer_of(family)  # one for all: the words of two that are trained differ
    return tiny_families.save(folder, family, transformers.AutoModel, tokenizer, **options)


def make(kind, folder, two=False, **settings):
    """A model whose own layers do something: fresh ones begin as zeros."""
    encoders = [TextEncoder.load(folder) for _ in range(1 + two)]
    torch.manual_seed(1)
    model = model_class(kind)(*encoders, **settings)
    for name, parameter in model.named_parameters():
        if not name.startswith("encoders."):
            torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    return model.eval()


def comparer_of(kind, folder, chunk=None, **settings):
    return ModelComparer(make(kind, folder, **settings), device="cpu", chunk=chunk)
