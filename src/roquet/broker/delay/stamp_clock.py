"""The wall clock that stamps records, and by how much it was set since a record was stored."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

import numpy as np

from roquet.common.runtime import Runtime
from roquet.protocol.records.columns import Ints

log = logging.getLogger(__name__)

_NOTICED_MS: Final = 2
"""A smaller difference between the two clocks is the time between asking one and the other."""
_TOLD_MS: Final = 1000
"""A smaller step is an ordinary correction, and not worth a line."""
_READINGS: Final = 3
STEPS_MAX: Final = 1000
"""So many steps are told apart; of more, the oldest count as one."""


class StampClock:
    """A wall clock that notices when it is set.

    Records, entries of delayed messages and files carry times of the wall clock. What waits must not wait longer or
    shorter because somebody set that clock, so whoever compares such a time with `now_ms()` adds `set_since(place)`
    to it first: the sum of all steps since the log reached that place, exact to a millisecond.

    Keeps: a step is noted before any record is stamped with the time after it, because the store asks this clock for
    every stamp. A clock that was set while no broker ran cannot be told from time that passed.

    :param place: where the next record will stand in the log.
    """

    def __init__(self, runtime: Runtime, place: Callable[[], int]) -> None:
        self._wall_ms = runtime.now_ms
        self.steady_ms = runtime.steady_ms
        self._place = place
        self._ahead_ms = self._wall_ms() - self.steady_ms()
        self._compared_ms = 0
        """What the wall clock said when the two were compared last."""
        self._places: list[int] = []
        """Where the log ended at each step, ascending."""
        self._aheads_ms = [round(self._ahead_ms)]
        """By how much the wall clock was ahead of the steady one before each of these steps, and is now."""

    def now_ms(self) -> int:
        """Wall time, ms since the epoch. A step since the last call is noted."""
        now_ms = self._wall_ms()
        if (
            0 <= now_ms - self._compared_ms <= 1
        ):  # nothing to be seen yet: under load most calls are such
            return now_ms
        self._compared_ms = now_ms
        ahead_ms = now_ms - self.steady_ms()
        if -_NOTICED_MS < ahead_ms - self._ahead_ms < _NOTICED_MS:
            return now_ms
        return self._after_a_step(now_ms, ahead_ms)

    def _after_a_step(self, now_ms: int, ahead_ms: float) -> int:
        """The clock was set, or this process was interrupted between two readings: only a step is there twice."""
        for _ in range(_READINGS):
            now_ms, before_ms = self._wall_ms(), ahead_ms
            ahead_ms = now_ms - self.steady_ms()
            if abs(ahead_ms - before_ms) < _NOTICED_MS:
                break
        if abs(ahead_ms - self._ahead_ms) >= _NOTICED_MS:
            self._note(ahead_ms)
        return now_ms

    def _note(self, ahead_ms: float) -> None:
        place, step_ms = self._place(), ahead_ms - self._ahead_ms
        self._ahead_ms = ahead_ms
        if self._places and self._places[-1] == place:
            self._aheads_ms[-1] = round(ahead_ms)
        else:
            self._places.append(place)
            self._aheads_ms.append(round(ahead_ms))
        if len(self._places) > STEPS_MAX:
            del self._places[0], self._aheads_ms[1]
        if abs(step_ms) >= _TOLD_MS:
            text = "the wall clock was set: step_s=%+.3f log_end=%d; what waits is due as if it had not been"
            log.warning(text, step_ms / 1000, place)

    def set_since(self, place: int) -> int:
        """By how many ms the clock was set ahead, in all, since the record at this physical offset was stored."""
        return self._aheads_ms[-1] - self._aheads_ms[bisect_right(self._places, place)]

    def set_since_each(self, places: Ints) -> Ints:
        """The same for several records."""
        aheads = np.array(self._aheads_ms, np.int64)
        steps: Ints = aheads[-1] - aheads[np.searchsorted(self._places, places, "right")]
        return steps
