"""Where a group begins with a queue.

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
"""For a group that has no progress yet: only what comes from now on, all there is, or what was stored since then."""


def wire_name(start: Start) -> str:
    """As heartbeats say it."""
    if isinstance(start, datetime):
        return FROM_TIMESTAMP
    return FROM_FIRST if start == "first" else FROM_LAST


async def start_offset(
    session: Session, progress: OffsetStore, queue: MessageQueue, start: Start
) -> int:
    """The offset stored for the group, else the one that `start` means.

    Brokers claim a stored 0 for a young queue, so a new group gets all of a young topic whatever `start` is
    (docs/pitfalls.md#trap-29).

    :raises RoquetError: it cannot be found out now.
    """
    stored = await progress.load(queue)
    if stored is not None and stored >= 0:
        return stored
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if isinstance(start, datetime) and not is_retry:
        return await queue_calls.offset_at(
            session, queue, int(start.timestamp() * 1000), TIMEOUT_MS
        )
    if (
        start == "first" or is_retry
    ):  # what lies in the retry topic is meant for this group, whenever it came
        return max(0, await queue_calls.min_offset(session, queue, TIMEOUT_MS))
    return await queue_calls.max_offset(session, queue, TIMEOUT_MS)
