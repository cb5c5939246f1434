"""The wall clock that stamps records and remembers when it was set, and by how much."""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import Final, Protocol

import numpy as np

from roquet.common.runtime import Runtime
from roquet.protocol.records.columns import Ints

log = logging.getLogger(__name__)

_NOTICED_MS: Final = 2
"""Smaller differences between the two clocks come from the time between the two readings."""
_LOGGED_MS: Final = 1000
"""Smaller steps are ordinary corrections and are not logged."""
_READINGS: Final = 3
"""At most this many more readings decide whether a difference is a step."""
STEPS_MAX: Final = 1000
"""Steps that are kept; beyond, the oldest ones are merged."""


class LogEnd(Protocol):
    @property
    def end(self) -> int:
        """The physical offset of the next record."""
        ...


class StampClock:
    """A wall clock that notices when it is set.

    Records, entries of delayed messages and files have wall-clock times. Delays must not become
    longer or shorter when an operator or NTP sets that clock. So a caller that compares such a time
    with `now_ms()` first adds `set_since(place)`: the sum of all steps since the log reached that
    physical offset, exact to a millisecond.

    Invariant: a step is noticed before a record is stamped with a time after it, because the store
    asks this clock for every stamp. Steps while no broker ran cannot be told from time that passed.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._wall_ms = runtime.now_ms
        self.steady_ms = runtime.steady_ms
        self._log: LogEnd | None = None
        self._ahead_ms = self._wall_ms() - self.steady_ms()
        self._compared_ms = 0
        """The wall-clock time when the two clocks were last compared."""
        self._places: list[int] = []
        """The physical offset of the log's end at each step, ascending."""
        self._aheads_ms = [round(self._ahead_ms)]
        """How many ms the wall clock was ahead of the steady clock before each step, and is now."""

    def follow(self, log: LogEnd) -> None:
        """Note steps at the end of this log from now on.

        A second call after the constructor, because the store that has the log needs this clock.
        """
        self._log = log

    def let_pass(self, ms: int) -> None:
        """Let this much time pass at once, by both clocks: a test does not wait for delays."""
        wall_ms, steady_ms = self._wall_ms, self.steady_ms
        self._wall_ms = lambda: wall_ms() + ms
        self.steady_ms = lambda: steady_ms() + ms

    def now_ms(self) -> int:
        """The wall clock, ms since the epoch; notices a step since the last call."""
        now_ms = self._wall_ms()
        # No step can be noticed within a millisecond; under load most calls end here.
        if 0 <= now_ms - self._compared_ms <= 1:
            return now_ms
        self._compared_ms = now_ms
        ahead_ms = now_ms - self.steady_ms()
        if -_NOTICED_MS < ahead_ms - self._ahead_ms < _NOTICED_MS:
            return now_ms
        return self._after_a_step(now_ms, ahead_ms)

    def _after_a_step(self, now_ms: int, ahead_ms: float) -> int:
        """Decide whether the clock was set, by reading both clocks again.

        If the process was interrupted between two readings, the next readings differ again; a step
        stays.
        """
        for _ in range(_READINGS):
            now_ms = self._wall_ms()
            before_ms = ahead_ms
            ahead_ms = now_ms - self.steady_ms()
            if abs(ahead_ms - before_ms) < _NOTICED_MS:
                break
        if abs(ahead_ms - self._ahead_ms) >= _NOTICED_MS:
            self._note(ahead_ms)
        return now_ms

    def _note(self, ahead_ms: float) -> None:
        place = 0 if self._log is None else self._log.end
        step_ms = ahead_ms - self._ahead_ms
        self._ahead_ms = ahead_ms
        if self._places and self._places[-1] == place:
            self._aheads_ms[-1] = round(ahead_ms)
        else:
            self._places.append(place)
            self._aheads_ms.append(round(ahead_ms))
        if len(self._places) > STEPS_MAX:
            del self._places[0], self._aheads_ms[1]
        if abs(step_ms) >= _LOGGED_MS:
            log.warning(
                "the wall clock was set, delays stay as long as they were: step_s=%+.3f log_end=%d",
                step_ms / 1000,
                place,
            )

    def set_since(self, place: int) -> int:
        """By how many ms in all the clock was set ahead since this physical offset was written."""
        return self._aheads_ms[-1] - self._aheads_ms[bisect_right(self._places, place)]

    def set_since_each(self, places: Ints) -> Ints:
        """`set_since` for several physical offsets."""
        aheads = np.array(self._aheads_ms, np.int64)
        steps: Ints = aheads[-1] - aheads[np.searchsorted(self._places, places, "right")]
        return steps
