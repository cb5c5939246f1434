"""A new record: the fields that its writer does not compute."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from struct import Struct
from typing import Final

from roquet.protocol.records.layout import pack_into, record_struct
from roquet.storage.queues.consume_queue import ConsumeQueue

NO_PLACE: Final = "the message was not stored, a value in it does not fit its field: {}"


@dataclass(slots=True)
class NewRecord:
    """The fields of a record that will be appended to `queue`.

    Hosts are address and port and `properties` are bytes as stored; times are ms since 1970.

    Invariant: the IPv6 bits of `sys_flag` are those of the hosts. They are not computed here: most
    records of one client have the same ones, and making a record for each of its sends is to cost
    no more than handing on its fields.
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

    def layout(self) -> Struct:
        """The struct that packs the record.

        :raises ValueError: the topic or the properties are too large for a record.
        """
        return record_struct(
            self.sys_flag, len(self.body), len(self.queue.topic_bytes), len(self.properties)
        )

    def pack_into(
        self,
        buffer: mmap.mmap | bytearray,
        index: int,
        pack: Struct,
        queue_offset: int,
        at: int,
        store_ms: int,
    ) -> None:
        """Write the record at physical offset `at` into `buffer`.

        :param index: of the record's first byte in `buffer`.
        :param pack: the record's `layout`.
        :raises ValueError, struct.error: a value does not fit its field; some bytes may be written.
        """
        queue = self.queue
        pack_into(
            pack,
            buffer,
            index,
            queue.queue_id,
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
            self.body,
            queue.topic_bytes,
            self.properties,
        )
