"""Consumer offsets and the bounds of a queue: codes 14, 15, 29 to 33, 220 to 223, 314.

See docs/protocol/request-codes.md#clients-to-brokers, docs/protocol/request-codes.md#brokers-to-clients and
docs/protocol/request-codes.md#administrators-and-slaves-to-brokers.
"""

from __future__ import annotations

from dataclasses import dataclass

from roquet.common.units import Int32, Int64
from roquet.protocol.headers import Header


@dataclass(frozen=True, slots=True)
class QueryOffsetHeader(Header):
    consumer_group: str
    topic: str
    queue_id: Int32
    bname: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateOffsetHeader(Header):
    """`only_forward` is ours: less than what the group has already is not taken. (Apache's brokers do not know it.)"""

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
    """`offset` is a physical one."""

    offset: Int64


@dataclass(frozen=True, slots=True)
class ResetOffsetHeader(Header):
    """Codes 220 and 222; a `timestamp` of -1 is the end. Without `is_force` nobody is sent ahead.

    5.x says besides which queue is meant, and at which offset it shall go on; -1 where that is open.
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
    """Without a topic: all that the source has progress in."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
