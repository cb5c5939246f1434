"""A small file that is replaced as a whole by a thread, and again if writing failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from roquet.common.failure_streak import FailureStreak
from roquet.common.files import replace_with_backup
from roquet.common.runtime import Runtime

log = logging.getLogger(__name__)


class SavedFile:
    """A file that is written in the background.

    Invariant: at most one write runs and one waits. The waiting write serves all calls of `save`
    until it starts, so that many changes do not queue up as many writes.

    :param content: called on the event loop when a write starts; the function that it returns makes
        the bytes, in the writing thread.
    :param replace: replaces the content of the file, in the writing thread.
    """

    def __init__(
        self,
        path: Path,
        content: Callable[[], Callable[[], bytes]],
        runtime: Runtime,
        replace: Callable[[Path, bytes], None] = replace_with_backup,
    ) -> None:
        self.path = path
        self._content = content
        self._runtime = runtime
        self._replace = replace
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._streak = FailureStreak()

    def save(self) -> asyncio.Task[None]:
        """Write the present content, in a task that runs on even if its caller is cancelled.

        The task raises OSError, or ValueError if the content cannot be made from the file's old
        one. `retry` repeats a write that failed.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._write(self._running))
            self._next.add_done_callback(self._ended)
        return self._next

    async def _write(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        self._running, self._next = self._next, None
        try:
            content = self._content()
            await self._runtime.blocking(lambda: self._replace(self.path, content()))
        except (OSError, ValueError) as error:
            if self._streak.failed():
                log.error(
                    "file not written, it stays as it was and is tried again: path=%s error=%s",
                    self.path,
                    error,
                )
            raise
        if self._streak.ended():
            log.warning("file written again: path=%s", self.path)

    def _ended(self, write: asyncio.Task[None]) -> None:
        """Log what is no failed write, but a fault of the program: perhaps nobody awaits it."""
        error = None if write.cancelled() else write.exception()
        if error is not None and not isinstance(error, OSError | ValueError):
            log.error("file not written: path=%s", self.path, exc_info=error)

    def retry(self) -> None:
        """Write again, if the last write failed."""
        if self._streak.is_on:
            self.save()

    async def close(self) -> None:
        """Wait for the writes that run or wait."""
        while self._next is not None or (self._running is not None and not self._running.done()):
            await asyncio.wait([task for task in (self._running, self._next) if task is not None])
