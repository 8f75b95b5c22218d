"""Finding a model, and telling it apart from others. Shared with the encoders."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crosscut.errors import CrosscutError, first_line

TOKENIZER_FILES = (
    "tokenizer*.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
)


@contextmanager
def loading(model: str) -> Iterator[None]:
    """Turn whatever goes wrong while `model` is loaded into one sentence.

    >>> with loading("no/model"):
    ...     raise OSError("404")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: cannot load 'no/model': neither a folder nor on the Hugging Face hub: 404
    """
    try:
        yield
    except CrosscutError:
        raise
    except Exception as error:
        is_folder = Path(model).is_dir()
        problem = "" if is_folder else "neither a folder nor on the Hugging Face hub: "
        raise CrosscutError(f"cannot load {model!r}: {problem}{first_line(error)}") from error


def model_location(model: str | Path) -> str:
    """`model` as a folder that exists or as a name for the hub, without asking the hub.

    >>> model_location("cross-encoder/ms-marco-MiniLM-L6-v2")
    'cross-encoder/ms-marco-MiniLM-L6-v2'
    >>> model_location("./no/such/model")
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no model folder ./no/such/model
    """
    path = Path(os.path.expanduser(model))
    if path.is_dir():
        return str(path)
    # A hub name is `model` or `owner/model`; everything else can only be meant as a path.
    is_path = isinstance(model, Path) or model.startswith((".", "/", "~")) or model.count("/") > 1 or "\\" in model
    if is_path or path.exists() or not str(model).strip():
        raise CrosscutError(f"there is no model folder {model}")
    return str(model)


def folder_digest(folder: Path) -> str:
    """Tie scores to a model folder: a hash of its config.json and its weights, a dash, and one of its tokenizer.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "config.json").write_text("{}")
    >>> folder_digest(folder)
    '1511bd8718560e75-e3b0c44298fc1c14'
    """
    weights = [folder / "config.json", *sorted(folder.glob("*.safetensors"))]
    tokenizer = sorted({path for pattern in TOKENIZER_FILES for path in folder.glob(pattern)})
    return f"{files_digest(weights)}-{files_digest(tokenizer)}"


def files_digest(paths: Iterable[Path]) -> str:
    """A short hex, the same for files of the same names and contents.

    >>> files_digest([])
    'e3b0c44298fc1c14'
    """
    sha = hashlib.sha256()
    for path in paths:
        content = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                content.update(chunk)
        sha.update(f"{path.name} {content.hexdigest()}\n".encode())
    return sha.hexdigest()[:16]


def state_digest(model: Any) -> str:
    """Tie scores to a torch module in memory: a hash of its weights; "" for anything else.

    The names of the weights are left out: they change with the versions of the libraries around a model.

    >>> state_digest(object())
    ''
    """
    torch = sys.modules.get("torch")  # whoever holds a module has imported it
    if torch is None or not isinstance(model, torch.nn.Module):
        return ""
    hashes = []
    for tensor in model.parameters():
        sha = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        hashes.append(sha.hexdigest())
    return hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()[:16]
