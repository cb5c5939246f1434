"""Reads one range of a queue to its end, whatever happens to the brokers meanwhile.

Keeps: every message of the range is handed out once and in order, or the read ends in an error that says which are
       missing; only `fail_on_data_loss=False` lets it go on without them, and that is logged.
       That a slave lacks messages does not make them missing: they are waited for, and that ends in `MasterAway`.
       Without one message of progress it gives up after `no_progress_timeout_ms`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import numpy as np

from roquet.errors import LASTING, PeerError, RoquetError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.records import Records
from roquet.spark._options.ranges import Bounds, QueueRange, lose, master_away
from roquet.spark._options.read import ReadOptions

CHUNK_BYTES: Final = 8 << 20
CHUNK_RECORDS: Final = 10_000
"""How much is gathered before it is decoded: large enough for whole columns to pay, small beside Spark's own memory."""
AHEAD_MAX: Final = 64
AHEAD_BYTES: Final = 4 << 20
"""Pulls that are asked for at once while all goes well, and about how much they bring: a broker gives few messages at a
time, and each way there costs more than they do."""
_OFFSET_AT: Final = 20
"""Where a record has its queue offset (docs/protocol/messages.md#stored-message)."""
PAUSE_SECONDS_MIN: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0


class NoProgress(RoquetError):  # noqa: N818
    """No broker gave the next message of a queue in time; the message says what they said instead."""


class Pulled(Protocol):
    """What the answer to a pull says."""

    @property
    def next_offset(self) -> int: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def of_master(self) -> bool: ...


class Puller(Protocol):
    """Whoever can pull from a queue."""

    async def pull(self, queue: MessageQueue, offset: int, *, max_messages: int) -> Pulled: ...
    async def pull_all(
        self, queue: MessageQueue, offsets: Sequence[int], *, max_messages: int
    ) -> Sequence[Pulled]: ...


class RangeReader:
    """One range on its way, chunk by chunk."""

    def __init__(self, puller: Puller, whole: QueueRange, options: ReadOptions) -> None:
        self._puller = puller
        self._range = whole
        self._options = options
        self._at = whole.start
        self._ahead: dict[int, Pulled] = {}
        self._ahead_max = 1
        self._step = 1
        """How many messages pulls bring, as far as is known: brokers have limits of their own, some in bytes."""

    async def chunk(self) -> Records | None:
        """The next records of the range, as many as one batch should hold; None at its end.

        :raises roquet.spark._options.ranges.DataLoss: some are gone and that is not allowed.
        :raises NoProgress: no broker answered, or none gave the next message.
        :raises roquet.spark._options.ranges.MasterAway: only a slave answered, and does not have it.
        :raises AccessDenied, TlsError: a broker does not let us in.
        """
        if self._at >= self._range.end:
            return None
        first, end = self._at, min(self._at + CHUNK_RECORDS, self._range.end)
        brought = await self._some(end)
        if isinstance(brought, Records):
            return brought
        answers, size, largest = [brought], len(brought.body), len(brought.body)
        self._step = max(self._at - first, self._step // 2)
        self._ahead.clear()
        while self._at < end and size < CHUNK_BYTES:
            if not self._ahead:
                await self._look_ahead(end, min(AHEAD_BYTES, CHUNK_BYTES - size) // largest)
            if (answer := await self._next(end)) is None:
                break  # whatever it is, the next chunk will see to it
            answers.append(answer)
            size += len(answer.body)
            largest = max(largest, len(answer.body))
        self._ahead.clear()  # nothing of it is kept while Spark works on the chunk
        return self._checked(answers, first)

    async def _look_ahead(self, end: int, count: int) -> None:
        """Ask for what comes next, by twice as many pulls as went well before, `count` at most.

        Each asks for as much as pulls bring; those that bring less leave gaps to fill. What fails here is asked for
        once more in its turn.
        """
        offsets = range(self._at, end - self._step + 1, self._step)[
            : max(1, min(self._ahead_max, count))
        ]
        if not offsets:
            return
        try:
            found = await self._puller.pull_all(self._range.queue, offsets, max_messages=self._step)
        except (RoquetError, OSError):
            self._ahead_max = 1
            return
        self._ahead_max = min(2 * self._ahead_max, AHEAD_MAX)
        self._ahead.update(zip(offsets, found, strict=True))

    async def _next(self, end: int) -> Pulled | None:
        """The answer that goes on where the one before ended; None if it is of another kind."""
        answer = self._ahead.pop(self._at, None)
        until = min(self._ahead, default=end)
        try:
            answer = answer or await self._pull(self._at, until)
        except (RoquetError, OSError):
            return None
        return answer if self._passes(answer, until) else None

    async def _some(self, end: int) -> Records | Pulled:
        """What the next pull that gets anywhere brings, all below `end`; no records where messages were lost.

        An answer that seems to hold all that it passes over is given as it is, to be checked with others.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.no_progress_timeout_ms / 1000
        pause = PAUSE_SECONDS_MIN
        while True:
            bounds, trouble = None, ""
            try:
                answer = await self._pull(self._at, end)
            except LASTING:
                raise
            except (RoquetError, OSError) as error:
                trouble = f"{type(error).__name__}: {error}"
            else:
                if self._passes(answer, end):
                    return answer
                if (records := self._taken(answer)) is not None:
                    return records
                bounds = self._bounds(answer)
            if loop.time() >= deadline:
                self._give_up(bounds, trouble)
                return Records.joined([])
            await asyncio.sleep(min(pause, max(deadline - loop.time(), 0)))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _pull(self, offset: int, end: int) -> Pulled:
        count = min(self._options.pull_batch_size, end - offset)
        return await self._puller.pull(self._range.queue, offset, max_messages=count)

    def _taken(self, answer: Pulled) -> Records | None:
        """The records of an answer, after moving past them; None if it leads nowhere, or past what a slave lacks."""
        bounds = self._bounds(answer)
        records = Records.walk(answer.body).between(self._at, self._range.end)
        if len(records) == 0:
            if answer.next_offset <= self._at or not bounds.is_certain:
                return None
            self._skip(answer.next_offset, bounds)
            return records
        offsets = records.queue_offsets
        if (offsets[1:] <= offsets[:-1]).any():
            raise PeerError(
                f"the pull of {self._range.queue} at {self._at} was answered out of order: {offsets}"
            )
        following = int(offsets[-1]) + 1
        missing = following - self._at - len(offsets)
        if missing:
            if offsets[0] > self._at and not bounds.is_certain:
                return None
            self._lose(
                f"offsets {self._at} to {following - 1}, {missing} of them are missing", bounds
            )
        self._at = following
        return records

    def _passes(self, answer: Pulled, end: int) -> bool:
        """Go on after an answer whose first record is the next one and that, the broker says, ends within the range."""
        starts_here = int.from_bytes(answer.body[_OFFSET_AT : _OFFSET_AT + 8]) == self._at
        if not answer.body or not starts_here or not self._at < answer.next_offset <= end:
            return False
        self._at = answer.next_offset
        return True

    def _checked(self, answers: list[Pulled], first: int) -> Records:
        """The records of answers that led from offset `first` to where the read is.

        A whole chunk is taken apart at once, which is far cheaper than answer by answer; only where it does not hold
        one record for each offset is each answer looked at by itself, for what is missing.
        """
        records = Records.of_answers([answer.body for answer in answers], self._at - first)
        if np.array_equal(records.queue_offsets, np.arange(first, self._at)):
            return records
        self._at = first
        return Records.joined(self._taken_in_turn(answers))

    def _taken_in_turn(self, answers: list[Pulled]) -> Iterator[Records]:
        """Up to one that leads nowhere, or that a slave ended too early: what comes next is asked for once more."""
        for answer in answers:
            if (taken := self._taken(answer)) is None:
                return
            yield taken
            if self._at < answer.next_offset and not self._bounds(answer).is_certain:
                return

    def _give_up(self, bounds: Bounds | None, trouble: str) -> None:
        """The end of all patience: no answer, or none that leads on."""
        if bounds is None:
            seconds = self._options.no_progress_timeout_ms / 1000
            raise NoProgress(
                f"{self._range}: no answer for offset {self._at} in {seconds:g} s, last {trouble}"
            )
        if bounds.min <= self._at < bounds.max:
            raise NoProgress(
                f"{self._range}: the broker has offset {self._at} but does not give it, {bounds}"
            )
        if not bounds.is_certain:
            raise master_away(self._range.queue, f"offset {self._at} of {self._range}", bounds)
        self._skip(bounds.min if self._at < bounds.min else self._range.end, bounds)

    def _bounds(self, answer: Pulled) -> Bounds:
        is_certain = answer.of_master or self._options.believes_slaves
        return Bounds(answer.min_offset, answer.max_offset, is_certain)

    def _skip(self, to: int, bounds: Bounds) -> None:
        last = min(to, self._range.end)
        self._lose(f"offsets {self._at} to {last - 1}", bounds)
        self._at = last

    def _lose(self, wanted: str, bounds: Bounds) -> None:
        lose(self._range.queue, wanted, bounds, fail_on_data_loss=self._options.fail_on_data_loss)
