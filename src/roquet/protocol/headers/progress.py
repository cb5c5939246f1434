"""Consumer offsets and the bounds of a queue: codes 14, 15, 29 to 33 (protocol.md 2.2)."""

from __future__ import annotations

from dataclasses import dataclass

from roquet.protocol.headers import Header


@dataclass(frozen=True, slots=True)
class QueryOffsetHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    bname: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateOffsetHeader(Header):
    """`only_forward` is ours: less than what the group has already is not taken. (Apache's brokers do not know it.)"""

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int
    bname: str | None = None
    only_forward: bool | None = None


@dataclass(frozen=True, slots=True)
class QueueHeader(Header):
    """Codes 30, 31, 32: one queue."""

    topic: str
    queue_id: int
    bname: str | None = None


@dataclass(frozen=True, slots=True)
class SearchOffsetHeader(Header):
    topic: str
    queue_id: int
    timestamp: int
    bname: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetAnswer(Header):
    offset: int


@dataclass(frozen=True, slots=True)
class StoreTimeAnswer(Header):
    timestamp: int


@dataclass(frozen=True, slots=True)
class ViewMessageHeader(Header):
    """`offset` is a physical one."""

    offset: int
