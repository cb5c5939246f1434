"""The retention rules: which segments of the log may be deleted now. Pure functions.

See docs/storage/retention.md#when-a-segment-is-deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FILES_PER_PASS: Final = 10
"""Files that one pass deletes, as in Apache."""
PASSES_WHEN_ASKED: Final = 20
"""Passes that ignore the hour after an operator asked for deletion (DELETE_EXPIRED_COMMITLOG)."""
_USED_MAX: Final = (0.10, 0.95)
"""Apache's bounds of the setting `diskMaxUsedSpaceRatio`."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Used shares (0 to 1) of the drives of log, consume queues and index.

    For a log in several folders: the least used one.
    """

    log: float
    queues: float
    index: float

    @property
    def worst(self) -> float:
        """The share that decides about deletion."""
        return max(self.log, self.queues)

    def __str__(self) -> str:
        return f"CL: {self.log:.2f} CQ: {self.queues:.2f} INDEX: {self.index:.2f}"


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention settings of a store.

    Files are deleted `kept_ms` after their last write, in the `hours` of the day. If a larger share
    of the drive is used than `used_max`, expired files are deleted at any hour; above
    `forced_above` files are deleted whatever their age, if `forcibly` is set; above `full_above`
    the broker accepts no messages.
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
        """How many of the oldest files to delete in this pass.

        :param modified_ms: last write of each file, oldest first, without the file in use.
        :param hour: of the day, local time.
        :param used: used share of the drive, 0 to 1.
        :param asked: an operator asked to delete expired files at any hour.
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
