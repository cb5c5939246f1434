"""The offset from which a consumer starts to pull a queue.

See docs/protocol/consuming.md#where-a-group-begins.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from roquet.client._consume.offsets import TIMEOUT_MS, OffsetStore
from roquet.client._net import queue_calls
from roquet.client._net.session import Session
from roquet.protocol.bodies.tables import FROM_FIRST, FROM_LAST, FROM_TIMESTAMP
from roquet.protocol.records.message import RETRY_PREFIX, MessageQueue

Start: TypeAlias = Literal["last", "first"] | datetime
"""Where a group without a stored offset begins: the end, the beginning, or a store time."""


def wire_name(start: Start) -> str:
    """The name of `start` in heartbeats (`consumeFromWhere`)."""
    if isinstance(start, datetime):
        return FROM_TIMESTAMP
    return FROM_FIRST if start == "first" else FROM_LAST


async def start_offset(
    session: Session, offsets: OffsetStore, queue: MessageQueue, start: Start
) -> int:
    """The stored offset of the group, or the one that `start` selects if none is stored.

    For a young queue brokers answer 0 instead of none, so a new group gets all of a young topic
    whatever `start` is (docs/pitfalls.md#trap-29).

    :raises RoquetError: no broker could tell the offset.
    """
    stored = await offsets.load(queue)
    if stored is not None and stored >= 0:
        return stored
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if isinstance(start, datetime) and not is_retry:
        return await queue_calls.offset_at(
            session, queue, int(start.timestamp() * 1000), TIMEOUT_MS
        )
    # All messages of the retry topic belong to this group, whatever `start` is.
    if start == "first" or is_retry:
        return max(0, await queue_calls.min_offset(session, queue, TIMEOUT_MS))
    return await queue_calls.max_offset(session, queue, TIMEOUT_MS)
