"""PURE: which files of the log may go now.

See docs/storage/retention.md#when-a-segment-goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FILES_PER_PASS: Final = 10
PASSES_WHEN_ASKED: Final = 20
_USED_MAX: Final = (0.10, 0.95)


@dataclass(frozen=True, slots=True)
class Usage:
    """Shares of their drives that are in use: log (of several folders the least), consume queues, index."""

    log: float
    queues: float
    index: float

    @property
    def worst(self) -> float:
        """The share that decides."""
        return max(self.log, self.queues)

    def __str__(self) -> str:
        return f"CL: {self.log:.2f} CQ: {self.queues:.2f} INDEX: {self.index:.2f}"


@dataclass(frozen=True, slots=True)
class Retention:
    """When files go: `kept_ms` after their last write, in one of `hours` of the day.

    Shares of a drive: above `used_max` they go at any hour, above `forced_above` whatever their age if that may be
    (`forcibly`), and above `full_above` no message is taken.
    """

    kept_ms: int = 72 * 3_600_000
    hours: frozenset[int] = frozenset({4})
    used_max: float = 0.75
    forced_above: float = 0.85
    full_above: float = 0.90
    forcibly: bool = True

    def files_to_go(
        self, modified_ms: Sequence[int], now_ms: int, hour: int, used: float, *, asked: bool
    ) -> int:
        """How many of the oldest files go in this pass.

        :param modified_ms: when each file was last written, the oldest first, without the one that is written now.
        :param hour: of the day, local time.
        :param asked: somebody wants expired files gone at any hour.
        """
        least, most = _USED_MAX
        if not asked and hour not in self.hours and used <= min(max(self.used_max, least), most):
            return 0
        if self.forcibly and used > self.forced_above:
            return min(len(modified_ms), FILES_PER_PASS)
        count = 0
        while (
            count < min(len(modified_ms), FILES_PER_PASS)
            and modified_ms[count] + self.kept_ms <= now_ms
        ):
            count += 1
        return count
