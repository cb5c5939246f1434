"""PURE: charts as SVG text for HTML pages, without libraries, scripts and fonts to load.

The colours are Okabe and Ito's eight, which colour-blind readers can distinguish. Every series has
its name beside its line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 900
HEIGHT: Final = 320
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 20, 30
COLOURS: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#000000",
    "#f0e442",
)
BAR_HEIGHT: Final = 22
TICKS: Final = 5


class Picture(str):
    """SVG text that notebooks show as a picture."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]], *, x_labels: tuple[str, str], unit: str
) -> Picture:
    """A line chart with one line of (x, y) points per series. The y axis begins at 0.

    :param x_labels: for both ends of the x axis.
    :param unit: of the y axis.
    """
    points = [point for each in series.values() for point in each]
    x_min, x_max = (
        min((x for x, _ in points), default=0.0),
        max((x for x, _ in points), default=1.0),
    )
    y_max = ceiling(max((y for _, y in points), default=1.0))

    def place(x: float, y: float) -> str:
        across = (x - x_min) / ((x_max - x_min) or 1)
        return f"{LEFT + across * (WIDTH - LEFT - RIGHT):.1f},{_height(y / y_max):.1f}"

    parts = [_grid(y_max, unit), _ends(x_labels)]
    for index, (name, each) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(place(x, y) for x, y in each)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        parts.append(_text(WIDTH - RIGHT + 10, TOP + 14 + 18 * index, name, fill=colour))
    return _picture(HEIGHT, parts)


def bars(values: Mapping[str, float], *, unit: str) -> Picture:
    """A bar chart with one bar per name and the number beside it."""
    largest = max(values.values(), default=0) or 1
    room = WIDTH - 300 - RIGHT
    parts = []
    for index, (name, value) in enumerate(values.items()):
        y = TOP + index * BAR_HEIGHT
        width = room * value / largest
        parts.append(_text(290, y + 14, name, anchor="end"))
        parts.append(
            f'<rect x="300" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT - 6}" '
            f'fill="{COLOURS[0]}"/>'
        )
        parts.append(_text(306 + width, y + 14, f"{value:,.0f} {unit}"))
    return _picture(TOP + len(values) * BAR_HEIGHT + TOP, parts)


def ceiling(value: float) -> float:
    """The end of a scale: the smallest 1, 2 or 5 times a power of ten not below `value`."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9)))


def _grid(y_max: float, unit: str) -> str:
    parts = []
    for tick in range(TICKS + 1):
        y = _height(tick / TICKS)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        parts.append(_text(LEFT - 6, y + 4, f"{y_max * tick / TICKS:,.10g}", anchor="end"))
    return "".join([*parts, _text(LEFT, TOP - 7, unit)])


def _ends(labels: tuple[str, str]) -> str:
    first, last = labels
    y = HEIGHT - BOTTOM + 18
    return _text(LEFT, y, first) + _text(WIDTH - RIGHT, y, last, anchor="end")


def _height(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _text(x: float, y: float, text: str, *, anchor: str = "start", fill: str = "#333") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
    )


def _picture(height: int, parts: Sequence[str]) -> Picture:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
    style = 'font-family="sans-serif" font-size="12"'
    return Picture(f'{head} {style} role="img">{"".join(parts)}</svg>')
