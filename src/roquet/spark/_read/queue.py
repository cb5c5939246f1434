"""Reads one range of a queue to its end, across failures and restarts of brokers.

Invariants:
- A read returns every message of its range once, in the order of the queue. If messages are lost,
  the read raises `DataLoss`, which names their offsets, or with `fail_on_data_loss=False` logs and
  skips them.
- Messages that only a slave lacks are not lost. The read waits for the master, and raises
  `MasterAway` if the master does not answer in time.
- A read that gets no message for `no_progress_timeout_ms` fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import numpy as np

from roquet.client._consume.pull_result import PullResult
from roquet.common.loop_time import now_s
from roquet.errors import LASTING, PeerError, RoquetError
from roquet.protocol.records.layout import fields_struct
from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.records import Records
from roquet.spark._options.ranges import Bounds, QueueRange, lose, master_away
from roquet.spark._options.read import ReadOptions

CHUNK_BYTES: Final = 8 << 20
CHUNK_RECORDS: Final = 10_000
"""Limits of what is pulled before it is decoded: enough messages for decoding in columns to pay,
and little memory compared with Spark's own.
"""
AHEAD_MAX: Final = 64
AHEAD_BYTES: Final = 4 << 20
"""Limits of concurrent pulls, as a count and as bytes of their answers. A broker returns few
messages per pull (32 by default), and a round trip costs more than they do.
"""
_FIRST: Final = fields_struct("queue_offset")
"""The queue offset of an answer's first record."""
PAUSE_SECONDS_MIN: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0


class NoProgress(RoquetError):  # noqa: N818
    """No broker returned the next message of a queue in time. The text has the last answer."""


class Puller(Protocol):
    """A client that can pull from a queue."""

    async def pull(self, queue: MessageQueue, offset: int, *, max_messages: int) -> PullResult: ...
    async def pull_all(
        self, queue: MessageQueue, offsets: Sequence[int], *, max_messages: int
    ) -> Sequence[PullResult]: ...


class RangeReader:
    """Reads one range, chunk by chunk."""

    def __init__(self, puller: Puller, whole: QueueRange, options: ReadOptions) -> None:
        self._puller = puller
        self._range = whole
        self._options = options
        self._at = whole.start
        self._ahead: dict[int, PullResult] = {}
        self._ahead_max = 1
        self._step = 1
        """Estimated messages per pull. Brokers limit their answers by count and by bytes."""

    async def chunk(self) -> Records | None:
        """The next records of the range, up to the limits of a chunk; None at the end of the range.

        :raises roquet.spark._options.ranges.DataLoss: messages are lost and failOnDataLoss is true.
        :raises NoProgress: no broker answered or returned the next message in time.
        :raises roquet.spark._options.ranges.MasterAway: only a slave answered, and lacks the
            messages.
        :raises AccessDenied, TlsError: a broker refused the connection or the request.
        """
        if self._at >= self._range.end:
            return None
        first = self._at
        end = min(first + CHUNK_RECORDS, self._range.end)
        brought = await self._some(end)
        if isinstance(brought, Records):
            return brought
        answers = [brought]
        size = largest = len(brought.body)
        self._step = max(self._at - first, self._step // 2)
        self._ahead.clear()
        while self._at < end and size < CHUNK_BYTES:
            if not self._ahead:
                await self._look_ahead(end, min(AHEAD_BYTES, CHUNK_BYTES - size) // largest)
            if (answer := await self._next(end)) is None:
                break  # the next chunk retries, and handles the failure or the gap
            answers.append(answer)
            size += len(answer.body)
            largest = max(largest, len(answer.body))
        self._ahead.clear()  # frees the memory while Spark works on the chunk
        return self._checked(answers, first)

    async def _look_ahead(self, end: int, count: int) -> None:
        """Pull the next messages concurrently, with twice as many pulls as succeeded the last time.

        Each pull asks for `_step` messages. A pull that returns fewer leaves a gap, which `_next`
        fills. A failure is not raised: `_next` pulls the same messages again, one pull at a time.

        :param end: offset at which to stop.
        :param count: maximum count of pulls.
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

    async def _next(self, end: int) -> PullResult | None:
        """The answer that starts where the previous one ended; None after a failure or at a gap."""
        answer = self._ahead.pop(self._at, None)
        until = min(self._ahead, default=end)
        try:
            answer = answer or await self._pull(self._at, until)
        except (RoquetError, OSError):
            return None
        return answer if self._passes(answer, until) else None

    async def _some(self, end: int) -> Records | PullResult:
        """Pull, with retries, until an answer has messages or shows that messages are lost.

        :param end: offset at which to stop.
        :returns: an answer that seems to be complete, to be checked with others by `_checked`;
            otherwise records, which are empty if messages were lost.
        """
        deadline = now_s() + self._options.no_progress_timeout_ms / 1000
        pause = PAUSE_SECONDS_MIN
        while True:
            bounds = None
            trouble = ""
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
            if now_s() >= deadline:
                self._give_up(bounds, trouble)
                return Records.joined([])
            await asyncio.sleep(min(pause, max(deadline - now_s(), 0)))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _pull(self, offset: int, end: int) -> PullResult:
        count = min(self._options.pull_batch_size, end - offset)
        return await self._puller.pull(self._range.queue, offset, max_messages=count)

    def _taken(self, answer: PullResult) -> Records | None:
        """Advance past the records of an answer and return them.

        :returns: None if the answer has no messages of the range, or if it skips messages which
            only a slave lacks. The position then stays where it is.
        """
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
                f"the pull of {self._range.queue} at {self._at} was answered "
                f"out of order: {offsets}"
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

    def _passes(self, answer: PullResult, end: int) -> bool:
        """Advance past an answer that starts at the position and ends by `end`, as its header says.

        :returns: whether it does.
        """
        first = answer.body[: _FIRST.size]
        starts_here = len(first) == _FIRST.size and _FIRST.unpack(first)[0] == self._at
        if not starts_here or not self._at < answer.next_offset <= end:
            return False
        self._at = answer.next_offset
        return True

    def _checked(self, answers: list[PullResult], first: int) -> Records:
        """The records of the answers that moved the position from offset `first` to `_at`.

        All answers are decoded at once, which is much cheaper than one by one. Only if a record is
        missing are they decoded again one by one, to find and report the gap.
        """
        records = Records.of_answers([answer.body for answer in answers], self._at - first)
        if np.array_equal(records.queue_offsets, np.arange(first, self._at)):
            return records
        self._at = first
        return Records.joined(self._taken_in_turn(answers))

    def _taken_in_turn(self, answers: list[PullResult]) -> Iterator[Records]:
        """The records of the answers, up to an answer of which `_taken` cannot use all.

        The next chunk pulls again from there.
        """
        for answer in answers:
            if (taken := self._taken(answer)) is None:
                return
            yield taken
            if self._at < answer.next_offset and not self._bounds(answer).is_certain:
                return

    def _give_up(self, bounds: Bounds | None, trouble: str) -> None:
        """Raise the error for a read without progress, or skip messages that are lost.

        :param bounds: from the last answer; None if there was none.
        :param trouble: the last failure.
        """
        if bounds is None:
            seconds = self._options.no_progress_timeout_ms / 1000
            raise NoProgress(
                f"{self._range}: no answer for offset {self._at} in {seconds:g} s, last {trouble}"
            )
        if bounds.min <= self._at < bounds.max:
            raise NoProgress(
                f"{self._range}: the broker has offset {self._at} but does not return it, {bounds}"
            )
        if not bounds.is_certain:
            raise master_away(self._range.queue, f"offset {self._at} of {self._range}", bounds)
        self._skip(bounds.min if self._at < bounds.min else self._range.end, bounds)

    def _bounds(self, answer: PullResult) -> Bounds:
        is_certain = answer.of_master or self._options.believes_slaves
        return Bounds(answer.min_offset, answer.max_offset, is_certain)

    def _skip(self, to: int, bounds: Bounds) -> None:
        last = min(to, self._range.end)
        self._lose(f"offsets {self._at} to {last - 1}", bounds)
        self._at = last

    def _lose(self, wanted: str, bounds: Bounds) -> None:
        lose(self._range.queue, wanted, bounds, fail_on_data_loss=self._options.fail_on_data_loss)
