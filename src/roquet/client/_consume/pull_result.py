"""PURE: the result of a pull."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

from roquet.client.received import MessageSource, ReceivedMessage
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from roquet.protocol.records.message import TAGS
from roquet.protocol.records.namespace import NO_NAMESPACE, Namespace
from roquet.protocol.records.record import Record, decode_all
from roquet.protocol.remoting.codes import ResponseCode

EVERYTHING: Final = TagFilter()


class PullStatus(Enum):
    """The status of a pull.

    - FOUND: there are messages.
    - NO_NEW: there is no message at or after the offset yet.
    - NO_MATCHED: the broker found only messages that the filter does not select.
    - OFFSET_ILLEGAL: the offset is outside the queue; `next_offset` is inside.
    """

    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class PullResult:
    """The result of a pull.

    `next_offset` is the offset of the next pull, whatever the status is (docs/pitfalls.md#trap-56).
    `min_offset` and `max_offset` are the bounds of the queue (the maximum is exclusive).
    `suggested_broker_id` is the replica that the broker suggests for the next pull. `body` has the
    stored messages as the broker sent them. Brokers compare only hashes of tags, so `body` may
    contain messages with other tags; `messages` leaves them out. `of_master` is True if a master
    answered; a slave may lag, and may lack old messages. `broker_name` is that of the queue.
    `uncompressed_max` limits the decompressed body of each message, in bytes. `names` is the
    namespace of the client.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes = field(default=b"", repr=False)
    tag_filter: TagFilter = EVERYTHING
    of_master: bool = True
    broker_name: str = ""
    uncompressed_max: int = UNCOMPRESSED_MAX
    names: Namespace = field(default=NO_NAMESPACE, repr=False, compare=False)

    @cached_property
    def messages(self) -> list[ReceivedMessage]:
        """The messages of `body` with a selected tag (docs/pitfalls.md#trap-55).

        A body that cannot be decoded is an error of that message, when its `body` is asked for.

        :raises CorruptRecord: `body` is not a sequence of stored messages.
        """
        bounds = (self.min_offset, self.max_offset)
        source = MessageSource(self.broker_name, bounds, self.uncompressed_max, self.names)
        return [
            ReceivedMessage(record, source, record.reconsume_times)
            for record in selected_records(self)
        ]


def selected_records(result: PullResult) -> list[Record]:
    """The stored messages of a pull with a selected tag. Each call decodes them again.

    :raises CorruptRecord: the answer is not a sequence of stored messages.
    """
    if not result.tag_filter.tags:
        return list(decode_all(result.body))
    return [
        record
        for record in decode_all(result.body)
        if result.tag_filter.wants_tag(record.properties.get(TAGS))
    ]
