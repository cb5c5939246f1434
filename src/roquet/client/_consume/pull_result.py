"""PURE: the result of a pull."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.message import TAGS
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


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of a pull.

    `next_offset` is the offset of the next pull, whatever the status is (docs/pitfalls.md#trap-56).
    `min_offset` and `max_offset` are the bounds of the queue (the maximum is exclusive).
    `suggested_broker_id` is the replica that the broker suggests for the next pull. `body` has the
    stored messages as the broker sent them. Brokers compare only hashes of tags, so `body` may
    contain messages with other tags; `records` leaves them out. `of_master` is True if a master
    answered; a slave may lag, and may lack old messages.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes = b""
    tag_filter: TagFilter = EVERYTHING
    of_master: bool = True

    @property
    def records(self) -> list[Record]:
        """The stored messages of `body` with a selected tag (docs/pitfalls.md#trap-55).

        Each access decodes `body` again. The bodies of the messages are as stored, perhaps
        compressed: see `plain_body`.

        :raises CorruptRecord: `body` is not a sequence of stored messages.
        """
        if not self.tag_filter.tags:
            return list(decode_all(self.body))
        return [
            record
            for record in decode_all(self.body)
            if self.tag_filter.wants_tag(record.properties.get(TAGS))
        ]
