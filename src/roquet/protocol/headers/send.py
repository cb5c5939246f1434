"""Headers of sends: messages 10 and 310, batches 320, send back 36, replies 324 and 325.

See docs/protocol/producing.md#a-sends-header and docs/protocol/producing.md#request-and-reply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from roquet.common.java import Int32, Int64
from roquet.protocol.headers import Header
from roquet.protocol.records.message import DEFAULT_TOPIC


@dataclass(frozen=True, slots=True)
class SendHeader(Header):
    """A send with full field names (code 10)."""

    producer_group: str
    topic: str
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    default_topic: str = DEFAULT_TOPIC
    default_topic_queue_nums: Int32 = 4
    properties: str = ""
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int32 | None = None
    bname: str | None = None


@dataclass(frozen=True, slots=True)
class SendHeaderV2(SendHeader):
    """A send with one-letter field names (codes 310 and 320)."""

    SPELLING: ClassVar = {
        "producer_group": "a",
        "topic": "b",
        "default_topic": "c",
        "default_topic_queue_nums": "d",
        "queue_id": "e",
        "sys_flag": "f",
        "born_timestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsume_times": "j",
        "unit_mode": "k",
        "max_reconsume_times": "l",
        "batch": "m",
        "bname": "n",
    }


@dataclass(frozen=True, slots=True)
class SendAnswer(Header):
    """The answer to a send.

    `msg_id` is the offset message id (of a batch: all, joined by commas). `queue_offset` is that of
    the first message.
    """

    SPELLING: ClassVar = {"msg_region": "MSG_REGION", "trace_on": "TRACE_ON"}

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    msg_region: str | None = "DefaultRegion"
    trace_on: bool | None = True


@dataclass(frozen=True, slots=True)
class SendBackHeader(Header):
    """Sends back a message that a group failed to consume (code 36), by its physical offset.

    `delay_level`: 0 leaves the delay to the broker; below 0 the message goes to the dead letter
    topic.
    """

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    bname: str | None = None
