"""Curves of recall against calls, in the terminal and as a picture, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias
from xml.sax.saxutils import escape

# By name: (calls, recall from 0 to 1), calls growing. The x axis is logarithmic.
Curves: TypeAlias = dict[str, Sequence[tuple[int, float]]]

COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd")
WIDTH, HEIGHT = 640, 400  # of a picture
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 50  # its margins


def terminal_plot(curves: Curves, columns: int = 60, rows: int = 10) -> str:
    """The points of each curve, marked by the first letter of its name; where two meet, the first name shows.

    >>> print(terminal_plot({"rerank": [(10, 0.53), (100, 0.8)], "crosscut": [(10, 0.6), (100, 1.0)]}, 20, 5))
    100 %|                   c
     90 %|
     80 %|                   r
     70 %|
     60 %|c
     50 %|r-------------------
          10               100  calls
          c crosscut, r rerank
    """
    calls = _calls(curves)
    lowest = min(recall for curve in curves.values() for _, recall in curve)
    room = max(1, math.ceil(10 * (1 - lowest) - 1e-9)) / 10  # from the last ten per cent below all points to 100
    grid = [[" "] * columns for _ in range(rows)] + [["-"] * columns]
    for name, curve in curves.items():
        for x, recall in curve:
            row, column = grid[round((1 - recall) / room * rows)], round(_along(x, calls) * (columns - 1))
            row[column] = name[0] if row[column] in " -" else row[column]
    lines = [f"{100 - 100 * room * n / rows:3.0f} %|{''.join(row).rstrip()}" for n, row in enumerate(grid)]
    axis = [" "] * columns
    for x in calls:
        start = max(0, round(_along(x, calls) * (columns - 1)) + 1 - len(str(x)))
        axis[start : start + len(str(x))] = str(x)
    names = ", ".join(f"{name[0]} {name}" for name in sorted(curves))
    return "\n".join([*lines, f"{'':6}{''.join(axis)}  calls", f"{'':6}{names}"])


def svg_plot(curves: Curves, title: str) -> str:
    """The same as an SVG picture, with lines between the points.

    >>> svg_plot({"rerank": [(10, 0.2), (100, 0.8)]}, "Of the true top 10")[:4]
    '<svg'
    """
    calls = _calls(curves)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>',
        *_axes(calls),
    ]
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [_place(x, recall, calls) for x, recall in curve]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in places]
        y = HEIGHT - BOTTOM - 20 - 20 * number
        parts.append(
            f'<text x="{WIDTH - RIGHT - 10}" y="{y}" text-anchor="end" fill="{colour}">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axes(calls: list[int]) -> Iterator[str]:
    for percent in range(0, 101, 20):
        y = _place(calls[0], percent / 100, calls)[1]
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>'
    for x in calls:
        place = _place(x, 0.0, calls)[0]
        yield f'<text x="{place:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{x}</text>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">model calls</text>'


def _place(x: int, recall: float, calls: list[int]) -> tuple[float, float]:
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    return LEFT + _along(x, calls) * across, TOP + (1 - recall) * down


def _calls(curves: Curves) -> list[int]:
    return sorted({x for curve in curves.values() for x, _ in curve})


def _along(x: int, calls: list[int]) -> float:
    """Where `x` lies between the fewest and the most calls, from 0 to 1."""
    if calls[0] == calls[-1]:
        return 0.0
    return math.log(x / calls[0]) / math.log(calls[-1] / calls[0])
