"""The servers' access to clocks, randomness and threads, which a simulation replaces."""

from __future__ import annotations

import asyncio
import errno
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def steady_clock_ms() -> float:
    """Milliseconds since some time before this process started; no one can set this clock.

    It goes on while the host is suspended, if the system has such a clock: CLOCK_BOOTTIME of Linux,
    and the only one of macOS and of Windows.
    """
    return _steady_ns() / 1_000_000


if sys.platform == "linux":
    _steady_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
else:
    _steady_ns = time.monotonic_ns


@dataclass(frozen=True)
class Runtime:
    """Clocks, randomness and threads of a server, which a simulation replaces.

    All other behaviour is determined by the inputs.

    `now_ms` is the wall clock, for records and output; an operator may set it at any time.
    Durations are measured with the event loop's clock, which may stand still while the host is
    suspended, or with `steady_ms` (decision 0027).
    """

    now_ms: Callable[[], int] = wall_clock_ms
    random: random.Random = field(default_factory=random.Random)
    steady_ms: Callable[[], float] = steady_clock_ms

    async def blocking(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread: it may block (fsync, directory walks).

        Cancelling does not end the work. The cancelled task first waits until the work is over,
        since its caller is about to close what the work uses.

        :raises OSError: the system has no thread for it now. Errors of `work` are raised, too.
        """
        waiting = [work]
        try:
            running = asyncio.get_running_loop().run_in_executor(None, lambda: waiting.pop()())
        except RuntimeError as error:
            waiting.clear()  # the executor has queued it and would run it later
            raise OSError(errno.EAGAIN, str(error)) from error
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await _end_of(running)
            raise


async def _end_of(running: asyncio.Future[T]) -> None:
    """Wait until `running` is done, however often the wait is cancelled; its result is dropped."""
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((running,))
    if not running.cancelled():
        running.exception()
