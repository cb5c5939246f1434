"""The messages of a batch as they are stored.

See docs/protocol/messages.md#batch.
"""

from __future__ import annotations

from typing import Final

from roquet.broker.handlers.fastpath.send_template import MakeItem
from roquet.broker.handlers.send_context import SendConfig, SendContext
from roquet.broker.transactions.half_messages import is_half_message
from roquet.common.steps import Steps
from roquet.errors import MessageError, Refused
from roquet.protocol.headers.send import SendHeader
from roquet.protocol.records import message as m
from roquet.protocol.records.batch import split_batch
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX
from roquet.storage.batch_records import BatchItem, BatchRecords
from roquet.storage.log.dispatch_request import keys_of

RECORD_OVERHEAD_MAX: Final = 65536
"""How much larger than `maxMessageSize` the records of a batch may be together, in Apache's broker as well."""
_STEP: Final = 32
_KEYS_PER_COST: Final = 32
_BYTES_PER_COST: Final = 4096
"""A step has `_STEP` messages; so many keys, or bytes, take as long as one message."""


def stored_size_max(config: SendConfig) -> int:
    """Bytes that the records of one batch may take in the log. Each has the properties of the whole batch, so that a
    body within `maxMessageSize` could become gigabytes."""
    return min(config.message_size_max, FRAME_SIZE_MAX) + RECORD_OVERHEAD_MAX


class Batches:
    """Checks batches and packs their records."""

    def __init__(self, send_context: SendContext) -> None:
        self._config = send_context.config
        self._store_host = send_context.store.config.store_host
        self._stored_size_max = stored_size_max(send_context.config)

    def check(self, header: SendHeader, body: bytes) -> None:
        """:raises Refused: no batch may be like that, whatever its messages are."""
        if header.sys_flag & (m.COMPRESSED | m.TRANSACTION_BITS) or header.topic.startswith(
            m.RETRY_PREFIX
        ):
            remark = "a batch can neither be compressed, nor transactional, nor go to a retry topic"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        size_max = self._config.message_size_max
        if len(body) > size_max:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"body of {len(body)} bytes, maxMessageSize is {size_max}",
            )
        self._refuse_delay(m.split_properties(header.properties))
        if not body:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch without messages")

    def packed(
        self, header: SendHeader, queue_id: int, sys_flag: int, born_host: bytes, body: bytes
    ) -> Steps[BatchRecords]:
        """The records of a batch that `check` has passed.

        All get the properties of the batch, but a message that has a unique key keeps it: clients of 5.x give the batch
        one of its own, beside those that they show as ids of the messages.

        :raises Refused: a message may not be in a batch, or the records are too many. ValueError: the body is damaged,
            or a value does not fit its field.
        """
        make_item = self.item_maker(header)
        records = BatchRecords(
            header.topic.encode(), queue_id, sys_flag, header.born_timestamp, born_host, self._store_host,
            header.reconsume_times,
        )  # fmt: skip
        cost = 0
        for flag, data, properties in split_batch(body):
            item = make_item(flag, data, properties)
            records.add(item)
            if len(records.data) > self._stored_size_max:
                raise Refused(
                    ResponseCode.MESSAGE_ILLEGAL, self._too_large(len(records), len(body))
                )
            cost += (
                1
                + len(item.keys) // _KEYS_PER_COST
                + (len(data) + len(item.properties)) // _BYTES_PER_COST
            )
            for _ in range(cost // _STEP):  # so that steps can be counted instead of timed
                yield
            cost %= _STEP
        return records

    def _too_large(self, count: int, size: int) -> str:
        """Apache's broker has the same limit, and its clients' batches rarely come near it."""
        return (
            f"a batch of {size} bytes whose first {count} messages take more than {self._stored_size_max} bytes in the "
            f"log (maxMessageSize + {RECORD_OVERHEAD_MAX}), fixed fields and properties included: "
            "send it as several batches"
        )

    def item_maker(self, header: SendHeader) -> MakeItem:
        """What makes stored messages of a batch's; the batch's own properties are prepared once."""
        shared = {**m.split_properties(header.properties), m.CLUSTER: self._config.cluster}
        for_keyless = m.join_properties(shared).encode()
        shared.pop(m.UNIQ_KEY, None)
        for_keyed = m.join_properties(shared).encode()
        return lambda flag, body, properties: self._item(
            flag, body, properties, for_keyed, for_keyless
        )

    def _item(
        self, flag: int, body: bytes, properties: bytes, for_keyed: bytes, for_keyless: bytes
    ) -> BatchItem:
        pairs = m.split_properties(properties.decode())
        if properties and not properties.endswith(m.PROPERTY_SEPARATOR.encode()):
            properties += m.PROPERTY_SEPARATOR.encode()
        properties += for_keyed if m.UNIQ_KEY in pairs else for_keyless
        self._refuse_delay(pairs)
        if is_half_message(pairs, 0):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, "a transactional message cannot be in a batch"
            )
        if len(properties) > m.PROPERTIES_SIZE_MAX:
            remark = f"properties of {len(properties)} bytes in a batch, allowed are {m.PROPERTIES_SIZE_MAX}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        return BatchItem(flag, body, properties, keys_of(pairs), m.tag_code(pairs.get(m.TAGS)))

    def _refuse_delay(self, pairs: dict[str, str]) -> None:
        try:
            level = self._config.delay_levels.level_of(pairs)
        except MessageError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        if level:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                "messages of a batch cannot be delayed: send them one by one",
            )
