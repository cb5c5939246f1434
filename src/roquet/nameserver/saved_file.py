"""A small file of a name server: replaced as a whole, off the loop, tried again while it cannot be written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from roquet.common.files import replace_with_backup
from roquet.common.runtime import Runtime

log = logging.getLogger(__name__)


class SavedFile:
    """Keeps: one write at a time; one serves all who ask before it begins, so no flood of changes queues up writes.

    :param content: says what the file shall hold; called by the loop, what it gives is called by the writing thread.
    """

    def __init__(
        self, path: Path, content: Callable[[], Callable[[], bytes]], runtime: Runtime
    ) -> None:
        self.path = path
        self._content = content
        self._runtime = runtime
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._is_failing = False

    def save(self) -> asyncio.Task[None]:
        """Have the file hold what `content` says now. The write goes on whoever waits for it; `retry` repeats one that
        ends by OSError, or by ValueError where what the file holds makes no sense.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._write(self._running))
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._next

    async def _write(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        self._running, self._next = self._next, None
        content = self._content()
        try:
            await self._runtime.blocking(lambda: replace_with_backup(self.path, content()))
        except (OSError, ValueError) as error:
            if not self._is_failing:
                log.error(
                    "file not written, it stays as it was and is tried again: path=%s error=%s",
                    self.path,
                    error,
                )
            self._is_failing = True
            raise
        if self._is_failing:
            log.warning("file written again: path=%s", self.path)
        self._is_failing = False

    def retry(self) -> None:
        """Write what could not be written before."""
        if self._is_failing:
            self.save()

    async def close(self) -> None:
        """Wait for what is being written."""
        while self._next is not None or (self._running is not None and not self._running.done()):
            await asyncio.wait([task for task in (self._running, self._next) if task is not None])
