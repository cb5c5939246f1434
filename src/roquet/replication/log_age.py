"""PURE: when a log had grown how far, for telling a slave's distance in time."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

SAMPLES_MAX: Final = 4096


class LogAgeSamples:
    """Keeps: places and moments both only grow; the older they are, the fewer of them are kept."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._moments_ms: list[int] = []
        self._looked_ms = 0

    def note(self, end: int, now_ms: int) -> None:
        """The log ends there now."""
        self._looked_ms = now_ms
        if self._ends and end <= self._ends[-1]:
            return
        self._ends.append(end)
        self._moments_ms.append(now_ms)
        if len(self._ends) > SAMPLES_MAX:
            del self._ends[1 : SAMPLES_MAX // 2 : 2]
            del self._moments_ms[1 : SAMPLES_MAX // 2 : 2]

    def age_ms(self, at: int, now_ms: int) -> int:
        """For how long the log has had the byte at `at`; at least, where that is longer ago than some hours."""
        number = bisect_right(self._ends, at)
        known_ms = self._moments_ms[number] if number < len(self._ends) else self._looked_ms
        return max(0, now_ms - known_ms)
