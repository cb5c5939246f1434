"""The background tasks of a client object: cancelled when it is closed, failures are logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from roquet.client._net.outages import level_of
from roquet.common.loop_time import now_s
from roquet.errors import RoquetError

log = logging.getLogger(__name__)


class Tasks:
    """A set of background tasks.

    Invariant: every task is running, or it has ended and its failure, if any, was logged.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background task ended: task=%r", task.get_name(), exc_info=task.exception())

    async def finish(self, within_s: float) -> None:
        """Wait `within_s` seconds for the tasks to end, then cancel the others."""
        if self._running:
            await asyncio.wait(self._running, timeout=within_s)
        await self.close()

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        await cancel(*self._running)


async def cancel(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def each_in_turn(*steps: Callable[[], Awaitable[object]]) -> None:
    """Await the steps in turn, each even if one before it failed or was cancelled.

    A close is made of such steps: it may be cancelled while one of them waits for a broker.
    """
    async with AsyncExitStack() as stack:
        for step in reversed(steps):
            stack.push_async_callback(step)


async def all_together(*works: Callable[[], Awaitable[object]]) -> None:
    """Await all at the same time, also if some fail; then raise the first failure.

    If the caller is cancelled, all of them are, and are waited for.
    """
    if len(works) == 1:
        # Not in a task: a task that is cancelled before it begins does nothing.
        await works[0]()
        return
    outcomes = await asyncio.gather(*(work() for work in works), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


async def every(period_s: float, work: Callable[[], Awaitable[object]], what: str) -> None:
    """Run `work` every `period_s` seconds, forever.

    A failure is logged as a warning, further ones in a row for debugging.

    :param what: the name of the work in the log.
    """
    works = True
    while True:
        await asyncio.sleep(period_s)
        works = await attempt(work(), what, logging.WARNING if works else logging.DEBUG)


async def attempt(work: Awaitable[object], what: str, level: int = logging.WARNING) -> bool:
    """Await `work`; return whether it succeeded. A failure is logged.

    :param what: the name of the work in the log.
    :param level: the log level of expected errors (`RoquetError`). That a server does not answer is
        logged for debugging, because `Outages` tells of it.
    """
    try:
        await work
    except RoquetError as error:
        log.log(level_of(error, level), "client task failed: task=%r error=%s", what, error)
    except Exception:
        log.exception("client task failed unexpectedly: task=%r", what)
    else:
        return True
    return False


def deadline_after(timeout_ms: float) -> float:
    """The time of the event loop in `timeout_ms` ms."""
    return now_s() + timeout_ms / 1000


async def pause(event: asyncio.Event, seconds: float) -> bool:
    """Wait until `event` is set, at most `seconds`; clear it and return whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
