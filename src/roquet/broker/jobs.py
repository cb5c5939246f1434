"""Work that a client asked for and that goes on when that client is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

log = logging.getLogger(__name__)


class Jobs:
    """Tools give up after some 5 s, a deletion on a slow drive takes longer: ended with its connection, it would begin
    anew at each try and never be done.

    Invariant: of one name at most one job runs; all who ask for it meanwhile wait for that one.
    """

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the job of that name, which is `work` unless it runs already.

        Whoever waits may be cancelled, the job goes on.

        :raises Exception: what the job raised; it is logged, too, since nobody may wait any more.
        """
        job = self._running.get(name)
        if job is None:
            job = self._running[name] = asyncio.get_running_loop().create_task(work())
            job.add_done_callback(partial(self._ended, name))
        await asyncio.shield(job)

    def _ended(self, name: str, job: asyncio.Task[None]) -> None:
        del self._running[name]
        if not job.cancelled() and (error := job.exception()) is not None:
            log.warning("%s failed: error=%s: ask for it again", name, error)

    async def close(self) -> None:
        """End what runs; what it has not done stays undone."""
        running = list(self._running.values())
        for job in running:
            job.cancel()
        await asyncio.gather(*running, return_exceptions=True)
