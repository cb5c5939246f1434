"""Measures how long the event loop was held up, and by what: meanwhile no client is served."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Final

from roquet.common.limited_log import LimitedLog
from roquet.errors import PeerError
from roquet.protocol.remoting.command import decode

log = logging.getLogger(__name__)

PERIOD_S: Final = 0.25
"""Period of the timer whose lateness is measured."""
_MINUTE_S: Final = 60.0
# fmt: off
_STEPS_MS: Final = (
    1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000, 5000, 10_000,
)
# fmt: on
"""Upper bounds of the histogram's buckets; a last bucket takes longer delays."""
_NAMED: Final = 5
"""Request codes named in a log line, the most frequent ones."""
_DECODED: Final = 64
"""Frames decoded for a log line; more would themselves hold up the loop."""


class LoopWatchdog:
    """Counts and logs delays of the event loop.

    A batch is all requests of one read, or a part of them; single requests are not measured. What
    else holds the loop (periodic work, garbage collection, another process) makes a timer late. It
    is logged without a cause.

    Invariant: every batch that took `warning_ms` is counted once. It is logged at most once a
    minute.

    :param warning_ms: batches and delays from here on are counted and logged; 0: nothing is logged,
        and only the timer's delays are counted.
    """

    def __init__(self, warning_ms: int) -> None:
        self._warning_ms = warning_ms
        self.notable_s = warning_ms / 1000 if warning_ms else float("inf")
        """Seconds from which on a batch is reported to `held`."""
        self._limited_log = LimitedLog(log)
        self._reported_s = 0.0
        """Seconds of reported batches since the timer was set: not counted again as its delay."""
        self.count = 0
        """Delays of `warning_ms` and more."""
        self.max_ms = 0
        self._delays = [0] * (len(_STEPS_MS) + 1)
        self._last_minute = list(self._delays)
        self._minute_ends_s = 0.0

    def held(self, seconds: float, peer: str, frames: Iterable[bytes]) -> None:
        """Count and log a batch of requests of `peer` that held the loop for `seconds`."""
        self._reported_s += seconds
        self._note(int(seconds * 1000))
        message = "event loop held up: ms=%d peer=%s requests=%s"
        self._limited_log.warning("requests", message, seconds * 1000, peer, _described(frames))

    async def run(self) -> None:
        """Measure how late a timer is, every `PERIOD_S`, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PERIOD_S
            self._reported_s = 0.0
            await asyncio.sleep(PERIOD_S)
            self.look(loop.time() - due, loop.time())

    def look(self, late_s: float, now: float) -> None:
        """Count the timer's delay, and log it unless reported batches explain it."""
        if now >= self._minute_ends_s:
            self._last_minute, self._delays = self._delays, [0] * len(self._delays)
            self._minute_ends_s = now + _MINUTE_S
        late_ms = max(0, int(late_s * 1000))
        self._delays[bisect_left(_STEPS_MS, late_ms)] += 1
        if late_s - self._reported_s < self.notable_s:
            self.max_ms = max(self.max_ms, late_ms)
            return
        self._note(late_ms)
        message = "event loop held up: ms=%d requests=none (periodic work, or a busy machine)"
        self._limited_log.warning("timer", message, late_ms)

    def _note(self, ms: int) -> None:
        self.count += 1
        self.max_ms = max(self.max_ms, ms)

    def figures(self) -> dict[str, str]:
        """The figures for admin tools; the percentiles are of the last whole minute."""
        return {
            "loopDelayMaxMs": str(self.max_ms),
            "loopDelay50Ms": str(self._within(0.5)),
            "loopDelay99Ms": str(self._within(0.99)),
            "loopDelayTimes": str(self.count),
            "loopDelayWarningMs": str(self._warning_ms),
        }

    def _within(self, share: float) -> int:
        """The delay in ms that this share (0 to 1) of the measurements did not exceed.

        In the last bucket it is the longest delay since the start.
        """
        wanted = share * sum(self._last_minute)
        so_far = 0
        for step, count in zip(_STEPS_MS, self._last_minute, strict=False):
            so_far += count
            if so_far >= wanted:
                return step if wanted else 0
        return self.max_ms


def _described(frames: Iterable[bytes]) -> str:
    """The number of requests by code for a log line, such as `3x34,1x310`."""
    codes: Counter[str] = Counter()
    for number, frame in enumerate(frames):
        if number == _DECODED:
            codes["more"] = 1
            break
        try:
            codes[str(decode(frame).code)] += 1
        except PeerError:
            codes["none"] += 1
    return ",".join(f"{count}x{code}" for code, count in codes.most_common(_NAMED))
