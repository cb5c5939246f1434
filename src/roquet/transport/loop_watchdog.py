"""How long the event loop was held up, and by what: whoever holds it holds up every client."""

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
"""How often a timer looks whether it is late."""
_MINUTE_S: Final = 60.0
_STEPS_MS: Final = (
    1,
    2,
    3,
    5,
    7,
    10,
    15,
    20,
    30,
    50,
    70,
    100,
    150,
    200,
    300,
    500,
    700,
    1000,
    2000,
    5000,
    10_000,
)
"""Upper bounds of what delays are sorted into; the last is open."""
_NAMED: Final = 5
"""Request codes that a line names, the most frequent ones."""
_DECODED: Final = 64


class LoopWatchdog:
    """Keeps: every batch of requests that took `warning_ms` is counted once, and told of at most once a minute.

    A batch is what one read brought, or a part of that; nothing is measured per request. What else holds the loop (work
    that is due again and again, the collector of garbage, another process) makes a timer late, and is told of without
    a name.

    :param warning_ms: 0: nothing is told of, and only the timer's delays are counted.
    """

    def __init__(self, warning_ms: int) -> None:
        self._warning_ms = warning_ms
        self.notable_s = warning_ms / 1000 if warning_ms else float("inf")
        """A batch that takes so long is told of."""
        self._limited_log = LimitedLog(log)
        self._told_s = 0.0
        """Of the time since the timer was set, what batches took that were told of."""
        self.count = 0
        """Delays of `warning_ms` and more."""
        self.max_ms = 0
        self._delays = [0] * (len(_STEPS_MS) + 1)
        self._last_minute = list(self._delays)
        self._minute_ends_s = 0.0

    def held(self, seconds: float, peer: str, frames: Iterable[bytes], now: float) -> None:
        """A batch of requests from `peer` took so long.

        :param now: the event loop's clock in seconds.
        """
        self._told_s += seconds
        self._note(int(seconds * 1000))
        message = "event loop held up: ms=%d peer=%s requests=%s"
        self._limited_log.warning(
            "requests", now, message, seconds * 1000, peer, _described(frames)
        )

    async def run(self) -> None:
        """Look whether a timer is late, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PERIOD_S
            self._told_s = 0.0
            await asyncio.sleep(PERIOD_S)
            self.look(loop.time() - due, loop.time())

    def look(self, late_s: float, now: float) -> None:
        """A timer was late by so much."""
        if now >= self._minute_ends_s:
            self._last_minute, self._delays = self._delays, [0] * len(self._delays)
            self._minute_ends_s = now + _MINUTE_S
        late_ms = max(0, int(late_s * 1000))
        self._delays[bisect_left(_STEPS_MS, late_ms)] += 1
        if late_s - self._told_s < self.notable_s:
            self.max_ms = max(self.max_ms, late_ms)
            return
        self._note(late_ms)
        message = "event loop held up: ms=%d by no request: periodic work, or the machine is busy elsewhere"
        self._limited_log.warning("timer", now, message, late_ms)

    def _note(self, ms: int) -> None:
        self.count += 1
        self.max_ms = max(self.max_ms, ms)

    def figures(self) -> dict[str, str]:
        """What tools show of it; the percentiles are of the last whole minute."""
        return {
            "loopDelayMaxMs": str(self.max_ms),
            "loopDelay50Ms": str(self._within(0.5)),
            "loopDelay99Ms": str(self._within(0.99)),
            "loopDelayTimes": str(self.count),
            "loopDelayWarningMs": str(self._warning_ms),
        }

    def _within(self, share: float) -> int:
        """The delay that this share of the looks did not exceed; of the longest ones the longest since the start."""
        wanted, so_far = share * sum(self._last_minute), 0
        for step, count in zip(_STEPS_MS, self._last_minute, strict=False):
            so_far += count
            if so_far >= wanted:
                return step if wanted else 0
        return self.max_ms


def _described(frames: Iterable[bytes]) -> str:
    """How many requests of which codes: `3xHEART_BEAT...`; looked at only when it is told."""
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
