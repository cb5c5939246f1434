"""Jobs: work that a client asked for and that goes on after the client disconnected."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from roquet.errors import Refused
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection

log = logging.getLogger(__name__)

JOBS_MAX: Final = 1000
"""A job has some KB and outlives its connection, whose limits then no longer count it. Without this
limit, a client that asks for deletions and disconnects, again and again, would fill the memory
during one slow checkpoint."""


class Jobs:
    """Runs jobs by name, independent of the connections that asked for them.

    Admin tools give up after some 5 s, but a deletion on a slow drive takes longer. If it ended
    with its connection, each try would begin again and none would finish.

    Invariant: at most one job of a name runs; all callers that ask for it wait for the same one.
    """

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}
        self._waiting: Counter[str] = Counter()
        """How many callers wait for each job."""

    def answer_after(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        request: Command,
        connection: Connection,
    ) -> None:
        """Answer SUCCESS when the job with this name is done (`run`), or with its error."""
        connection.later.answer(request, self._done(name, work, request))

    async def _done(
        self, name: str, work: Callable[[], Coroutine[Any, Any, None]], request: Command
    ) -> Command:
        await self.run(name, work)
        return request.answer(ResponseCode.SUCCESS)

    async def run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the job with this name; start `work` as that job if none runs.

        If the caller is cancelled, the job goes on.

        :raises Refused: too many jobs are running.
        :raises Exception: what the job raised. It is logged if no caller waits any more.
        """
        job = self._running.get(name)
        if job is None:
            if len(self._running) >= JOBS_MAX:
                raise Refused(
                    ResponseCode.SYSTEM_BUSY,
                    f"[OVERLOAD]{JOBS_MAX} deletions are running: try again later",
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
            log.warning("job failed, ask for it again: job=%s error=%s", name, error)

    async def close(self) -> None:
        """Cancel all running jobs and wait for their end."""
        running = list(self._running.values())
        for job in running:
            job.cancel()
        await asyncio.gather(*running, return_exceptions=True)
