"""PURE: what a pull brought."""

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
    """FOUND: records came. NO_NEW: nothing there yet. NO_MATCHED: only messages that are not wanted.
    OFFSET_ILLEGAL: the offset lies outside the queue, `next_offset` is where it can go on.
    """

    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to a pull.

    `next_offset` is where the next pull starts, whatever the status (docs/pitfalls.md#trap-56). `body` holds the stored
    messages as the broker sent them; it compares hashes of tags, so a few of them may have another tag than those
    wanted. `of_master`: a master answered; a slave may lag, and may lack old messages.
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
        """The messages of `body`, decoded anew at each call; only those with a wanted tag (docs/pitfalls.md#trap-55).

        :raises CorruptRecord: the bytes are no stored messages.
        """
        if not self.tag_filter.tags:
            return list(decode_all(self.body))
        return [
            record
            for record in decode_all(self.body)
            if self.tag_filter.wants_tag(record.properties.get(TAGS))
        ]
