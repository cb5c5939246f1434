"""A record to append with given hosts: a message that is stored again, as in another queue."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from zlib import crc32

from roquet.protocol.records import message as m
from roquet.protocol.records.record import MAGIC, UNTELLABLE, UNWRITTEN, host_bits, layout
from roquet.storage.queues.consume_queue import ConsumeQueue

_HOST_BITS = m.BORN_HOST_V6 | m.STORE_HOST_V6


@dataclass(slots=True)
class NewRecord:
    """The fields of a record that will be appended to `queue`.

    Hosts are address and port and `properties` are bytes as stored; times are ms since 1970. The
    IPv6 bits of `sys_flag` are set from the hosts.
    """

    queue: ConsumeQueue
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int = 0
    prepared_offset: int = 0

    def __post_init__(self) -> None:
        self.sys_flag = self.sys_flag & ~_HOST_BITS | host_bits(self.born_host, self.store_host)

    @property
    def takes_a_slot(self) -> bool:
        """Whether the record gets a queue entry. Prepared and rolled back records do not."""
        return not self.sys_flag & m.TRANSACTION_PREPARED

    @property
    def layout(self) -> Struct:
        """The struct that packs the record."""
        return layout(
            self.sys_flag, len(self.body), len(self.queue.topic_bytes), len(self.properties)
        )

    def pack(self, pack: Struct, queue_offset: int, at: int, store_ms: int) -> bytes:
        """The bytes of the record at physical offset `at`.

        :param pack: the record's `layout`.
        :raises ValueError, struct.error: a value does not fit its field.
        """
        topic = self.queue.topic_bytes
        if self.properties.endswith(UNWRITTEN):
            raise ValueError(UNTELLABLE)
        return pack.pack(
            pack.size,
            MAGIC,
            crc32(self.body) & 0x7FFFFFFF,
            self.queue.queue_id,
            self.flag,
            queue_offset,
            at,
            self.sys_flag,
            self.born_ms,
            self.born_host,
            store_ms,
            self.store_host,
            self.reconsume_times,
            self.prepared_offset,
            len(self.body),
            self.body,
            len(topic),
            topic,
            len(self.properties),
            self.properties,
        )
