"""Sending failed messages back to a broker, which delivers them again later.

See docs/protocol/consuming.md#sending-a-message-back.
"""

from __future__ import annotations

import logging
from typing import Final

from roquet.client._consume.prefetch import Delivery
from roquet.client._net.outages import level_of
from roquet.client._net.routes import NewTopics, masters_only
from roquet.client._net.session import Session
from roquet.client._send.encoded_message import EncodedMessage
from roquet.client._send.sender import Sender, SendRules
from roquet.client._send.topic_routes import TopicRoutes
from roquet.client.received import DEAD_LETTER_LEVEL
from roquet.errors import RoquetError
from roquet.protocol.records.message import (
    COMPRESSED,
    COMPRESSION_TYPE_BITS,
    DELAY,
    MAX_RECONSUME_TIMES,
    PRODUCER_GROUP,
    REAL_QID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_PREFIX,
    RETRY_TOPIC,
    TRAN_MSG,
    UNIQ_KEY,
    MessageQueue,
    join_properties,
)
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked

log = logging.getLogger(__name__)

INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
TIMEOUT_MS: Final = 5000
COPY_RETRIES: Final = 2
"""As Java's consumer. If all fail, the consumer keeps the message and delivers it again itself."""
FIRST_DELAY_LEVEL: Final = 3
_NOT_COPIED: Final = frozenset(
    (TRAN_MSG, PRODUCER_GROUP, REAL_TOPIC, REAL_QID, DELAY, RECONSUME_TIME, MAX_RECONSUME_TIMES)
)
"""Properties that would take effect a second time in the copy (docs/pitfalls.md#trap-38)."""


class NoSendBack:
    """Replaces `SendBack` in broadcasting members: drops failed messages.

    A message that is sent back would be delivered to the whole group.
    """

    async def send_back(self, delivery: Delivery, _delay_level: int = 0) -> bool:
        """Drop the message, whatever the delay level is."""
        return await self.give_up(delivery)

    async def give_up(self, delivery: Delivery) -> bool:
        """Drop the message and log it."""
        log.warning(
            "message failed, it is not delivered again (broadcast): msgId=%s topic=%s",
            delivery.record.offset_message_id,
            delivery.record.topic,
        )
        return True


class SendBack:
    """Sends failed messages back to a broker.

    The broker delivers them again after 10 s, 30 s, 1 min ..., and moves them to the dead letter
    topic after `max_reconsume_times` deliveries.
    """

    def __init__(self, session: Session, group: str, max_reconsume_times: int) -> None:
        self._session = session
        self._group = group
        self._max = max_reconsume_times
        rules = SendRules(retries=COPY_RETRIES)
        routes = TopicRoutes(session, NewTopics(are_of_unit=session.unit_mode))
        self._sender = Sender(session, routes, INNER_PRODUCER, rules)

    async def send_back(self, delivery: Delivery, delay_level: int = 0) -> bool:
        """Send a message back; return whether a broker accepted it. Errors are logged.

        :param delay_level: of the next delivery; 0 means one more after each delivery, -1 means
            the dead letter topic.
        """
        try:
            await self._request_send_back(delivery, delay_level)
        except RoquetError as error:
            log.log(
                level_of(error),
                "message not sent back, a copy is sent: msgId=%s topic=%s error=%s",
                delivery.record.offset_message_id,
                delivery.record.topic,
                error,
            )
            return await self._send_copy(delivery, delay_level)
        delivery.process_queue.counters.sent_back += 1
        return True

    async def give_up(self, delivery: Delivery) -> bool:
        """Move a message to the dead letter topic; return whether a broker accepted it."""
        return await self._send_copy(delivery, DEAD_LETTER_LEVEL)

    async def _request_send_back(self, delivery: Delivery, delay_level: int) -> None:
        record = delivery.record
        queue = MessageQueue(record.topic, delivery.broker_name, record.queue_id)
        fields = {
            "offset": str(record.physical_offset),
            "group": self._group,
            "delayLevel": str(delay_level),
            "originMsgId": record.properties.get(UNIQ_KEY, record.offset_message_id),
            "originTopic": record.topic,
            "unitMode": "true" if self._session.unit_mode else "false",
            "maxReconsumeTimes": str(self._max),
            "bname": delivery.broker_name,
        }
        request = Command(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        at, response = await self._session.brokers.call(queue, request, TIMEOUT_MS, masters_only)
        checked(response, at.address)

    async def _send_copy(self, delivery: Delivery, delay_level: int) -> bool:
        """Send a copy to the retry topic; return whether a broker accepted it.

        The copy may go to any broker, because the one with the original may be down or may have
        deleted it (docs/pitfalls.md#trap-36).
        """
        try:
            await self._sender.send(
                self._copy(delivery.record, delivery.reconsume_times, delay_level), TIMEOUT_MS
            )
        except RoquetError as error:
            log.log(
                level_of(error),
                "copy of a failed message not sent: msgId=%s topic=%s error=%s",
                delivery.record.offset_message_id,
                delivery.record.topic,
                error,
            )
            return False
        delivery.process_queue.counters.sent_back += 1
        return True

    def _copy(self, record: Record, reconsume_times: int, delay_level: int) -> EncodedMessage:
        properties = {
            name: value for name, value in record.properties.items() if name not in _NOT_COPIED
        }
        properties.setdefault(RETRY_TOPIC, record.topic)
        properties[DELAY] = str(delay_level or FIRST_DELAY_LEVEL + reconsume_times)
        unique_key = properties.setdefault(UNIQ_KEY, record.offset_message_id)
        return EncodedMessage(
            RETRY_PREFIX + self._group,
            record.body,
            (unique_key,),
            join_properties(properties),
            record.flag,
            record.sys_flag & (COMPRESSED | COMPRESSION_TYPE_BITS),
            reconsume_times=reconsume_times + 1,
            max_reconsume_times=self._max if delay_level >= 0 else 0,
        )
