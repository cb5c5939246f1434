"""Headers of admin requests to a broker: topics, groups, statistics, queries by key (code 12).

See docs/protocol/request-codes.md#administrators-and-slaves-to-brokers, docs/pitfalls.md#trap-45
and docs/protocol/administration.md#query-by-key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from roquet.common.java import Int32, Int64
from roquet.protocol.headers import Header
from roquet.protocol.records.message import READ_WRITE


@dataclass(frozen=True, slots=True)
class CreateTopicHeader(Header):
    topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32 = READ_WRITE
    default_topic: str | None = None
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False


@dataclass(frozen=True, slots=True)
class TopicHeader(Header):
    """Codes 202, 215, 300 and 351: one topic."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeleteGroupHeader(Header):
    """Code 207. `clean_offset` is 5.x's name for `remove_offset`."""

    group_name: str
    remove_offset: bool = False
    clean_offset: bool = False


@dataclass(frozen=True, slots=True)
class GroupHeader(Header):
    """Codes 203 and 208: one group, optionally one of its topics."""

    consumer_group: str
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class GroupConfigHeader(Header):
    """Code 352."""

    group: str


@dataclass(frozen=True, slots=True)
class StatsHeader(Header):
    """Code 315: the statistic, such as TOPIC_PUT_NUMS, and its key, such as a topic's name."""

    stats_name: str
    stats_key: str


@dataclass(frozen=True, slots=True)
class ConsumeStatsHeader(Header):
    """Code 317."""

    is_order: bool = False


@dataclass(frozen=True, slots=True)
class ProducerGroupHeader(Header):
    producer_group: str


@dataclass(frozen=True, slots=True)
class PromoteHeader(Header):
    """Code 31001: promotes a slave, on the operator's responsibility.

    `role`: SYNC_MASTER or ASYNC_MASTER. `fenced`: the old master is stopped or cut off. `forced`:
    promote even if messages are lost by it.
    """

    role: str
    fenced: bool = False
    forced: bool = False


@dataclass(frozen=True, slots=True)
class QueryMessageHeader(Header):
    SPELLING: ClassVar = {"unique_key": "_UNIQUE_KEY_QUERY"}

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key: bool = False


@dataclass(frozen=True, slots=True)
class QueryMessageAnswer(Header):
    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64
