"""Delayed messages go where they belong when their time has come (store-and-ha.md 6.7).

A level's messages wait in one queue of the schedule topic, whose entries say when each is due. They are stored in the
order in which they are due, so that a level is one offset and one moment to wake up at.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from roquet.broker.delay_levels import DelayLevels, waiting_queue
from roquet.broker.due_run import DueRun
from roquet.broker.progress import DelayProgress
from roquet.broker.turn import Turn
from roquet.errors import Refused
from roquet.protocol import message as m
from roquet.protocol.columns import leading
from roquet.storage.consume_queue import ConsumeQueue
from roquet.storage.store import Store

log = logging.getLogger(__name__)

RUN_MAX: Final = 256
"""So many messages of a level are delivered before the loop has a turn."""
PAUSE_MS: Final = 10
"""The shortest time between two looks: what is due within it goes together."""
LOOK_MS: Final = 1000
"""The longest one while something waits: the wall clock may have been set."""
RETRY_MS: Final = 100
"""What the log does not take now is offered again after so long."""


@dataclass(slots=True)
class _Level:
    """Where one level stands; `look_ms` is when to look at it next, None while nothing waits in it."""

    number: int
    delay_ms: int
    queue: ConsumeQueue
    offset: int
    look_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.offset >= self.queue.max_offset

    def wants_look(self, now_ms: int) -> bool:
        """Also when that time is further ahead than it can be: somebody has set the clock back."""
        return self.look_ms is not None and not now_ms < self.look_ms <= now_ms + max(self.delay_ms, RETRY_MS)

    def due(self, entries: npt.NDArray[np.void], now_ms: int) -> int:
        """How many of the queue's entries, from the first on, are due; one that is due too far ahead is due now."""
        times = entries["tag_code"]
        return leading((times <= now_ms) | (times > now_ms + self.delay_ms))

    def note_next(self, now_ms: int) -> None:
        """See when to look again."""
        if self.is_empty:
            self.look_ms = None
        else:
            entry = self.queue.entry(self.offset)
            self.look_ms = now_ms if entry is None else entry[2]


class DelayedMessages:
    """Delivers on a master; a slave that becomes one goes on where the copied progress says.

    Keeps: no message is delivered before its time; progress is noted after the log has the message, so that a crash
           may let one come twice, but takes none away; an empty level costs nothing.

    :param turn: told of every append.
    :param now_ms: wall clock.
    :param delivered: told, for each append, from which queue how many messages of how many bytes went.
    """

    def __init__(
        self,
        store: Store,
        levels: DelayLevels,
        progress: DelayProgress,
        turn: Turn,
        now_ms: Callable[[], int],
        delivered: Callable[[int, int, int], None],
    ) -> None:
        self._store = store
        self._delays_ms = levels.ms
        self._progress = progress
        self._turn = turn
        self._now_ms = now_ms
        self._delivered = delivered
        self._levels: list[_Level] = []
        self._empty: list[_Level] = []
        self._arrived = asyncio.Event()
        self._held_up = ""

    def turn_ended(self) -> None:
        """Something was stored: if it is the first message that waits in its level, there is a time to wake up at."""
        for level in self._empty:
            if level.offset < level.queue.max_offset:
                self._arrived.set()
                return

    async def run(self) -> None:
        """Deliver what is due, for ever."""
        self._levels = self._begin()
        while True:
            self._arrived.clear()
            pause_ms = self._pass(self._now_ms())
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
            queue.queue_id + 1 for queue in self._store.queues if queue.topic == m.SCHEDULE_TOPIC and queue.max_offset
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
        return _Level(number, self._delays_ms[min(number, len(self._delays_ms)) - 1], queue, offset)

    # delivery

    def _pass(self, now_ms: int) -> int | None:
        """Deliver a run of each level where one is due; ms until the next look, None: something has to arrive first."""
        for level in self._levels:
            if level.look_ms is None and not level.is_empty:
                level.note_next(now_ms)
            if level.wants_look(now_ms):
                self._look(level, now_ms)
        self._empty = [level for level in self._levels if level.look_ms is None]
        if any(level.wants_look(now_ms) for level in self._levels):
            return 0
        waits = [level.look_ms - now_ms for level in self._levels if level.look_ms is not None]
        return max(PAUSE_MS, min(LOOK_MS, *waits)) if waits else None

    def _look(self, level: _Level, now_ms: int) -> None:
        """Deliver a run of the level; what the log does not take now is tried again."""
        why = self._store.why_full
        if not why:
            try:
                self._deliver(level, now_ms)
            except (OSError, Refused) as error:
                why = str(error)
        if why:
            level.look_ms = now_ms + RETRY_MS
        if bool(why) is not bool(self._held_up):
            log.error(
                "delayed messages %s", f"have to wait, it is tried again: {why}" if why else "are delivered again"
            )
        self._held_up = why

    def _deliver(self, level: _Level, now_ms: int) -> None:
        """Store again what is due of a level, one run of it at most."""
        queue, first = level.queue, max(level.offset, level.queue.min_offset)
        entries = queue.columns(first, RUN_MAX)
        readable = leading(entries["physical"] < self._store.log.readable_to)
        end = first + min(level.due(entries, now_ms), readable)
        if not len(entries):
            end = min(queue.next_file(first), queue.max_offset)
        if end == first < queue.max_offset and readable < len(entries):
            level.look_ms = now_ms + RETRY_MS
            return
        run = DueRun(self._store, first, entries[: end - first])
        gone = run.gone + max(0, first - level.offset)
        if gone:
            log.warning("%d messages of delay level %d are not in the log any more", gone, level.number)
        while run.queues:
            self._append(run, queue.queue_id)
            self._came_to(level, run.offsets[0] if run.queues else end)
        self._came_to(level, end)
        level.note_next(now_ms)

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
