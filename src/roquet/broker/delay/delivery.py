"""Delivers delayed messages: stores each one in its own queue when it is due.

A level's messages wait in one queue of the schedule topic; the tag code of an entry is its due
time. Within a level messages are due in the order in which they were stored, so a level needs only
one offset and one time to wake up at.

Due times are wall-clock times. `StampClock` knows by how much that clock was set since.

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
from roquet.broker.delivery.write_gate import WriteGate
from roquet.broker.offsets.consumer_offsets import DelayOffsets
from roquet.common.limited_log import LimitedLog
from roquet.errors import StoreBusy, UnreadableFile
from roquet.protocol.records import message as m
from roquet.protocol.records.columns import count_leading_true
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store

log = logging.getLogger(__name__)

RUN_MAX: Final = 256
"""Messages of one level that are delivered before the event loop serves others."""
PAUSE_MS: Final = 10
"""The shortest time between two passes: messages due within it are delivered together."""
LOOK_MS: Final = 1000
"""The longest time between two passes while messages wait: the event loop's clock does not count
the time that the host was suspended."""
RETRY_MS: Final = 100
"""The time after which a failed delivery is tried again."""
WAIT_FOR_FILE_MS: Final = 60_000
"""How long a level waits for a segment of the log that cannot be read: a network drive may be back
by then. After that the level skips its messages in it, because all topics share the level."""
_SLACK_MS: Final = 2000
"""An entry due more than its level's delay plus this time from now is damaged: clock steps are
noticed sooner."""


@dataclass(slots=True)
class _Level:
    """The state of one delay level.

    Messages from before this start are due at `known_by_ms` at the latest: steps of the wall clock
    before the start are unknown, but by then a whole delay has passed for sure.

    :param offset: the queue offset of the next message to deliver.
    :param known_to: the queue offset at which messages stored since this start begin.
    :param known_by_ms: by the steady clock.
    :param check_at_ms: when to check the level next, by the steady clock; None while it is empty.
    """

    number: int
    delay_ms: int
    queue: ConsumeQueue
    offset: int
    known_to: int
    known_by_ms: float
    check_at_ms: float | None = None

    @property
    def is_empty(self) -> bool:
        return self.offset >= self.queue.max_offset

    def is_check_due(self, steady_ms: float) -> bool:
        return self.check_at_ms is not None and steady_ms >= self.check_at_ms

    def due(self, first: int, entries: npt.NDArray[np.void], clock: StampClock) -> int:
        """How many of these entries are due; a damaged entry counts as due.

        :param first: queue offset of the first entry.
        """
        return count_leading_true(self._waits_ms(first, entries, clock) <= 0)

    def retry(self, clock: StampClock) -> None:
        """Look again after `RETRY_MS`."""
        self.check_at_ms = clock.steady_ms() + RETRY_MS

    def advance(self, offset: int) -> None:
        """Go on at this offset: the messages before it are delivered, or gone."""
        self.offset = offset

    def schedule_next(self, clock: StampClock) -> None:
        """Set `check_at_ms` to the due time of the next message."""
        if self.is_empty:
            self.check_at_ms = None
        else:
            waits_ms = self._waits_ms(self.offset, self.queue.columns(self.offset, 1), clock)
            self.check_at_ms = clock.steady_ms() + (
                max(0.0, float(waits_ms[0])) if len(waits_ms) else 0.0
            )

    def _waits_ms(
        self, first: int, entries: npt.NDArray[np.void], clock: StampClock
    ) -> npt.NDArray[np.float64]:
        """How many ms are left until each entry is due."""
        now_ms = clock.now_ms()
        steps_ms = clock.set_since_each(entries["physical"])
        # The size of a clock step is rounded to ms. One ms more for messages that were stored
        # before it, so that none comes early.
        waits_ms: npt.NDArray[np.float64] = (
            entries["tag_code"] - float(now_ms) + steps_ms + (steps_ms != 0)
        )
        older, newer = np.split(waits_ms, [max(0, self.known_to - first)])
        np.minimum(older, self.known_by_ms - clock.steady_ms(), out=older)
        newer[newer > self.delay_ms + _SLACK_MS] = 0
        return waits_ms


class DelayedDelivery:
    """Delivers the delayed messages of all levels. It runs on masters only.

    A promoted slave continues at the offsets that it copied from its master.

    Invariant: no message is delivered before its time, however the wall clock is set. A level's
    offset moves only after the log has the message: after a crash a message may be delivered twice,
    but none is lost. A message that cannot be read holds up its level for `WAIT_FOR_FILE_MS`;
    further ones in the same file do not.

    :param turn: its `due()` is called after every append.
    :param clock: the clock that stamps the store's new records.
    :param delivered: called after each append with the id of the level's queue, the number of
        messages, and their bytes.
    """

    def __init__(
        self,
        store: Store,
        write_gate: WriteGate,
        levels: DelayLevels,
        offsets: DelayOffsets,
        turn: EndOfTurn,
        clock: StampClock,
        delivered: Callable[[int, int, int], None],
    ) -> None:
        self._store = store
        self._write_gate = write_gate
        self._delays_ms = levels.ms
        self._offsets = offsets
        self._turn = turn
        self._clock = clock
        self._delivered = delivered
        self._levels: list[_Level] = []
        self._empty: list[_Level] = []
        self._arrived = asyncio.Event()
        self._limited_log = LimitedLog(log)
        self._unreadable_since_ms: dict[tuple[int, str], float] = {}
        """(level, path of a segment) -> since when the level has waited to read it, by the
        steady clock."""
        self._passed_over: set[tuple[int, str]] = set()
        """(level, path of a segment): skipped ones that were logged."""
        self._held_up: set[int] = set()
        """Levels whose last delivery failed."""

    def turn_ended(self) -> None:
        """Wake `run` if an empty level got a message, which sets the time to wake up at."""
        for level in self._empty:
            if level.offset < level.queue.max_offset:
                self._arrived.set()
                return

    def look(self) -> None:
        """Let `run` look at once for messages that are due."""
        self._arrived.set()

    async def run(self) -> None:
        """Deliver messages when they are due, until cancelled.

        Delivery begins once dispatch is not held up. Before, the levels' queues may lack entries:
        the saved offsets would be set back to their ends, and messages that get their entries later
        would count as new.
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
        """The configured levels, and levels no longer configured that have had messages."""
        known = set(range(1, len(self._delays_ms) + 1))
        used = {
            queue.queue_id + 1
            for queue in self._store.queues
            if queue.topic == m.SCHEDULE_TOPIC and queue.max_offset
        }
        if used - known:
            log.warning(
                "delay levels removed from messageDelayLevel have had messages, those left are "
                "delivered when they were due: configured=%d removed=%s",
                len(known),
                sorted(used - known),
            )
        return [self._level(number) for number in sorted(known | used)]

    def _level(self, number: int) -> _Level:
        """The state of a level at its saved offset, moved into the bounds of its queue."""
        queue = self._store.queue(*waiting_queue(number))
        saved = self._offsets.next_offset(number)
        offset = max(queue.min_offset, min(saved, queue.max_offset))
        if offset != saved:
            log.warning(
                "saved offset of a delay level is outside its queue, the nearest one is used: "
                "level=%d saved=%d used=%d queue_offsets=%d:%d",
                number,
                saved,
                offset,
                queue.min_offset,
                queue.max_offset,
            )
            self._offsets.delivered(number, offset)
        delay_ms = self._delays_ms[min(number, len(self._delays_ms)) - 1]
        return _Level(
            number, delay_ms, queue, offset, queue.max_offset, self._clock.steady_ms() + delay_ms
        )

    # delivery

    def _pass(self) -> float | None:
        """Deliver a run of each level that is due.

        :returns: ms until the next pass; None if all levels are empty.
        """
        steady_ms = self._clock.steady_ms()
        for level in self._levels:
            if level.check_at_ms is None and not level.is_empty:
                self._schedule(level)
            if level.is_check_due(steady_ms):
                self._try_level(level)
        self._empty = [level for level in self._levels if level.check_at_ms is None]
        if any(level.is_check_due(steady_ms) for level in self._levels):
            return 0
        waits = [
            level.check_at_ms - steady_ms for level in self._levels if level.check_at_ms is not None
        ]
        return max(PAUSE_MS, min(LOOK_MS, *waits)) if waits else None

    def _try_level(self, level: _Level) -> None:
        """Deliver a run of the level; if the store refuses it, try again after `RETRY_MS`."""
        why = self._write_gate.why_closed
        if not why:
            try:
                self._deliver(level)
            except (OSError, StoreBusy) as error:
                why = str(error)
        self._tried(level, why)

    def _schedule(self, level: _Level) -> None:
        """Set the time to check a level that was empty before."""
        try:
            level.schedule_next(self._clock)
        except OSError as error:
            self._tried(level, str(error))

    def _tried(self, level: _Level, why: str) -> None:
        """Record the result of a try: retry if it failed, and log if delivery stops or resumes.

        :param why: the error; empty if the try succeeded.
        """
        was_held_up = bool(self._held_up)
        if why:
            level.retry(self._clock)
            self._held_up.add(level.number)
        else:
            self._held_up.discard(level.number)
        if self._held_up and not was_held_up:
            log.error(
                "delayed messages cannot be delivered, will be retried: level=%d error=%s",
                level.number,
                why,
            )
        elif was_held_up and not self._held_up:
            log.warning("delayed messages are delivered again")

    def _deliver(self, level: _Level) -> None:
        """Deliver the due messages of a level, at most `RUN_MAX` of them."""
        queue = level.queue
        first = max(level.offset, queue.min_offset)
        entries = queue.columns(first, RUN_MAX)
        readable = count_leading_true(entries["physical"] < self._store.log.readable_to)
        end = first + min(level.due(first, entries, self._clock), readable)
        if not len(entries):
            end = min(queue.next_file(first), queue.max_offset)
        if end == first < queue.max_offset and readable < len(entries):
            level.retry(self._clock)
            return
        run = self._run(level, first, entries[: end - first])
        gone = run.gone + max(0, first - level.offset)
        if gone:
            self._limited_log.warning(
                f"gone {level.number}",
                "delayed messages are not in the log any more, they are skipped: level=%d count=%d",
                level.number,
                gone,
            )
        while run.queues:
            self._append(run, queue.queue_id)
            self._advance(level, run.offsets[0] if run.queues else end)
        self._advance(level, end)
        level.schedule_next(self._clock)

    def _run(self, level: _Level, first: int, entries: npt.NDArray[np.void]) -> DueRun:
        """Read the messages of these entries, without those in files that the level skips.

        :raises UnreadableFile: a file cannot be read, and the level has not waited long enough.
        """
        passed_over: set[str] = set()
        while True:
            try:
                run = DueRun(self._store, first, entries, passed_over)
            except UnreadableFile as error:
                path = str(error.filename)
                if path in passed_over or self._unreadable_for_ms(level, path) < WAIT_FOR_FILE_MS:
                    raise
                self._log_passed_over(level, path)
                passed_over.add(path)
                continue
            if not passed_over:
                self._forget_unreadable(level)
            return run

    def _unreadable_for_ms(self, level: _Level, path: str) -> float:
        now_ms = self._clock.steady_ms()
        return now_ms - self._unreadable_since_ms.setdefault((level.number, path), now_ms)

    def _forget_unreadable(self, level: _Level) -> None:
        """Let the level wait in full for the next unreadable file: a drive may fail again."""
        for key in [key for key in self._unreadable_since_ms if key[0] == level.number]:
            del self._unreadable_since_ms[key]

    def _log_passed_over(self, level: _Level, path: str) -> None:
        """Log, once per level and file, all entries of the level in a file that it skips."""
        if (level.number, path) in self._passed_over:
            return
        self._passed_over.add((level.number, path))
        queue = level.queue
        file_start = int(Path(path).name)  # a segment's name is the offset of its first byte
        first = max(level.offset, queue.first_at(file_start))
        end = queue.first_at(file_start + self._store.log.file_size)
        log.error(
            "delayed messages are skipped, their file cannot be read: "
            "level=%d queue_offsets=%d:%d path=%s; "
            "once it can be read: roquet store dump --topic %s --queue %d --offset %d:%d STORE",
            level.number,
            first,
            end,
            path,
            m.SCHEDULE_TOPIC,
            queue.queue_id,
            first,
            end,
        )

    def _advance(self, level: _Level, offset: int) -> None:
        level.advance(offset)
        self._offsets.delivered(level.number, offset)

    def _append(self, run: DueRun, queue_id: int) -> None:
        """Store the first messages of a run, as many as the log takes at once."""
        try:
            count = self._store.writer.append_moved(run.block, run.queues)
            self._delivered(queue_id, count, int(run.block.sizes[:count].sum()))
            run.drop(count)
        except ValueError as error:
            log.error(
                "delayed message cannot be stored, it is skipped: topic=%s level=%d "
                "queue_offset=%d error=%s",
                run.queues[0].topic,
                queue_id + 1,
                run.offsets[0],
                error,
            )
            run.drop(1)
        self._turn.due()
