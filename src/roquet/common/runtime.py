"""What differs from run to run, handed to the servers: wall clock, randomness, blocking work."""

from __future__ import annotations

import asyncio
import errno
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

T = TypeVar("T")


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def steady_clock_ms() -> float:
    """Milliseconds since some moment before this process: nobody sets this clock, and it goes on while the host sleeps
    (where the system has such a clock; else it stands still meanwhile)."""
    return time.clock_gettime_ns(_STEADY_CLOCK) / 1_000_000


_STEADY_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True)
class Runtime:
    """The things a simulation replaces; everything else is decided by the inputs.

    `now_ms` is wall time: it goes into records and is shown, and anybody may set it at any time. How long something
    took or has waited goes by the event loop's clock or, where that is too coarse, by `steady_ms` (decision 0027).
    """

    now_ms: Callable[[], int] = wall_clock_ms
    random: random.Random = field(default_factory=random.Random)
    steady_ms: Callable[[], float] = steady_clock_ms

    async def blocking(self, work: Callable[[], T]) -> T:
        """Run work that may block (fsync, directory walks) without holding up the loop.

        Cancelling it does not end the work: it waits until that is over, since whoever cancels is about to close what
        the work uses.

        :raises OSError: the machine gives no thread for it now; whatever `work` raises.
        """
        waiting = [work]
        try:
            running = asyncio.get_running_loop().run_in_executor(None, lambda: waiting.pop()())
        except RuntimeError as error:
            waiting.clear()  # the executor keeps what it found no thread for
            raise OSError(errno.EAGAIN, str(error)) from error
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await _end_of(running)
            raise


async def _end_of(running: asyncio.Future[T]) -> None:
    """Wait for it, however often that is cancelled; what it comes to is nobody's any more."""
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((running,))
    if not running.cancelled():
        running.exception()
