"""A small file of a name server: replaced as a whole by a thread, retried if writing fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from roquet.common.files import WriteLog, replace_with_backup
from roquet.common.runtime import Runtime

log = logging.getLogger(__name__)


class SavedFile:
    """A file that is written in the background.

    Invariant: at most one write runs and one waits. The waiting write serves all calls of `save`
    until it starts, so that many changes do not queue up as many writes.

    :param content: called on the event loop when a write starts; the function that it returns makes
        the bytes, in the writing thread.
    """

    def __init__(
        self, path: Path, content: Callable[[], Callable[[], bytes]], runtime: Runtime
    ) -> None:
        self.path = path
        self._content = content
        self._runtime = runtime
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._write_log = WriteLog(log, path)

    def save(self) -> asyncio.Task[None]:
        """Write the present content, in a task that runs on even if its caller is cancelled.

        The task raises OSError, or ValueError if the content cannot be made from the file's old
        one. `retry` repeats a write that failed.
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
        with self._write_log.watching():
            await self._runtime.blocking(lambda: replace_with_backup(self.path, content()))

    def retry(self) -> None:
        """Write again, if the last write failed."""
        if self._write_log.is_failing:
            self.save()

    async def close(self) -> None:
        """Wait for the writes that run or wait."""
        while self._next is not None or (self._running is not None and not self._running.done()):
            await asyncio.wait([task for task in (self._running, self._next) if task is not None])
