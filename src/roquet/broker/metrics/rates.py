"""PURE: messages per second that a broker stores and delivers, and how long storing takes.

See docs/broker/statistics.md#how-long-storing-takes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

SPANS_S: Final = (10, 60, 600)
"""The spans over which rates are shown, in seconds."""
_BUCKETS_TURN_MS: Final = 60_000
_STEPS_MS: Final = (
    *range(10),
    *range(10, 100, 10),
    *range(100, 1000, 100),
    *range(1000, 10_001, 1000),
)
"""Upper bounds (ms) of the buckets of the histogram; one more bucket has no bound."""
_SHOWN_MS: Final = {
    "<=0ms": 0,
    "0~10ms": 10,
    "10~50ms": 50,
    "50~100ms": 100,
    "100~200ms": 200,
    "200~500ms": 500,
    "500ms~1s": 1000,
    "1~2s": 2000,
    "2~3s": 3000,
    "3~4s": 4000,
    "4~5s": 5000,
    "5~10s": 10_000,
    "10s~": 2**63,
}
"""The buckets of `putMessageDistributeTime`: name and upper bound (ms)."""


class TrafficTotals(NamedTuple):
    """Totals since the broker started.

    `stored` and `given` count messages, `found` and `missed` count pulls with and without messages.
    """

    stored: int = 0
    found: int = 0
    missed: int = 0
    given: int = 0


class Rates:
    """Rates over `SPANS_S`, totals by day, and a histogram of store times.

    Invariant: `_samples` are the last 601 samples, about a second apart.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, TrafficTotals]] = deque(maxlen=SPANS_S[-1] + 1)
        self._day: int | None = None
        self._this_morning = self._yesterday_morning = TrafficTotals()
        self._times = [0] * (len(_STEPS_MS) + 1)
        self._last_times = list(self._times)
        self._turned_ms = 0.0
        self._longest_ms = 0

    def sample(self, flow: TrafficTotals, now_ms: float, day: int) -> None:
        """Sample the totals. Called every second.

        :param now_ms: monotonic clock.
        :param day: a number that changes at midnight.
        """
        self._samples.append((now_ms, flow))
        if self._day is not None and day != self._day:
            self._yesterday_morning, self._this_morning = self._this_morning, flow
        self._day = day
        if now_ms - self._turned_ms >= _BUCKETS_TURN_MS:
            self._last_times, self._times = self._times, [0] * len(self._times)
            self._turned_ms = now_ms

    def took(self, messages: int, ms: int) -> None:
        """Count messages that were stored together in `ms`."""
        self._times[bisect_left(_STEPS_MS, ms)] += messages
        self._longest_ms = max(self._longest_ms, ms)

    def figures(self, flow: TrafficTotals) -> dict[str, str]:
        """All rates and totals, by Apache's names.

        :param flow: the present totals.
        """
        rates = {
            "putTps": self._rates(lambda flow: flow.stored),
            "getFoundTps": self._rates(lambda flow: flow.found),
            "getMissTps": self._rates(lambda flow: flow.missed),
            "getTotalTps": self._rates(lambda flow: flow.found + flow.missed),
            "getTransferedTps": self._rates(lambda flow: flow.given),
        }
        return {
            **rates,
            "getTransferredTps": rates["getTransferedTps"],
            "putMessageTimesTotal": str(max(1, flow.stored)),
            "msgPutTotalYesterdayMorning": str(self._yesterday_morning.stored),
            "msgPutTotalTodayMorning": str(self._this_morning.stored),
            "msgPutTotalTodayNow": str(flow.stored),
            "msgGetTotalYesterdayMorning": str(self._yesterday_morning.given),
            "msgGetTotalTodayMorning": str(self._this_morning.given),
            "msgGetTotalTodayNow": str(flow.given),
            "putMessageEntireTimeMax": str(self._longest_ms),
            "putMessageDistributeTime": self._distribution(),
            "putLatency99": f"{self._within(0.99):.2f}",
            "putLatency999": f"{self._within(0.999):.2f}",
        }

    def _rates(self, of: Callable[[TrafficTotals], int]) -> str:
        """The rate per second over each span, or over the time since the start if shorter."""
        return " ".join(str(round(self._rate(of, span_s), 3)) for span_s in SPANS_S)

    def _rate(self, of: Callable[[TrafficTotals], int], span_s: int) -> float:
        if len(self._samples) < 2:
            return 0.0
        first_ms, first = self._samples[-min(span_s + 1, len(self._samples))]
        last_ms, last = self._samples[-1]
        return (of(last) - of(first)) * 1000 / (last_ms - first_ms) if last_ms > first_ms else 0.0

    def _distribution(self) -> str:
        """The number of messages per bucket of store time, in the last full minute."""
        shown = dict.fromkeys(_SHOWN_MS, 0)
        names = list(_SHOWN_MS)
        bounds = list(_SHOWN_MS.values())
        for step, count in enumerate(self._last_times):
            bound = _STEPS_MS[step] if step < len(_STEPS_MS) else bounds[-1]
            shown[names[bisect_left(bounds, bound)]] += count
        return "".join(f"[{name}]:{count} " for name, count in shown.items())

    def _within(self, share: float) -> float:
        """The time (ms) within which a share of the messages of the last full minute was stored.

        :param share: 0 to 1, such as 0.99 for the 99th percentile.
        """
        wanted = share * sum(self._last_times)
        so_far = 0
        for step, count in zip(_STEPS_MS, self._last_times, strict=False):
            so_far += count
            if so_far >= wanted:
                return float(step)
        return float(self._longest_ms)
