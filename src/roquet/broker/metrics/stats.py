"""PURE: statistics by topic and group over the last minute, hour and day.

Nothing is counted here. The store and `traffic` keep totals that only grow. This module samples the
totals periodically; the value of a window is the difference between its newest and oldest sample.

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
    """A total since the broker started: `value` (messages, bytes, ms), `times` (additions)."""

    value: int
    times: int


Totals = Callable[[], Steps[Mapping[str, Total]]]
"""Computes the present totals of one item (such as messages stored) by key (such as the topic)."""


class Window(Enum):
    """A span of time: its title, the time between two samples (ms), the number of samples kept."""

    MINUTE = ("statsMinute", 10_000, 7)
    HOUR = ("statsHour", 600_000, 7)
    DAY = ("statsDay", 3_600_000, 25)

    def __init__(self, title: str, period_ms: int, samples: int) -> None:
        self.title = title
        self.period_ms = period_ms
        self.samples = samples


@dataclass(frozen=True, slots=True)
class Summary:
    """The value of one window: its sum, per second (`tps`), per addition (`avgpt`)."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(frozen=True, slots=True)
class _Sample:
    """One sample of a total."""

    at_ms: float
    total: Total


_NOTHING: Final = Total(0, 0)
_KEYS: Final = 128
"""Keys per step."""


class Stats:
    """The statistics of one broker.

    Invariant: the samples of a key are in the order of time. The first sample of a new key follows
    one of zero, a period earlier.

    :param items: the totals of each item, by Apache's name of the item.
    """

    def __init__(self, items: Mapping[str, Totals]) -> None:
        self._items = items
        self._samples: dict[Window, dict[str, dict[str, deque[_Sample]]]] = {
            window: {item: {} for item in items} for window in Window
        }

    def sample(self, window: Window, now_ms: float) -> Steps[None]:
        """Sample all items for a window. Called once per period of the window."""
        for item, totals in self._items.items():
            yield from self._sample_item(self._samples[window][item], totals, window, now_ms)

    def _sample_item(
        self, samples: dict[str, deque[_Sample]], totals: Totals, window: Window, now_ms: float
    ) -> Steps[None]:
        """Sample one item; samples of keys that are gone are dropped.

        A function of its own so that the item's totals are freed at once: freeing 100,000 of them
        takes some ms.
        """
        found = yield from totals()
        for keys in in_parts(list(samples), _KEYS):
            for key in keys:
                if key not in found:
                    del samples[key]
            yield
        for entries in in_parts(found.items(), _KEYS):
            for key, total in entries:
                known = samples.get(key)
                # a total that fell belongs to a topic that was deleted and created again
                if known is None or total.times < known[-1].total.times:
                    known = samples[key] = deque(
                        (_Sample(now_ms - window.period_ms, _NOTHING),), window.samples
                    )
                known.append(_Sample(now_ms, total))
            yield

    def describe(self, item: str, key: str) -> Steps[dict[str, Summary] | None]:
        """The summary of each window, by its title; None for an unknown item or key."""
        totals = self._items.get(item)
        if totals is None:
            return None
        if key not in self._samples[Window.MINUTE][item] and key not in (yield from totals()):
            return None
        return {window.title: self.summary(item, key, window) for window in Window}

    def summary(self, item: str, key: str, window: Window = Window.MINUTE) -> Summary:
        """The summary of one window; zeros before the first sample."""
        samples = self._samples[window][item].get(key)
        if not samples:
            return Summary()
        first, last = samples[0], samples[-1]
        grown = last.total.value - first.total.value
        times = last.total.times - first.total.times
        span_ms = last.at_ms - first.at_ms
        return Summary(
            grown, grown * 1000 / span_ms if span_ms > 0 else 0.0, grown / times if times else 0.0
        )
