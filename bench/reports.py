"""PURE: what Apache's benchmark classes print, and what of it belongs to a window.

A line is a report: `Current Time: … | Send TPS: 41210 | Max RT(ms): 37 | Average RT(ms):   1.552 |
Send Failed: 0 | …`. The rates and the average in it cover the last nine seconds, the maximum and
the failures everything since the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from statistics import fmean
from typing import Final

from bench.loads import Load

COVERED_S: Final = 9.0
"""The classes look at themselves once a second and compare the newest of ten looks with the
oldest.
"""
_OPENING: Final = "Current Time: "
_AVERAGE: Final = "Average RT(ms)"


@dataclass(frozen=True, slots=True)
class Report:
    """One line; `at_s` is when it was seen. No average where it would say nothing: a backlog is as
    old as it is.
    """

    at_s: float
    messages_per_s: float
    average_ms: float | None
    failed: int


@dataclass(frozen=True, slots=True)
class Rate:
    messages_per_s: float
    average_ms: float | None


def parse_report(line: str, load: Load, at_s: float) -> Report | None:
    """None if the line is something else."""
    if not line.startswith(_OPENING):
        return None
    figures = dict(part.rpartition(":")[::2] for part in line.strip().split(" | "))
    average_ms = float(
        figures.get(_AVERAGE, "nan")
    )  # And where nothing was sent, NaN is what it says.
    return Report(
        at_s,
        float(figures[load.rate]),
        None if isnan(average_ms) else average_ms,
        sum(int(figures[name]) for name in load.failures),
    )


def rate_within(reports: Sequence[Report], begin_s: float, end_s: float) -> Rate | None:
    """The mean of the reports that cover nothing outside the window; None if there is none yet."""
    inside = [report for report in reports if begin_s + COVERED_S <= report.at_s <= end_s]
    if not inside:
        return None
    averages = [report.average_ms for report in inside if report.average_ms is not None]
    return Rate(
        fmean(report.messages_per_s for report in inside), fmean(averages) if averages else None
    )
