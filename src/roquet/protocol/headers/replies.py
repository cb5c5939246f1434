"""The header of replies that a broker pushes to a client: code 326.

Every client loads it, but none of the headers of sends: `client/_send` packs those itself. See
docs/protocol/producing.md#request-and-reply.
"""

from __future__ import annotations

from dataclasses import dataclass

from roquet.common.java import Int32, Int64
from roquet.protocol.headers import Header
from roquet.protocol.records.message import DEFAULT_TOPIC


@dataclass(frozen=True, slots=True)
class PushReplyHeader(Header):
    """Code 326: a reply that the broker pushes to the client that asked.

    Hosts are `address:port`.
    """

    producer_group: str
    topic: str
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    default_topic: str = DEFAULT_TOPIC
    default_topic_queue_nums: Int32 = 4
    properties: str = ""
    reconsume_times: Int32 = 0
    unit_mode: bool = False
