"""Finds the offset of a store time in a queue, exactly.

The brokers' own search is not exact. It returns the message stored nearest to the time, which may
be the one before it, or any of several of the same millisecond, and it is wrong in a store whose
files were copied (docs/storage/fetch.md#an-offset-by-time and docs/pitfalls.md#trap-s17). Store
times never decrease along a queue (docs/pitfalls.md#trap-s24), so a binary search finds the first
message in some twenty pulls.
"""

from __future__ import annotations

from dataclasses import dataclass

from roquet.client.pull_consumer import PullConsumer
from roquet.errors import RoquetError
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.records.record import decode_all
from roquet.spark._options.ranges import Bounds


class NotGiven(RoquetError):  # noqa: N818
    """A broker has a message but does not return it now."""


@dataclass(frozen=True)
class _Seen:
    offset: int
    store_ms: int


async def first_stored_at(
    consumer: PullConsumer, queue: MessageQueue, bounds: Bounds, ms: int
) -> int | None:
    """The offset of the first message stored at `ms` (since 1970) or later; None if there is none.

    Raises what `PullConsumer.pull` raises, too.

    :raises NotGiven: a broker has a message but does not return it.
    """
    low, high = bounds.min, bounds.max
    while low < high:
        middle = (low + high) // 2
        seen = await _first_message(consumer, queue, middle, high)
        if seen is None or seen.store_ms >= ms:
            high = middle
        else:
            low = seen.offset + 1
    return low if low < bounds.max else None


async def _first_message(
    consumer: PullConsumer, queue: MessageQueue, offset: int, end: int
) -> _Seen | None:
    """The first message in [offset, end). Messages that are deleted meanwhile are skipped."""
    while offset < end:
        answer = await consumer.pull(queue, offset, max_messages=1)
        for record in decode_all(answer.body):
            return (
                _Seen(record.queue_offset, record.store_ms) if record.queue_offset < end else None
            )
        if answer.next_offset <= offset:
            raise NotGiven(
                f"{queue}: the broker does not return offset {offset}, "
                f"its queue ends at {answer.max_offset}"
            )
        offset = answer.next_offset
    return None
