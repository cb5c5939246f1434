"""The files of a store that wait for their deletion; a deletion that fails is retried."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from pathlib import Path
from typing import Final

from roquet.common.loop_time import now_s
from roquet.common.runtime import Runtime
from roquet.storage.files.deletion import Deletion

log = logging.getLogger(__name__)

PAUSE_S_MAX: Final = 600.0


class _Row:
    """Files that are deleted in this order, so that no gap arises between the files that are left.

    Invariant: `tried_at_s` is when the first file may be tried next (event loop clock).
    """

    __slots__ = ("deletions", "failures", "pause_s", "tried_at_s")

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.deletions: deque[Deletion] = deque()
        self.failures = 0
        self.tried_at_s = 0.0

    def failed(self, retry_s: float, now_s: float) -> None:
        """Try again after a pause that doubles with each failure."""
        self.tried_at_s = now_s + min(retry_s * 2**self.failures, PAUSE_S_MAX)
        self.failures = min(self.failures + 1, 30)

    def succeeded(self) -> bool:
        """Forget the failures. Returns whether there were any."""
        had_failed = self.failures > 0
        self.failures = 0
        return had_failed


class FileDeletions:
    """Files of a store that wait for their deletion, in rows.

    A file that cannot be deleted holds up the files after it in its row, but no other row. Failures
    are logged when the first row begins to fail and when no row fails any more.

    Invariant: a file is deleted after the files that were added to its row before it.

    :param retry_s: the pause before the first retry; it doubles with each failure, up to
        `PAUSE_S_MAX`.
    """

    def __init__(self, runtime: Runtime, retry_s: float) -> None:
        self._runtime = runtime
        self._retry_s = retry_s
        self._rows: dict[Path, _Row] = {}

    def __len__(self) -> int:
        return sum(len(row.deletions) for row in self._rows.values())

    def add(self, name: Path, deletion: Deletion, pause_s: float) -> None:
        """Append a file to the row of this name.

        :param pause_s: the pause after each deletion in the row, which leaves the drive to sends
            and pulls.
        """
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = _Row(pause_s)
        row.deletions.append(deletion)

    async def run(self) -> None:
        """Delete all files that can be deleted now."""
        for name, row in list(self._rows.items()):
            if now_s() >= row.tried_at_s:
                await self._delete(row)
            if not row.deletions:
                del self._rows[name]

    async def _delete(self, row: _Row) -> None:
        while row.deletions:
            deletion = row.deletions[0]
            try:
                await self._runtime.blocking(deletion)
            except OSError as error:
                self._failed(row, deletion, error)
                return
            row.deletions.popleft()
            if row.succeeded() and not self._is_failing:
                log.info("expired files can be deleted again")
            await asyncio.sleep(row.pause_s)

    @property
    def _is_failing(self) -> bool:
        return any(row.failures for row in self._rows.values())

    def _failed(self, row: _Row, deletion: Deletion, error: OSError) -> None:
        if not self._is_failing:
            log.error(
                "expired file cannot be deleted, will be retried, the files after it wait;"
                " make it deletable or delete it: path=%s error=%s",
                deletion.path,
                error,
            )
        row.failed(self._retry_s, now_s())
