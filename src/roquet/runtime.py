"""What differs from run to run, handed to the servers: wall clock, randomness, blocking work."""

from __future__ import annotations

import asyncio
import errno
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Runtime:
    """The three things a simulation replaces; everything else is decided by the inputs.

    `now_ms` is wall time (it goes into records), the event loop's clock serves for waiting.
    """

    now_ms: Callable[[], int] = wall_clock_ms
    random: random.Random = field(default_factory=random.Random)

    async def blocking(self, work: Callable[[], T]) -> T:
        """Run work that may block (fsync, directory walks) without holding up the loop.

        :raises OSError: the machine gives no thread for it now; whatever `work` raises.
        """
        waiting = [work]
        try:
            running = asyncio.get_running_loop().run_in_executor(None, lambda: waiting.pop()())
        except RuntimeError as error:
            waiting.clear()  # the executor keeps what it found no thread for
            raise OSError(errno.EAGAIN, str(error)) from error
        return await running
