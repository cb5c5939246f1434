"""Checks batches and turns their messages into records.

See docs/protocol/messages.md#batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from roquet.broker.config.limits import refuse_long_properties
from roquet.broker.handlers.send_context import SendContext
from roquet.broker.handlers.send_plan import SendPlan, SendValues
from roquet.broker.transactions.half_messages import is_half_message
from roquet.common.steps import Steps
from roquet.errors import Refused
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


MakeItem = Callable[[int, bytes, bytes], BatchItem]
"""(flag, body, properties) of a message in a batch -> the item to store. Raises Refused."""


class Batches:
    """Checks batches and packs their messages into records.

    `stored_size_max` is how many bytes the records of one batch may take in the log. Each record
    has the properties of the whole batch: without a limit a body within `maxMessageSize` could
    become gigabytes.
    """

    def __init__(self, send_context: SendContext) -> None:
        self._delay_levels = send_context.config.delay_levels
        self._store_host = send_context.store.config.store_host
        size_max = min(send_context.config.store.message_size_max, FRAME_SIZE_MAX)
        self.stored_size_max = size_max + RECORD_OVERHEAD_MAX

    def packed(self, plan: SendPlan, values: SendValues) -> Steps[BatchRecords]:
        """The records of a batch, packed in steps of 32 small messages.

        Each record gets the properties of the batch, but a message that has a unique key keeps its
        own: 5.x clients give the batch a unique key, too, and show those of the messages as ids.

        :raises Refused: the batch is too large, delayed or empty; a message may not be in a batch;
            or the records are too large.
        :raises ValueError: the body is damaged, or a value does not fit its field.
        """
        body = values.body
        plan.check_body(len(body))
        _refuse_level(plan.level)
        if not body:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch has no messages")
        make_item = self.item_maker(plan, values.pairs)
        records = BatchRecords(
            plan.topic.encode(),
            values.queue_id,
            plan.sys_flag,
            values.born_ms,
            plan.born_host,
            self._store_host,
            plan.reconsume_times,
        )
        cost = 0
        for flag, data, properties in split_batch(body):
            item = make_item(flag, data, properties)
            records.add(item)
            if len(records.data) > self.stored_size_max:
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
            f"{self.stored_size_max} bytes in the log (maxMessageSize + {RECORD_OVERHEAD_MAX}), "
            "fixed fields and properties included: send it as several batches"
        )

    def item_maker(self, plan: SendPlan, pairs: Mapping[str, str]) -> MakeItem:
        """A function that turns messages of a batch into items to store.

        The properties of the batch are encoded once, not per message.

        :param pairs: the properties of the batch.
        """
        shared = plan.stored_pairs(pairs, 0)
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
        _refuse_level(self._delay_levels.level_of(pairs))
        if is_half_message(pairs, 0):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, "a transactional message cannot be in a batch"
            )
        refuse_long_properties(len(properties), "the properties of a message in a batch")
        return BatchItem(flag, body, properties, keys_of(pairs), m.tag_code(pairs.get(m.TAGS)))


def _refuse_level(level: int) -> None:
    """:raises Refused: a batch, or a message in one, has a delay level."""
    if level:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            "messages of a batch cannot be delayed: send them one by one",
        )
