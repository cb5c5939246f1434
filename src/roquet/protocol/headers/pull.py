"""Headers of pulls: PULL_MESSAGE 11, LITE_PULL_MESSAGE 361.

See docs/protocol/consuming.md#the-header-of-a-pull.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roquet.common.java import Int32, Int64
from roquet.protocol.headers import Header

# sysFlag of a pull
COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4


@dataclass(frozen=True, slots=True)
class PullHeader(Header):
    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64 = 0
    subscription: str | None = None
    sub_version: Int64 = 0
    expression_type: str | None = None
    bname: str | None = None


@dataclass(frozen=True, slots=True)
class PullAnswer(Header):
    """The answer to a pull. All four fields are sent with codes 0, 19, 20 and 21."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
