"""What the reports of the experiments share: intervals, tables, pages, plots."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.data.atomic import atomic_write
from crosscut.errors import CrosscutError
from crosscut.system import needs_extra

DRAWS = 10_000  # of the bootstrap


def interval(parts: Sequence[np.ndarray], seed: int = 0) -> tuple[float, float, float]:
    """The mean of the means of `parts`, one value per query in each, and its 95 % bootstrap interval.

    Queries are drawn within each part, so that parts (worlds, say) count alike.

    >>> interval([np.array([1.0, 1.0]), np.array([0.0, 0.0])])
    (0.5, 0.5, 0.5)
    """
    generator = np.random.default_rng(seed)
    drawn = np.zeros(DRAWS)
    for part in parts:
        # In blocks: all draws at once would need gigabytes.
        for start in range(0, DRAWS, 500):
            drawn[start : start + 500] += part[generator.integers(len(part), size=(500, len(part)))].mean(axis=1)
    low, high = np.percentile(drawn / len(parts), [2.5, 97.5])
    return float(np.mean([part.mean() for part in parts])), float(low), float(high)


def difference(parts: Sequence[np.ndarray]) -> str:
    """A mean difference in percentage points, with its interval.

    >>> difference([np.array([0.25, 0.25])])
    '+25.0 (+25.0 to +25.0)'
    """
    mean, low, high = (round(100 * value, 1) + 0.0 for value in interval(parts))  # + 0.0: never -0.0
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"


def percent(value: float) -> str:
    """
    >>> percent(0.1234)
    '12.3'
    """
    return f"{100 * value:.1f}"


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Markdown.

    >>> print(table(["world", "accuracy"], [["food", 0.5]]))
    | world | accuracy |
    |---|---|
    | food | 0.5 |
    """
    lines = [header, *rows]
    cells = ["| " + " | ".join(map(str, line)) + " |" for line in lines]
    return "\n".join([cells[0], "|" + "---|" * len(header), *cells[1:]])


def remembered(path: Path, make: Callable[[], Any]) -> Any:
    """What `make` gives, from the JSON file if it is there: the same report again need not compute again."""
    if not path.exists():
        made = make()
        with atomic_write(path) as file:
            json.dump(made, file)
    return json.loads(path.read_text(encoding="utf-8"))


def write_tables(out: Path, tables: Mapping[str, str], page: Path | None = None) -> None:
    """Each table as NAME.md in a folder, and between the marks `<!-- NAME -->` and `<!-- /NAME -->` of a page."""
    out.mkdir(parents=True, exist_ok=True)
    for name, text in tables.items():
        with atomic_write(out / f"{name}.md") as file:
            file.write(text + "\n")
    if page is None:
        return
    text = page.read_text(encoding="utf-8")
    for name, new in tables.items():
        text = between_marks(text, name, new)
    with atomic_write(page) as file:
        file.write(text)


def between_marks(page: str, name: str, new: str) -> str:
    """The page with `new` where the table `name` was; a page without its marks does not want it.

    >>> print(between_marks("<!-- a -->\\nold\\n<!-- /a -->\\nrest", "a", "new"))
    <!-- a -->
    new
    <!-- /a -->
    rest
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if begin not in page:
        return page
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise CrosscutError(f"the page has {begin}, but no {end} after it")
    return f"{before}{begin}\n{new}\n{end}{after}"


def figure(rows: int, columns: int, width: float = 3.2, height: float = 2.7, **options: Any) -> tuple[Any, Any]:
    """A figure of matplotlib and its axes (rows x columns), in the style of all plots here."""
    with needs_extra("plot", "the plots of a report"):
        import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    # Text stays text, and the same numbers give the same file.
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "crosscut", "font.size": 8})
    pyplot.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True})
    pyplot.rcParams.update({"grid.color": "#dddddd", "legend.frameon": False, "axes.titlesize": 9})
    size = (width * columns, height * rows)
    return pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", **options)


def save_figure(drawn: Any, path: Path) -> None:
    """As SVG on a white ground, readable in a dark page, too."""
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, metadata={"Date": None}, facecolor="white")
    pyplot.close(drawn)
