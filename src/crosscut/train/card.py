"""The model card: what a folder holds, how it was made, and how well it did."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crosscut.data.atomic import atomic_write
from crosscut.train.folder import RECORD, write_json

USES = {
    "cls": (
        "sentence-transformers",
        "text-ranking",
        "A cross-encoder: it reads query and item together and gives one score, a raw logit.",
        """\
from sentence_transformers import CrossEncoder

scores = CrossEncoder("FOLDER").predict([("a query", "an item")])
""",
    ),
    "emb": (
        "transformers",
        "text-ranking",
        "A cross-encoder of the [EMB] form: it reads query and item together, each behind a marker token, and the "
        "score is the dot product of the vectors of the two markers.",
        """\
from crosscut.scorers import as_scorer

scores = as_scorer("FOLDER").score([("a query", "an item")])
""",
    ),
    "compare": (
        "crosscut",
        "text-ranking",
        "A compare model: items become vectors once, and all candidates of a query are scored in one pass.",
        """\
from crosscut.compare import as_comparer

model = as_comparer("FOLDER")
items = model.encode_items(["an item", "another"])
scores = model.score(model.encode_queries(["a query"]), [items])
""",
    ),
    "encoder": (
        "sentence-transformers",
        "sentence-similarity",
        "A bi-encoder: queries and items become vectors of unit length; their inner product says how they match.",
        """\
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("FOLDER").encode(["a query", "an item"])
""",
    ),
}


def write_card(
    folder: Path, kind: str, arguments: Mapping[str, Any], report: Mapping[str, Any], licence: str | None
) -> None:
    """README.md, and the same as training.json. `kind`: cls, emb, encoder or compare.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> report = {"figures": {"accuracy": 0.5}, "best_step": 10, "steps": 20}
    >>> write_card(folder, "cls", {"base": "google-bert/bert-base-uncased", "seed": 0}, report, licence="mit")
    >>> print((folder / "README.md").read_text())  # doctest: +ELLIPSIS
    ---
    license: mit
    base_model: google-bert/bert-base-uncased
    ...
    """
    library, pipeline, about, example = USES[kind]
    base = str(arguments["base"])
    head = [f"license: {licence}"] if licence else []
    head += [f"base_model: {base}"] if not Path(base).is_dir() else []
    head += [f"library_name: {library}", f"pipeline_tag: {pipeline}", "tags:", "- crosscut"]
    figures = [f"| {name} | {value:.4f} |" for name, value in report["figures"].items()]
    public = {name: _public(value) for name, value in arguments.items() if value is not None}
    settings = [f"| {name} | {', '.join(v) if isinstance(v, list) else v} |" for name, v in public.items()]
    lines = ["---", *head, "---", "", "# Trained with crosscut", "", about, "", "```python", example + "```", ""]
    if kind in ("cls", "emb"):
        limits = [f"{n}={arguments[n]}" for n in ("query_tokens", "item_tokens", "max_length") if arguments.get(n)]
        if limits:
            lines += [f"Texts were cut in training. Score with the same limits: {', '.join(limits)}.", ""]
    lines += ["## Evaluation", "", "On queries that were set apart, at the step that was kept"]
    lines[-1] += f" ({report['best_step']} of {report['steps']}):"
    lines += [
        "",
        "| figure | |",
        "|---|---|",
        *figures,
        "",
        "## Training",
        "",
        "| argument | |",
        "|---|---|",
        *settings,
    ]
    with atomic_write(folder / "README.md") as file:
        file.write("\n".join(lines) + "\n")
    write_json(folder / RECORD, {"arguments": public, "licence": licence, **report})


def _public(value: Any) -> Any:
    """A path may say more than its owner wants to publish: its last part is enough."""
    if isinstance(value, list | tuple):
        return [str(_public(one)) for one in value]
    if not isinstance(value, str):
        return value
    kind, colon, path = value.rpartition(":")  # encoder:MODEL
    return kind + colon + Path(path).name if path.startswith(("/", "./", "../", "~")) else value
