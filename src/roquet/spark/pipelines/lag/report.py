"""The report of a lag job: an HTML page with a chart and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from roquet.spark.pipelines._shared.page import page, paragraph, table
from roquet.spark.pipelines.svg import lines

POINTS_MAX: Final = 600
"""Points of a line in the chart; more would not be visible at its width."""
TITLES: Final = ("group", "topic", "first", "most", "last")


@dataclass(frozen=True)
class Series:
    """The backlog of a group in a topic: points (seconds since 1970, messages), sorted by time."""

    group: str
    topic: str
    points: tuple[tuple[float, int], ...]

    @property
    def name(self) -> str:
        return f"{self.group}: {self.topic}"

    @property
    def first(self) -> int:
        return self.points[0][1]

    @property
    def most(self) -> int:
        return max(lag for _, lag in self.points)

    @property
    def last(self) -> int:
        return self.points[-1][1]

    def row(self) -> tuple[object, ...]:
        """A row for a table with `TITLES`."""
        return (self.group, self.topic, self.first, self.most, self.last)

    def to_json(self) -> dict[str, Any]:
        return dict(zip(TITLES, self.row(), strict=True)) | {"samples": len(self.points)}


def series_of(samples: DataFrame) -> list[Series]:
    """The backlog of each group and topic over time, summed over all queues.

    :param samples: as `lag` wrote them. Many samples are thinned out, see `thinned`.
    """
    at = f.unix_millis("sampledAt") / 1000
    sums = samples.groupBy("consumerGroup", "topic", at.alias("at")).agg(f.sum("lag").alias("lag"))
    found: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for row in sums.orderBy("consumerGroup", "topic", "at").toLocalIterator():
        found.setdefault((row.consumerGroup, row.topic), []).append((row.at, row.lag))
    return [
        Series(group, topic, tuple(thinned(points))) for (group, topic), points in found.items()
    ]


def thinned(points: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """At most `POINTS_MAX` points, each the highest of its interval, and the last point."""
    width = -(-len(points) // POINTS_MAX)
    if width <= 1:
        return list(points)
    parts = (points[start : start + width] for start in range(0, len(points) - 1, width))
    return [*(max(part, key=lambda point: point[1]) for part in parts), points[-1]]


def lag_page(series: Sequence[Series]) -> str:
    """An HTML page with the chart and a table of its numbers."""
    if not series:
        return page("Backlog of consumer groups", [paragraph("No group has consumer offsets.")])
    times = [at for each in series for at, _ in each.points]
    labels = (_time(min(times)), _time(max(times)))
    chart = lines({each.name: each.points for each in series}, x_labels=labels, unit="messages")
    return page(
        "Backlog of consumer groups", [chart, table(TITLES, [each.row() for each in series])]
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
