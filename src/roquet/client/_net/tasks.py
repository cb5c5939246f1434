"""The tasks that a client object owns: none is left when it is closed, no failure goes unseen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from roquet.errors import RoquetError

log = logging.getLogger(__name__)


class Tasks:
    """Keeps: every task started here is either running, or ended and, if it failed, logged."""

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
            log.error("task %s failed", task.get_name(), exc_info=task.exception())

    async def finish(self, within_s: float) -> None:
        """Let all end by themselves for so long, then cancel what has not."""
        if self._running:
            await asyncio.wait(self._running, timeout=within_s)
        await self.close()

    async def close(self) -> None:
        """Cancel all and wait until they are gone."""
        await cancel(*self._running)


async def cancel(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks and wait until they are gone."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def every(period_s: float, work: Callable[[], Awaitable[object]], what: str) -> None:
    """Do `work` each `period_s` seconds, for ever; what goes wrong is tried again next time, and logged once until it
    works again."""
    works = True
    while True:
        await asyncio.sleep(period_s)
        works = await attempt(work, what, logging.WARNING if works else logging.DEBUG)


async def attempt(
    work: Callable[[], Awaitable[object]], what: str, level: int = logging.WARNING
) -> bool:
    """Whether `work` succeeded; what went wrong is logged."""
    try:
        await work()
    except RoquetError as error:
        log.log(level, "%s: %s", what, error)
    except Exception:
        log.exception("%s failed", what)
    else:
        return True
    return False


async def pause(event: asyncio.Event, seconds: float) -> bool:
    """Wait until `event` is set, at most `seconds`; whether it was. It is cleared then."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
