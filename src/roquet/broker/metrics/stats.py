"""PURE: how much went in and out, by topic and group, over the last minute, hour and day.

Nothing is counted here. Whoever stores or gives messages keeps totals that only grow; these are looked at now and then,
and what a window holds is the difference between its newest and its oldest look.

See docs/broker/statistics.md#counts-by-topic-and-group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from roquet.common.steps import Steps, in_parts


class Total(NamedTuple):
    """What was counted of one thing since the broker started: messages or bytes, and how many times that grew."""

    value: int
    times: int


Totals = Callable[[], Steps[Mapping[str, Total]]]
"""In steps: the present totals of one item, such as messages stored, by key, such as the topic's name."""


class Window(Enum):
    """A span of time: how often it is looked at, in ms, and how many looks it holds."""

    MINUTE = ("statsMinute", 10_000, 7)
    HOUR = ("statsHour", 600_000, 7)
    DAY = ("statsDay", 3_600_000, 25)

    def __init__(self, title: str, period_ms: int, looks: int) -> None:
        self.title = title
        self.period_ms = period_ms
        self.looks = looks


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one window: how much it was, how much a second, and how much each time."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(frozen=True, slots=True)
class _Look:
    at_ms: float
    total: Total


_NOTHING: Final = Total(0, 0)
_KEYS: Final = 128
"""Keys of one step."""


class Stats:
    """The statistics of one broker.

    Keeps: looks are in the order of time. A key's first look stands beside one of nothing, a period earlier.

    :param items: the totals of each item, by Apache's name of it.
    """

    def __init__(self, items: Mapping[str, Totals]) -> None:
        self._items = items
        self._looks: dict[Window, dict[str, dict[str, deque[_Look]]]] = {
            window: {item: {} for item in items} for window in Window
        }

    def look(self, window: Window, now_ms: float) -> Steps[None]:
        """Look at all totals; due each of the window's periods."""
        for item, totals in self._items.items():
            yield from self._look_at(self._looks[window][item], totals, window, now_ms)

    def _look_at(
        self, looks: dict[str, deque[_Look]], totals: Totals, window: Window, now_ms: float
    ) -> Steps[None]:
        """One item after the other: its totals are let go at once, some ms of work where there are 100,000."""
        found = yield from totals()
        for keys in in_parts(list(looks), _KEYS):
            for key in keys:
                if key not in found:
                    del looks[key]
            yield
        for entries in in_parts(found.items(), _KEYS):
            for key, total in entries:
                known = looks.get(key)
                if (
                    known is None or total.times < known[-1].total.times
                ):  # it is new, or was deleted and made again
                    known = looks[key] = deque(
                        (_Look(now_ms - window.period_ms, _NOTHING),), window.looks
                    )
                known.append(_Look(now_ms, total))
            yield

    def describe(self, item: str, key: str) -> Steps[dict[str, Summary] | None]:
        """What each window holds, by Apache's name of it; None: nobody counted that."""
        totals = self._items.get(item)
        if totals is None:
            return None
        if key not in self._looks[Window.MINUTE][item] and key not in (yield from totals()):
            return None
        return {window.title: self.summary(item, key, window) for window in Window}

    def summary(self, item: str, key: str, window: Window = Window.MINUTE) -> Summary:
        """Zeros where there was no look yet."""
        looks = self._looks[window][item].get(key)
        if not looks:
            return Summary()
        first, last = looks[0], looks[-1]
        grown, times = last.total.value - first.total.value, last.total.times - first.total.times
        span_ms = last.at_ms - first.at_ms
        return Summary(
            grown, grown * 1000 / span_ms if span_ms > 0 else 0.0, grown / times if times else 0.0
        )
