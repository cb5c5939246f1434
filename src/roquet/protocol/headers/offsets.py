"""Headers about consumer offsets and queue bounds: codes 14, 15, 29 to 33, 220 to 223, 314.

See docs/protocol/request-codes.md#clients-to-brokers,
docs/protocol/request-codes.md#brokers-to-clients and
docs/protocol/request-codes.md#administrators-and-slaves-to-brokers.
"""

from __future__ import annotations

from dataclasses import dataclass

from roquet.common.java import Int32, Int64
from roquet.protocol.headers import Header


@dataclass(frozen=True, slots=True)
class QueryOffsetHeader(Header):
    consumer_group: str
    topic: str
    queue_id: Int32
    bname: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateOffsetHeader(Header):
    """Code 15. `only_forward` is roquet's own: an offset below the group's present one is ignored.

    Apache's brokers do not know that field.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    bname: str | None = None
    only_forward: bool | None = None


@dataclass(frozen=True, slots=True)
class QueueHeader(Header):
    """Codes 30, 31, 32: one queue."""

    topic: str
    queue_id: Int32
    bname: str | None = None


@dataclass(frozen=True, slots=True)
class SearchOffsetHeader(Header):
    topic: str
    queue_id: Int32
    timestamp: Int64
    bname: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetAnswer(Header):
    offset: Int64


@dataclass(frozen=True, slots=True)
class StoreTimeAnswer(Header):
    timestamp: Int64


@dataclass(frozen=True, slots=True)
class ViewMessageHeader(Header):
    """Code 33. `offset` is a physical offset."""

    offset: Int64


@dataclass(frozen=True, slots=True)
class ResetOffsetHeader(Header):
    """Codes 220 and 222. A `timestamp` of -1 is the end of the queues.

    Without `is_force` offsets are only moved back. 5.x also sends a queue id and a queue offset, -1
    if unset.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool = False
    queue_id: Int32 | None = None
    offset: Int64 | None = None


@dataclass(frozen=True, slots=True)
class ConsumerStatusHeader(Header):
    """Codes 221 and 223; `client_addr` is a client id."""

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(frozen=True, slots=True)
class CloneOffsetHeader(Header):
    """Code 314. Without a topic: all topics in which the source group has offsets."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
