"""CONSUMER_SEND_MSG_BACK 36: stores messages that a group failed to consume, for a later retry.

See docs/broker/retries.md.
"""

from __future__ import annotations

from typing import Final

from roquet.broker.config.delay_levels import put_aside, waiting_queue
from roquet.broker.config.limits import refuse_long_properties
from roquet.broker.handlers.query import message_at
from roquet.broker.handlers.send_context import SendContext, tries_max
from roquet.broker.metrics.traffic import Traffic
from roquet.common.java import INT_MAX
from roquet.errors import Refused
from roquet.protocol.bodies.tables import UNIT_SUBSCRIPTION, GroupConfig, TopicConfig
from roquet.protocol.headers.send import SendBackHeader
from roquet.protocol.records import message as m
from roquet.protocol.records.record import Record, decode
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.new_record import NewRecord
from roquet.transport.connection import Connection, Handler
from roquet.transport.handling import Answer

FIRST_LEVEL: Final = 3
"""The delay level of the first retry if the consumer sets none; it grows by 1 with each retry."""


class SendBackHandler:
    """Stores a copy of a message for one group: delayed in its retry topic, or in its dead letters.

    The ack gate holds the answer like that of a send. If disk or slave are late, it is SUCCESS
    nevertheless: the copy is stored, and on an error clients would store another one. Apache's
    broker does not wait at all.
    """

    def __init__(self, send_context: SendContext, traffic: Traffic) -> None:
        self._send_context = send_context
        self._store = send_context.store
        self._delay_levels = send_context.config.delay_levels
        self._traffic = traffic

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.take_back}

    def take_back(self, request: Command, connection: Connection) -> Answer:
        self._send_context.check(is_send=False)
        header = SendBackHeader.read(request.fields)
        group = self._group(header)
        answer = request.answer(ResponseCode.SUCCESS)
        if group.retry_queues <= 0:
            return answer
        topic = self._retry_topic(group, header)
        record = decode(message_at(self._store, header.offset))
        times_max = tries_max(group, request.version, header.max_reconsume_times)
        if record.reconsume_times >= times_max or header.delay_level < 0:
            copy = self._dead_letter(group, record)
        else:
            copy = self._retry(topic, group, header.delay_level, record)
        self._store.writer.append_records([copy])
        self._traffic.sent_back(record.properties.get(m.RETRY_TOPIC, record.topic), group.name)
        self._send_context.turn.due()
        if self._send_context.ack_gate.waits and not request.is_one_way:
            return self._send_context.ack_gate.hold(
                connection, answer.encode(), self._store.log.end, reports_miss=False
            )
        return answer

    def _group(self, header: SendBackHeader) -> GroupConfig:
        group = self._send_context.groups.get_or_create(header.group)
        if not self._send_context.config.is_writable:
            remark = "brokerPermission does not allow consumers to send messages back"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        return group

    def _retry_topic(self, group: GroupConfig, header: SendBackHeader) -> TopicConfig:
        topic = self._send_context.topics.retry_topic(
            group, UNIT_SUBSCRIPTION if header.unit_mode else 0
        )
        if topic is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the name of group {group.name} is too long for a retry topic",
            )
        if not topic.perm & m.Permission.WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"topic {topic.name} may not be written to")
        return topic

    def _dead_letter(self, group: GroupConfig, record: Record) -> NewRecord:
        topic = self._send_context.topics.dead_letter_topic(group.name)
        assert topic is not None, "the name of a retry topic is longer"
        return self._copy(record, {**_properties(record), m.DELAY: "0"}, topic.name, 0)

    def _retry(
        self, topic: TopicConfig, group: GroupConfig, level: int, record: Record
    ) -> NewRecord:
        queue_id = self._send_context.chance.randrange(group.retry_queues)
        level = self._delay_levels.nearest(level or FIRST_LEVEL + record.reconsume_times)
        if level == 0:  # a producer may have set negative reconsume times; Apache does not delay
            return self._copy(record, {**_properties(record), m.DELAY: "0"}, topic.name, queue_id)
        delayed = put_aside(_properties(record), level, topic.name, queue_id)
        return self._copy(record, delayed, *waiting_queue(level))

    def _copy(
        self, record: Record, properties: dict[str, str], topic: str, queue_id: int
    ) -> NewRecord:
        text = m.join_properties(properties).encode()
        refuse_long_properties(
            len(text), "with those of a retry the properties", ResponseCode.SYSTEM_ERROR
        )
        return NewRecord(
            self._store.queue(topic, queue_id),
            record.body,
            text,
            record.flag,
            record.sys_flag,
            record.born_ms,
            record.born_host,
            record.store_host,
            min(record.reconsume_times + 1, INT_MAX),
        )


def _properties(record: Record) -> dict[str, str]:
    """The properties of the copy, with the message's first topic and first offset message id."""
    properties = {name: value for name, value in record.properties.items() if name != m.WAIT}
    properties.setdefault(m.RETRY_TOPIC, record.topic)
    properties.setdefault(m.ORIGIN_MESSAGE_ID, record.offset_message_id)
    return properties
