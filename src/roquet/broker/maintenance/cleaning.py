"""Lets files of the store go when their time is over, refuses messages while the drive is full.

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

from roquet.broker.delay.stamp_clock import StampClock
from roquet.broker.maintenance.deletions import DeletionQueue
from roquet.common.runtime import Runtime
from roquet.storage.retention import PASSES_WHEN_ASKED, Retention, Usage
from roquet.storage.store import Store
from roquet.transport.slices import Slices

log = logging.getLogger(__name__)

FIRST_LOOK_S: Final = 1.0
FIRST_PASS_S: Final = 60.0
LOG: Final = Path("commitlog")
"""The row of the log's files, in however many folders they are."""
_HOUR_MS: Final = 3_600_000


class Cleaning:
    """Keeps: messages are refused exactly while the drive was found too full at the last look.

    :param gone: told when the log has lost files.
    :param slices: in which all queues are gone through.
    """

    def __init__(
        self,
        store: Store,
        rules: Retention,
        runtime: Runtime,
        clock: StampClock,
        gone: Callable[[], None],
        slices: Slices,
        *,
        period_ms: int,
        log_pause_ms: int,
        queue_pause_ms: int,
    ) -> None:
        self._store = store
        self._rules = rules
        self._runtime = runtime
        self._clock = clock
        self._found_to = 0
        """Where the log ended when this broker started."""
        self._uncounted_ms = 0
        """So much of the time before that does not count for the files from before it."""
        self._gone = gone
        self._slices = slices
        self._period_s = period_ms / 1000
        self._log_pause_s = log_pause_ms / 1000
        self._queue_pause_s = queue_pause_ms / 1000
        self._asked = 0
        self._deletions = DeletionQueue(runtime, self._period_s)

    def ask(self) -> None:
        """Let what has expired go at any hour, in the next passes (DELETE_EXPIRED_COMMITLOG)."""
        self._asked = PASSES_WHEN_ASKED

    async def watch(self) -> None:
        """See how full the drive is, for ever."""
        look = _Tried("the look at how full the drive is", self.look)
        await asyncio.sleep(FIRST_LOOK_S)
        while True:
            await look()
            await asyncio.sleep(self._period_s)

    def _look_back(self) -> None:
        """Whether nothing was stored for days or the wall clock has been set meanwhile, nobody knows. What is kept too
        long can go later, so at most half the time that files are kept passes while nothing is stored before a start.
        """
        silent_ms, counted_ms = (
            self._clock.now_ms() - self._store.newest_ms,
            self._rules.kept_ms // 2,
        )
        if not self._store.newest_ms or silent_ms <= counted_ms:
            return
        self._found_to, self._uncounted_ms = self._store.log.end, silent_ms - counted_ms
        if silent_ms > self._rules.kept_ms:
            text = "old files are kept longer, the broker was down or its clock is ahead: silent_h=%.1f counted_h=%.1f"
            log.warning(text, silent_ms / _HOUR_MS, counted_ms / _HOUR_MS)

    async def run(self) -> None:
        """Clean, for ever; what fails is tried again."""
        clean = _Tried("the look for files that have expired", self.clean)
        delete = _Tried("the deletion of expired files", self._deletions.run)
        self._look_back()
        await asyncio.sleep(FIRST_PASS_S)
        while True:
            await clean()
            await delete()
            await asyncio.sleep(self._period_s)

    async def look(self) -> Usage:
        """See how full the drive is, and take or refuse messages from now on."""
        usage = await self._runtime.blocking(self._store.usage)
        if self._store.failure is not None:
            return usage
        limit, was_full = self._rules.full_above, bool(self._store.why_full)
        is_full = usage.worst > limit
        self._store.why_full = (
            f"the store's drive is used beyond {limit:.0%} ({usage})" if is_full else ""
        )
        if is_full is not was_full:
            log.warning(
                "messages are %s: %s",
                "refused" if is_full else "taken again",
                self._store.why_full or usage,
            )
        return usage

    async def clean(self) -> None:
        """Forget what may go of the log, and what only pointed there."""
        usage = await self.look()
        if self._store.failure is not None:
            return
        await self._runtime.blocking(self._store.log.look_for_names)
        asked, self._asked = self._asked > 0, max(0, self._asked - 1)
        writes = await self._runtime.blocking(self._store.last_writes)
        now_ms = self._clock.now_ms()
        hour = datetime.fromtimestamp(now_ms / 1000).hour  # noqa: DTZ006
        # the system may bring a page to a file, and the file up to date, after the clock was set
        modified_ms = list(accumulate((self._modified_ms(*each) for each in writes), max))
        count = self._rules.files_to_go(modified_ms, now_ms, hour, usage.worst, asked=asked)
        if not count and not self._store.has_untrimmed:
            return
        expired = await self._slices.run(self._store.drop_oldest_steps(count))
        if expired.log:
            log.info(
                "the log begins at %d now, %d files go", self._store.log.start, len(expired.log)
            )
            self._gone()
        for deletion in expired.log:
            self._deletions.add(LOG, deletion, self._log_pause_s)
        for deletion in expired.queues:
            self._deletions.add(deletion.path.parent, deletion, self._queue_pause_s)
        for deletion in expired.index:
            self._deletions.add(deletion.path.parent, deletion, 0)

    def _modified_ms(self, end: int, modified_ms: int) -> int:
        """When a file that ends there was written last, by the wall clock as it is set now."""
        return (
            modified_ms
            + self._clock.set_since(end - 1)
            + (self._uncounted_ms if end <= self._found_to else 0)
        )


class _Tried:
    """Work that is tried again and again. Tells when it begins to fail, when it fails for another reason, and when it
    goes well again: on a drive that fails it is tried every ten seconds, for days.
    """

    def __init__(self, what: str, work: Callable[[], Awaitable[object]]) -> None:
        self._what = what
        self._work = work
        self._why = ""

    async def __call__(self) -> None:
        try:
            await self._work()
        except Exception as error:
            self._failed(error)
        else:
            if self._why:
                log.info("goes well again: work=%r", self._what)
            self._why = ""

    def _failed(self, error: Exception) -> None:
        why, self._why = (
            self._why,
            f"{type(error).__name__} {error.errno if isinstance(error, OSError) else ''}",
        )
        if why != self._why:
            trace = None if isinstance(error, OSError) else error
            log.error(
                "fails, it is tried again: work=%r error=%s", self._what, error, exc_info=trace
            )
