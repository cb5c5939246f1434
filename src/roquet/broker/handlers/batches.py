"""Checks batches and turns their messages into records.

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
"""Bytes by which the records of a batch may exceed `maxMessageSize`; as in Apache's broker."""
_STEP: Final = 32
"""Cost of one step: 32 small messages."""
_KEYS_PER_COST: Final = 32
"""This many keys take as long as one message."""
_BYTES_PER_COST: Final = 4096
"""This many bytes of body and properties take as long as one message."""


def stored_size_max(config: SendConfig) -> int:
    """How many bytes the records of one batch may take in the log.

    Each record has the properties of the whole batch: without a limit a body within
    `maxMessageSize` could become gigabytes.
    """
    return min(config.message_size_max, FRAME_SIZE_MAX) + RECORD_OVERHEAD_MAX


class Batches:
    """Checks batches and packs their messages into records."""

    def __init__(self, send_context: SendContext) -> None:
        self._config = send_context.config
        self._store_host = send_context.store.config.store_host
        self._stored_size_max = stored_size_max(send_context.config)

    def check(self, header: SendHeader, body: bytes) -> None:
        """Check what can be checked without the messages.

        :raises Refused: the batch is compressed, transactional, delayed, empty, too large, or goes
            to a retry topic.
        """
        if header.sys_flag & (m.COMPRESSED | m.TRANSACTION_BITS) or header.topic.startswith(
            m.RETRY_PREFIX
        ):
            remark = "a batch cannot be compressed, be transactional or go to a retry topic"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        size_max = self._config.message_size_max
        if len(body) > size_max:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the body of the batch has {len(body)} bytes, maxMessageSize allows {size_max}",
            )
        self._refuse_delay(m.split_properties(header.properties))
        if not body:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch has no messages")

    def packed(
        self, header: SendHeader, queue_id: int, sys_flag: int, born_host: bytes, body: bytes
    ) -> Steps[BatchRecords]:
        """The records of a batch that `check` accepted, packed in steps of 32 small messages.

        Each record gets the properties of the batch, but a message that has a unique key keeps its
        own: 5.x clients give the batch a unique key, too, and show those of the messages as ids.

        :raises Refused: a message may not be in a batch, or the records are too large.
        :raises ValueError: the body is damaged, or a value does not fit its field.
        """
        make_item = self.item_maker(header)
        records = BatchRecords(
            header.topic.encode(),
            queue_id,
            sys_flag,
            header.born_timestamp,
            born_host,
            self._store_host,
            header.reconsume_times,
        )
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
            for _ in range(cost // _STEP):  # large messages: steps are counted, not timed
                yield
            cost %= _STEP
        return records

    def _too_large(self, count: int, size: int) -> str:
        """The remark for a batch whose records are too large; Apache's limit is the same."""
        return (
            f"the first {count} messages of a batch of {size} bytes take more than "
            f"{self._stored_size_max} bytes in the log (maxMessageSize + {RECORD_OVERHEAD_MAX}), "
            "fixed fields and properties included: send it as several batches"
        )

    def item_maker(self, header: SendHeader) -> MakeItem:
        """A function that turns messages of this batch into items to store.

        The properties of the batch are encoded once, not per message.
        """
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
            remark = (
                f"the properties of a message in a batch have {len(properties)} bytes, "
                f"at most {m.PROPERTIES_SIZE_MAX} are allowed"
            )
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
