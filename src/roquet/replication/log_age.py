"""PURE: samples of the log's growth, from which a slave's lag in ms is computed."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

SAMPLES_MAX: Final = 4096
"""Bounds the memory. At two samples a second (`server.TICK_S`) the last 17 minutes stay exact."""


class LogAgeSamples:
    """Samples of when the log ended at which physical offset.

    Invariant: offsets and times both increase. When there are too many samples, every other one of
    the older half is deleted, so older samples are farther apart.
    """

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._times_ms: list[int] = []
        self._sampled_ms = 0

    def note(self, end: int, now_ms: int) -> None:
        """Add a sample: the log ends at physical offset `end` at `now_ms` (event loop's clock)."""
        self._sampled_ms = now_ms
        if self._ends and end <= self._ends[-1]:
            return
        assert not self._times_ms or now_ms >= self._times_ms[-1], "the loop's clock is monotonic"
        self._ends.append(end)
        self._times_ms.append(now_ms)
        if len(self._ends) > SAMPLES_MAX:
            del self._ends[1 : SAMPLES_MAX // 2 : 2]
            del self._times_ms[1 : SAMPLES_MAX // 2 : 2]

    def age_ms(self, at: int, now_ms: int) -> int:
        """Return for how many ms the log has had the byte at `at`.

        It is a lower bound if the samples of that time have been deleted.
        """
        number = bisect_right(self._ends, at)
        known_ms = self._times_ms[number] if number < len(self._ends) else self._sampled_ms
        return max(0, now_ms - known_ms)
