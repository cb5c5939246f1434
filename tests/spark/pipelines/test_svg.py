"""Charts: where lines and bars come to lie."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from roquet.spark.pipelines.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, bars, ceiling, lines


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 1), (1, 1), (1.1, 2), (2, 2), (4, 5), (7, 10), (1234, 2000), (0.03, 0.05)],
)
def test_a_scale_ends_at_a_round_number(value: float, expected: float) -> None:
    assert ceiling(value) == pytest.approx(expected)


def test_a_line_goes_from_corner_to_corner() -> None:
    picture = lines({"a": [(10, 0), (20, 100)]}, x_labels=("begin", "end"), unit="messages")

    (points,) = re.findall(r'points="([^"]+)"', picture)
    assert points == f"{LEFT:.1f},{HEIGHT - BOTTOM:.1f} {WIDTH - RIGHT:.1f},{TOP:.1f}"
    ElementTree.fromstring(picture)


def test_one_point_and_none_are_no_trouble() -> None:
    for series in ({"a": [(1.0, 0.0)]}, {}):
        ElementTree.fromstring(lines(series, x_labels=("", ""), unit="<&>"))


def test_bars_are_as_long_as_their_values() -> None:
    picture = bars({"x": 50, "y<": 100}, unit="")

    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', picture)]
    assert widths[1] == pytest.approx(2 * widths[0])
    ElementTree.fromstring(picture)
