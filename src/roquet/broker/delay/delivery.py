"""Delayed messages go where they belong when their time has come.

A level's messages wait in one queue of the schedule topic, whose entries say when each is due. They are stored in the
order in which they are due, so that a level is one offset and one moment to wake up at.

An entry's time is one of the wall clock. That clock may have been set since: `StampClock` says by how much.

See docs/storage/delayed-messages.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from roquet.broker.config.delay_levels import DelayLevels, waiting_queue
from roquet.broker.delay.due_run import DueRun
from roquet.broker.delay.stamp_clock import StampClock
from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.offsets.consumer_offsets import DelayOffsets
from roquet.common.limited_log import LimitedLog
from roquet.errors import Refused, UnreadableFile
from roquet.protocol.records import message as m
from roquet.protocol.records.columns import leading
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store

log = logging.getLogger(__name__)

RUN_MAX: Final = 256
"""So many messages of a level are delivered before the loop has a turn."""
PAUSE_MS: Final = 10
"""The shortest time between two looks: what is due within it goes together."""
LOOK_MS: Final = 1000
"""The longest one while something waits: the host may have slept, which the event loop's clock does not count."""
RETRY_MS: Final = 100
"""What the log does not take now is offered again after so long."""
WAIT_FOR_FILE_MS: Final = 60_000
"""A drive that cannot be read for a while, such as one behind a network, may be back by then. What is longer in a file
that cannot be read holds up its level no more: all topics share it."""
_SLACK_MS: Final = 2000
"""An entry that is due later than its delay and so long from now is damaged: the clock is followed closer than that."""


@dataclass(slots=True)
class _Level:
    """Where one level stands; `look_ms` is when to look at it next by the steady clock, None while nothing waits in it.

    What waited before this broker started (before queue offset `known_to`) is due at `known_by_ms` by the steady clock
    at the latest: nobody knows how the clock was set by then, but a whole delay has passed for sure.
    """

    number: int
    delay_ms: int
    queue: ConsumeQueue
    offset: int
    known_to: int
    known_by_ms: float
    look_ms: float | None = None

    @property
    def is_empty(self) -> bool:
        return self.offset >= self.queue.max_offset

    def wants_look(self, steady_ms: float) -> bool:
        return self.look_ms is not None and steady_ms >= self.look_ms

    def due(self, first: int, entries: npt.NDArray[np.void], clock: StampClock) -> int:
        """How many of the queue's entries, from queue offset `first` on, are due; one that cannot be is due now."""
        return leading(self._waits_ms(first, entries, clock) <= 0)

    def note_next(self, clock: StampClock) -> None:
        """See when to look again."""
        if self.is_empty:
            self.look_ms = None
        else:
            waits_ms = self._waits_ms(self.offset, self.queue.columns(self.offset, 1), clock)
            self.look_ms = clock.steady_ms() + (
                max(0.0, float(waits_ms[0])) if len(waits_ms) else 0.0
            )

    def _waits_ms(
        self, first: int, entries: npt.NDArray[np.void], clock: StampClock
    ) -> npt.NDArray[np.float64]:
        """How long each has to wait yet."""
        now_ms = clock.now_ms()
        steps_ms = clock.set_since_each(entries["physical"])
        waits_ms: npt.NDArray[np.float64] = (
            entries["tag_code"] - float(now_ms) + steps_ms + (steps_ms != 0)
        )
        known, others = np.split(waits_ms, [max(0, self.known_to - first)])
        np.minimum(known, self.known_by_ms - clock.steady_ms(), out=known)
        others[others > self.delay_ms + _SLACK_MS] = 0
        return waits_ms


class DelayedDelivery:
    """Delivers on a master; a slave that becomes one goes on where the copied progress says.

    Keeps: no message is delivered before its time, however the wall clock is set meanwhile; progress is noted after
           the log has the message, so that a crash may let one come twice, but takes none away; an empty level costs
           nothing. A message that cannot be read holds up its level for a minute, those behind it in the same file
           no more.

    :param turn: told of every append.
    :param clock: the one that the store's new records are stamped with.
    :param delivered: told, for each append, from which queue how many messages of how many bytes went.
    """

    def __init__(
        self,
        store: Store,
        levels: DelayLevels,
        progress: DelayOffsets,
        turn: EndOfTurn,
        clock: StampClock,
        delivered: Callable[[int, int, int], None],
    ) -> None:
        self._store = store
        self._delays_ms = levels.ms
        self._progress = progress
        self._turn = turn
        self._clock = clock
        self._delivered = delivered
        self._levels: list[_Level] = []
        self._empty: list[_Level] = []
        self._arrived = asyncio.Event()
        self._limited_log = LimitedLog(log)
        self._unreadable_since_ms: dict[tuple[int, str], float] = {}
        """Levels, and files of the log with messages of theirs that are due and cannot be read, by the steady clock."""
        self._passed_over: set[tuple[int, str]] = set()
        """Levels, and files with messages of theirs, of which it was told that they are passed over."""
        self._held_up: set[int] = set()
        """Levels whose messages could not be delivered at the last look."""

    def turn_ended(self) -> None:
        """Something was stored: if it is the first message that waits in its level, there is a time to wake up at."""
        for level in self._empty:
            if level.offset < level.queue.max_offset:
                self._arrived.set()
                return

    async def run(self) -> None:
        """Deliver what is due, for ever. While dispatch is held up, nothing can be stored and the levels' queues may
        lack entries: progress would be set back to their ends, and what gets its entry later would count as new.
        """
        while self._store.dispatch.is_held_up:
            await asyncio.sleep(LOOK_MS / 1000)
        self._levels = self._begin()
        while True:
            self._arrived.clear()
            pause_ms = self._pass()
            if pause_ms == 0:
                await asyncio.sleep(0)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(None if pause_ms is None else pause_ms / 1000):
                    await self._arrived.wait()

    # levels

    def _begin(self) -> list[_Level]:
        """All levels there are, and those that the configuration had once and in which messages still wait."""
        known = set(range(1, len(self._delays_ms) + 1))
        used = {
            queue.queue_id + 1
            for queue in self._store.queues
            if queue.topic == m.SCHEDULE_TOPIC and queue.max_offset
        }
        if used - known:
            text = "messageDelayLevel has %d levels now: the messages of levels %s come when they were due before"
            log.warning(text, len(known), sorted(used - known))
        return [self._level(number) for number in sorted(known | used)]

    def _level(self, number: int) -> _Level:
        """A level goes on where it stopped, within what its queue has now."""
        queue = self._store.queue(*waiting_queue(number))
        saved = self._progress.next_offset(number)
        offset = max(queue.min_offset, min(saved, queue.max_offset))
        if offset != saved:
            text = "delay level %d goes on at %d instead of %d: its queue has %d to %d"
            log.warning(text, number, offset, saved, queue.min_offset, queue.max_offset)
            self._progress.delivered(number, offset)
        delay_ms = self._delays_ms[min(number, len(self._delays_ms)) - 1]
        return _Level(
            number, delay_ms, queue, offset, queue.max_offset, self._clock.steady_ms() + delay_ms
        )

    # delivery

    def _pass(self) -> float | None:
        """Deliver a run of each level where one is due; ms until the next look, None: something has to arrive first."""
        steady_ms = self._clock.steady_ms()
        for level in self._levels:
            if level.look_ms is None and not level.is_empty:
                self._see_when(level)
            if level.wants_look(steady_ms):
                self._look(level)
        self._empty = [level for level in self._levels if level.look_ms is None]
        if any(level.wants_look(steady_ms) for level in self._levels):
            return 0
        waits = [level.look_ms - steady_ms for level in self._levels if level.look_ms is not None]
        return max(PAUSE_MS, min(LOOK_MS, *waits)) if waits else None

    def _look(self, level: _Level) -> None:
        """Deliver a run of the level; what the log does not take now is tried again."""
        why = self._store.why_full
        if not why:
            try:
                self._deliver(level)
            except (OSError, Refused) as error:
                why = str(error)
        self._went(level, why)

    def _see_when(self, level: _Level) -> None:
        """When to look at a level that had nothing before."""
        try:
            level.note_next(self._clock)
        except OSError as error:
            self._went(level, str(error))

    def _went(self, level: _Level, why: str) -> None:
        """One look at a level; why it is tried again, empty where all went well."""
        was_held_up = bool(self._held_up)
        if why:
            level.look_ms = self._clock.steady_ms() + RETRY_MS
            self._held_up.add(level.number)
        else:
            self._held_up.discard(level.number)
        if bool(self._held_up) is not was_held_up:
            log.error(
                "delayed messages %s",
                f"have to wait, it is tried again: {why}" if why else "are delivered again",
            )

    def _deliver(self, level: _Level) -> None:
        """Store again what is due of a level, one run of it at most."""
        queue, first = level.queue, max(level.offset, level.queue.min_offset)
        entries = queue.columns(first, RUN_MAX)
        readable = leading(entries["physical"] < self._store.log.readable_to)
        end = first + min(level.due(first, entries, self._clock), readable)
        if not len(entries):
            end = min(queue.next_file(first), queue.max_offset)
        if end == first < queue.max_offset and readable < len(entries):
            level.look_ms = self._clock.steady_ms() + RETRY_MS
            return
        run = self._run(level, first, entries[: end - first])
        gone = run.gone + max(0, first - level.offset)
        if gone:
            text, now_s = (
                "%d messages of delay level %d are not in the log any more",
                self._clock.steady_ms() / 1000,
            )
            self._limited_log.warning(f"gone {level.number}", now_s, text, gone, level.number)
        while run.queues:
            self._append(run, queue.queue_id)
            self._came_to(level, run.offsets[0] if run.queues else end)
        self._came_to(level, end)
        level.note_next(self._clock)

    def _run(self, level: _Level, first: int, entries: npt.NDArray[np.void]) -> DueRun:
        """
        :raises UnreadableFile: one of them cannot be read, and has not been waited for long enough.
        """
        passed_over: set[str] = set()
        while True:
            try:
                run = DueRun(self._store, first, entries, passed_over)
            except UnreadableFile as error:
                path = str(error.filename)
                if path in passed_over or self._unreadable_for_ms(level, path) < WAIT_FOR_FILE_MS:
                    raise
                self._tell_passed_over(level, path)
                passed_over.add(path)
                continue
            if not passed_over:
                self._all_read(level)
            return run

    def _unreadable_for_ms(self, level: _Level, path: str) -> float:
        now_ms = self._clock.steady_ms()
        return now_ms - self._unreadable_since_ms.setdefault((level.number, path), now_ms)

    def _all_read(self, level: _Level) -> None:
        """The next file that this level cannot read is waited for in full: a drive may fail more than once."""
        for key in [key for key in self._unreadable_since_ms if key[0] == level.number]:
            del self._unreadable_since_ms[key]

    def _tell_passed_over(self, level: _Level, path: str) -> None:
        """Once for each level and file, with all that the level has in that file from now on."""
        if (level.number, path) in self._passed_over:
            return
        self._passed_over.add((level.number, path))
        queue, file_start = level.queue, int(Path(path).name)
        first = max(level.offset, queue.first_at(file_start))
        end = queue.first_at(file_start + self._store.log.file_size)
        log.error(
            "delayed messages are passed over, their file cannot be read: level=%d queue_offsets=%d:%d path=%s; "
            "once it can be read: roquet store dump --topic %s --queue %d --offset %d:%d STORE",
            level.number, first, end, path, m.SCHEDULE_TOPIC, queue.queue_id, first, end,
        )  # fmt: skip

    def _came_to(self, level: _Level, offset: int) -> None:
        level.offset = offset
        self._progress.delivered(level.number, offset)

    def _append(self, run: DueRun, queue_id: int) -> None:
        """Store as many as the log takes at once."""
        try:
            count = self._store.append_moved(run.block, run.queues)
            self._delivered(queue_id, count, int(run.block.sizes[:count].sum()))
            run.drop(count)
        except ValueError as error:
            log.error("a delayed message of topic %s is left out: %s", run.queues[0].topic, error)
            run.drop(1)
        self._turn.due()
