"""Pulling: PULL_MESSAGE 11, LITE_PULL_MESSAGE 361 (protocol.md 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roquet.protocol.headers import Header

# sysFlag of a pull
COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4
CLASS_FILTER: Final = 8
LITE_PULL: Final = 16


@dataclass(frozen=True, slots=True)
class PullHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_millis: int = 0
    subscription: str | None = None
    sub_version: int = 0
    expression_type: str | None = None
    bname: str | None = None


@dataclass(frozen=True, slots=True)
class PullAnswer(Header):
    """All four go with every answer of code 0, 19, 20 and 21."""

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
