"""Checks send requests and makes their plans.

See docs/protocol/producing.md#a-send-step-by-step.
"""

from __future__ import annotations

from typing import Final

from roquet.broker.handlers.send_context import SendContext, tries_max
from roquet.broker.handlers.send_plan import SendPlan, SendValues, encoded_opaque
from roquet.broker.transactions.half_messages import is_half_message
from roquet.errors import MessageError, Refused
from roquet.protocol.bodies.tables import UNIT, TopicConfig
from roquet.protocol.headers.send import SendHeader, SendHeaderV2
from roquet.protocol.records import message as m
from roquet.protocol.records.record import host_bits
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import BINARY, Command
from roquet.transport.connection import Connection

_SPELT_OUT: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
"""Requests whose header fields have full names; all others have the one-letter names of V2."""


class SendPlanner:
    """Makes the plans of send requests; the only place where a send is decided."""

    def __init__(self, send_context: SendContext) -> None:
        self._send_context = send_context
        self._config = send_context.config
        self._body_size_max = send_context.config.store.message_size_max
        self._delay_levels = send_context.config.delay_levels
        self._store_host = send_context.store.config.store_host

    def plan(self, request: Command, connection: Connection) -> tuple[SendPlan, SendValues]:
        """Check a send request, and decide how it is stored and answered.

        :raises Refused: the broker cannot accept the request.
        """
        header, topic, queue_id = self.checked(request)
        queue_limit = _queue_limit(topic)
        pairs = m.split_properties(header.properties)
        is_retry = header.topic.startswith(m.RETRY_PREFIX)
        dead_letters = self._dead_letter_topic(header, request.version) if is_retry else None
        if dead_letters is not None:
            topic = dead_letters
            queue_id = 0
            pairs[m.DELAY] = "0"  # a dead letter is not tried again: it must not wait
        level = self._delay_levels.level_of(pairs)
        is_batch = header.batch
        if is_batch and (is_retry or header.sys_flag & (m.COMPRESSED | m.TRANSACTION_BITS)):
            remark = "a batch cannot be compressed, be transactional or go to a retry topic"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        is_half = not is_batch and is_half_message(pairs, header.reconsume_times)
        if is_half:
            level = 0  # it is delayed when it is committed
            if self._config.reject_transaction_message:
                remark = "this broker rejects transactional messages: rejectTransactionMessage=true"
                raise Refused(ResponseCode.NO_PERMISSION, remark)
        born_host = connection.peer_host
        sys_flag = header.sys_flag & ~(m.BORN_HOST_V6 | m.STORE_HOST_V6)
        sys_flag |= host_bits(born_host, self._store_host)
        if topic.filter_type == "MULTI_TAG":
            sys_flag |= m.MULTI_TAGS
        plan = SendPlan(
            is_half,
            is_batch,
            topic.name,
            queue_limit,
            dead_letters is not None,
            level,
            self._delay_levels.ms[level - 1] if level else None,
            self._config.broker_cluster_name,
            header.flag,
            sys_flag,
            header.reconsume_times,
            born_host,
            self._send_context.ack_gate.waits and pairs.get(m.WAIT) != "false",
            request.header_type == BINARY,
            request.is_one_way,
            self._body_size_max,
            is_half or m.is_queued(sys_flag),
            self._send_context.guard(),  # last: a topic or group may have been created
        )
        values = SendValues(
            encoded_opaque(request), queue_id, header.born_timestamp, pairs, request.body
        )
        return plan, values

    def checked(self, request: Command) -> tuple[SendHeader, TopicConfig, int]:
        """Decode and check a send request: its header, its topic and the queue id to store it in.

        A queue id below 0 is replaced by that of a random write queue.

        :raises Refused: the broker cannot accept the request.
        """
        self._send_context.check()
        header_class = SendHeader if request.code in _SPELT_OUT else SendHeaderV2
        header = header_class.read(request.fields)
        topic = self._topic(header)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._send_context.chance.randrange(max(1, topic.write_queues))
        else:
            _check_queue(queue_id, topic)
        return header, topic, queue_id

    def check_again(self, plan: SendPlan, request: Command, queue_id: int) -> None:
        """Check a send whose plan was made before other requests ran.

        :raises Refused: the broker cannot accept the request any more.
        """
        self._send_context.check()
        if not plan.guard.holds():
            _, topic, _ = self.checked(request)
            _check_queue(queue_id, topic)

    def _topic(self, header: SendHeader) -> TopicConfig:
        try:
            m.check_topic(header.topic)
        except MessageError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if header.topic in m.NOT_SENDABLE:
            raise Refused(ResponseCode.NO_PERMISSION, f"topic {header.topic} belongs to the broker")
        sys_flag = UNIT if header.unit_mode else 0
        topic = self._send_context.topics.get_or_create_for_send(
            header.topic, header.default_topic, header.default_topic_queue_nums, sys_flag
        )
        if topic is None:
            remark = (
                f"topic {header.topic} does not exist, and this broker cannot create it from topic "
                f"{header.default_topic} (it must exist and have the permission INHERIT, and "
                "autoCreateTopicEnable must be true): create it with an admin tool"
            )
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if topic.order and not self._config.is_writable:
            remark = f"brokerPermission does not allow sends to the ordered topic {header.topic}"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        return topic

    def _dead_letter_topic(self, header: SendHeader, version: int) -> TopicConfig | None:
        """The dead letter topic for a message that was sent to a retry topic often enough, or None.

        See docs/protocol/producing.md#sends-to-retry-topics.

        :param version: of the client.
        """
        name = header.topic.removeprefix(m.RETRY_PREFIX)
        group = self._send_context.groups.get_or_create(name)
        if header.reconsume_times < tries_max(group, version, header.max_reconsume_times):
            return None
        topic = self._send_context.topics.dead_letter_topic(name)
        if topic is None:
            remark = f"the name of group {name} is too long for a dead letter topic"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return topic


def _queue_limit(topic: TopicConfig) -> int:
    return max(topic.write_queues, topic.read_queues)


def _check_queue(queue_id: int, topic: TopicConfig) -> None:
    if queue_id >= _queue_limit(topic):
        queues = f"{topic.write_queues} write queues and {topic.read_queues} read queues"
        remark = f"topic {topic.name} has no queue {queue_id}: it has {queues}"
        raise Refused(ResponseCode.SYSTEM_ERROR, remark)
