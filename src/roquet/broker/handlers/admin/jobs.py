"""Work that a client asked for and that goes on when that client is gone."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from roquet.errors import Refused
from roquet.protocol.remoting.codes import ResponseCode

log = logging.getLogger(__name__)

JOBS_MAX: Final = 1000
"""A job has some KB and outlives its connection, whose limits count it no more: a client that asks for deletions and
leaves, again and again, would fill the memory during one slow checkpoint."""


class Jobs:
    """Tools give up after some 5 s, a deletion on a slow drive takes longer: ended with its connection, it would begin
    anew at each try and never be done.

    Invariant: of one name at most one job runs; all who ask for it meanwhile wait for that one.
    """

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}
        self._waiting: Counter[str] = Counter()

    async def run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the job of that name, which is `work` unless it runs already.

        Whoever waits may be cancelled, the job goes on.

        :raises Refused: too many jobs run already.
        :raises Exception: what the job raised; it is logged where nobody waits any more.
        """
        job = self._running.get(name)
        if job is None:
            if len(self._running) >= JOBS_MAX:
                raise Refused(
                    ResponseCode.SYSTEM_BUSY,
                    f"[OVERLOAD]{JOBS_MAX} deletions are under way: ask again later",
                )
            job = self._running[name] = asyncio.get_running_loop().create_task(work())
            job.add_done_callback(partial(self._ended, name))
        self._waiting[name] += 1
        try:
            await asyncio.shield(job)
        finally:
            self._waiting[name] -= 1
            if not self._waiting[name]:
                del self._waiting[name]

    def _ended(self, name: str, job: asyncio.Task[None]) -> None:
        del self._running[name]
        error = None if job.cancelled() else job.exception()
        if error is not None and not self._waiting[name]:
            log.warning("%s failed: error=%s: ask for it again", name, error)

    async def close(self) -> None:
        """End what runs; what it has not done stays undone."""
        running = list(self._running.values())
        for job in running:
            job.cancel()
        await asyncio.gather(*running, return_exceptions=True)
