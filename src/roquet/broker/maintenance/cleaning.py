"""Deletes expired files of the store, and refuses messages while the drive is full.

See docs/storage/retention.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Final

from roquet.broker.config.store import StoreSettings
from roquet.broker.delay.stamp_clock import StampClock
from roquet.broker.delivery.write_gate import WriteGate
from roquet.broker.maintenance.file_deletions import FileDeletions
from roquet.common.failure_streak import FailureStreak
from roquet.common.runtime import Runtime
from roquet.storage.retention import PASSES_WHEN_ASKED, Usage
from roquet.storage.store import Store
from roquet.transport.slices import Slices

log = logging.getLogger(__name__)

FIRST_CHECK_S: Final = 1.0
FIRST_PASS_S: Final = 60.0
LOG: Final = Path("commitlog")
"""The name of the row of log segments in `FileDeletions`; one row for all log folders."""
_HOUR_MS: Final = 3_600_000


class Cleaning:
    """The loops that apply the retention rules and watch how full the drive is.

    Invariant: messages are refused while the drive was too full at the last check.

    :param log_files_dropped: called when segments of the log have been dropped.
    :param slices: runs the pass over all queues.
    """

    def __init__(
        self,
        store: Store,
        write_gate: WriteGate,
        settings: StoreSettings,
        runtime: Runtime,
        clock: StampClock,
        log_files_dropped: Callable[[], None],
        slices: Slices,
    ) -> None:
        self._store = store
        self._write_gate = write_gate
        self._rules = settings.retention
        self._runtime = runtime
        self._clock = clock
        self._log_end_at_start = 0
        """The end of the log when this broker started."""
        self._uncounted_ms = 0
        """Time before the start that does not count for the age of the files that were there."""
        self._log_files_dropped = log_files_dropped
        self._slices = slices
        self._period_s = settings.clean_resource_interval / 1000
        self._log_pause_s = settings.delete_commit_log_files_interval / 1000
        self._queue_pause_s = settings.delete_consume_queue_files_interval / 1000
        self._asked_passes = 0
        self._deletions = FileDeletions(runtime, self._period_s)

    def ask(self) -> None:
        """Delete expired files at any hour in the next passes (DELETE_EXPIRED_COMMITLOG)."""
        self._asked_passes = PASSES_WHEN_ASKED

    async def watch(self) -> None:
        """Check how full the drive is each period, until cancelled."""
        check = _RetriedTask("disk usage check", self.check_drive)
        await asyncio.sleep(FIRST_CHECK_S)
        while True:
            await check()
            await asyncio.sleep(self._period_s)

    def _discount_gap(self) -> None:
        """Limit how much files age between the newest record and this start.

        A long gap may mean that the broker was down for days, or that the wall clock is ahead.
        Files that are kept too long can be deleted later, so at most half of the retention time
        counts for the gap.
        """
        gap_ms = self._clock.now_ms() - self._store.newest_ms
        counted_ms = self._rules.kept_ms // 2
        if not self._store.newest_ms or gap_ms <= counted_ms:
            return
        self._log_end_at_start = self._store.log.end
        self._uncounted_ms = gap_ms - counted_ms
        if gap_ms > self._rules.kept_ms:
            log.warning(
                "old files are kept longer than fileReservedTime, the broker was down or its clock"
                " is ahead: gap_h=%.1f gap_counted_h=%.1f",
                gap_ms / _HOUR_MS,
                counted_ms / _HOUR_MS,
            )

    async def run(self) -> None:
        """Find and delete expired files each period, until cancelled."""
        clean = _RetriedTask("search for expired files", self.clean)
        delete = _RetriedTask("deletion of expired files", self._deletions.run)
        self._discount_gap()
        await asyncio.sleep(FIRST_PASS_S)
        while True:
            await clean()
            await delete()
            await asyncio.sleep(self._period_s)

    async def check_drive(self) -> Usage:
        """Check how full the drive is, and accept or refuse messages from now on."""
        usage = await self._runtime.blocking(self._store.old_files.usage)
        if self._store.failure is not None:
            return usage
        limit = self._rules.full_above
        was_full = bool(self._write_gate.why_closed)
        is_full = usage.worst > limit
        if is_full:
            self._write_gate.close(f"more than {limit:.0%} of the store's drive is used ({usage})")
        else:
            self._write_gate.open()
        if is_full and not was_full:
            log.warning("drive full, messages are refused: limit=%.2f usage=%s", limit, usage)
        if was_full and not is_full:
            log.warning("messages are accepted again: limit=%.2f usage=%s", limit, usage)
        return usage

    async def clean(self) -> None:
        """Drop expired segments of the log, and the queue and index files that only point there."""
        usage = await self.check_drive()
        if self._store.failure is not None:
            return
        await self._runtime.blocking(self._store.log.look_for_names)
        asked, self._asked_passes = self._asked_passes > 0, max(0, self._asked_passes - 1)
        writes = await self._runtime.blocking(self._store.old_files.last_writes)
        now_ms = self._clock.now_ms()
        hour = datetime.fromtimestamp(now_ms / 1000).hour  # noqa: DTZ006
        # the system may write back a page of an older file later, with a time of the changed clock
        modified_ms = list(accumulate((self._modified_ms(*each) for each in writes), max))
        count = self._rules.files_to_go(modified_ms, now_ms, hour, usage.worst, asked=asked)
        if not count and not self._store.old_files.has_untrimmed:
            return
        expired = await self._slices.run(self._store.old_files.forget_oldest(count))
        if expired.log:
            log.info(
                "expired commit log files will be deleted: files=%d new_log_start=%d",
                len(expired.log),
                self._store.log.start,
            )
            self._log_files_dropped()
        for deletion in expired.log:
            self._deletions.add(LOG, deletion, self._log_pause_s)
        for deletion in expired.queues:
            self._deletions.add(deletion.path.parent, deletion, self._queue_pause_s)
        for deletion in expired.index:
            self._deletions.add(deletion.path.parent, deletion, 0)

    def _modified_ms(self, end: int, modified_ms: int) -> int:
        """The last write of a file, corrected for clock changes and the gap of `_discount_gap`.

        :param end: the physical offset at which the file ends.
        """
        return (
            modified_ms
            + self._clock.set_since(end - 1)
            + (self._uncounted_ms if end <= self._log_end_at_start else 0)
        )


class _RetriedTask:
    """A task that is repeated each period, even if it fails.

    It logs when it begins to fail, when the error changes, and when it works again, not each
    failure: on a failing drive it runs every ten seconds, for days.
    """

    def __init__(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        self._name = name
        self._work = work
        self._streak = FailureStreak()

    async def __call__(self) -> None:
        try:
            await self._work()
        except Exception as error:
            self._failed(error)
        else:
            if self._streak.ended():
                log.info("maintenance task works again: task=%r", self._name)

    def _failed(self, error: Exception) -> None:
        kind = type(error).__name__
        if isinstance(error, OSError):
            kind += f" {error.errno}"
        if self._streak.failed(kind):
            log.error(
                "maintenance task failed, will be retried: task=%r error=%s",
                self._name,
                error,
                exc_info=None if isinstance(error, OSError) else error,
            )
