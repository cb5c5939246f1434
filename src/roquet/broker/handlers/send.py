"""SEND_MESSAGE 10, 310 and 320: the slow path, which decodes any send request.

It teaches `fastpath.send.FastSend` the header templates of a connection. Frames that match no
template come here.

See docs/protocol/producing.md#a-send-step-by-step.
"""

from __future__ import annotations

from typing import Final

from roquet.broker.config.delay_levels import put_aside, waiting_queue
from roquet.broker.handlers.batches import Batches
from roquet.broker.handlers.fastpath.send import FastSend
from roquet.broker.handlers.send_answers import SendAnswers
from roquet.broker.handlers.send_context import SendContext, tries_max
from roquet.broker.transactions.half_messages import HalfMessages, is_half_message
from roquet.common.steps import Steps
from roquet.common.units import PhysicalOffset
from roquet.errors import MessageError, Refused
from roquet.protocol.bodies.tables import TopicConfig
from roquet.protocol.headers.send import SendHeader, SendHeaderV2
from roquet.protocol.records import message as m
from roquet.protocol.records.record import host_bits
from roquet.protocol.records.uniform import message_ids
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import BINARY, Command
from roquet.storage.log.dispatch_request import keys_of
from roquet.storage.new_record import NewRecord
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.transport.connection import Connection, Handler
from roquet.transport.handling import Answer
from roquet.transport.slices import Slices

_CODES: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
_SPELT_OUT: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
"""Requests whose header fields have full names; all others have the one-letter names of V2."""


class SendHandler:
    """Stores the messages that clients send and answers with their ids and offsets."""

    def __init__(self, send_context: SendContext, halves: HalfMessages, slices: Slices) -> None:
        self._send_context = send_context
        self._slices = slices
        self._batches = Batches(send_context)
        self._message_id_head = send_context.store.config.store_host.hex().upper().encode()
        self._store = send_context.store
        self._halves = halves
        self.answers = SendAnswers(send_context.config.region, send_context.config.trace_on)

    def routes(self) -> dict[int, Handler]:
        return dict.fromkeys(_CODES, self.send)

    def fast_path(self, connection: Connection) -> FastSend:
        """The fast path of a connection's sends, which `send` teaches."""
        return FastSend(self._send_context, self.answers, connection)

    def send(self, request: Command, connection: Connection) -> Answer:
        """Store what the request sends: a message, a half message, a delayed message or a batch.

        :returns: the answer; None if the request is one-way, if the ack gate holds the answer, or
            if a batch is stored in slices.
        """
        header, topic, queue_id = self.checked(request)
        pairs = m.split_properties(header.properties)
        if header.topic.startswith(m.RETRY_PREFIX):
            topic, queue_id = self._retry_target(header, topic, queue_id, request.version)
            if topic.name != header.topic:
                pairs[m.DELAY] = "0"  # a dead letter is not tried again: it must not wait
        sys_flag = self._sys_flag(header, topic, connection)
        level = self._delay_level(pairs)
        if header.batch:
            self._batches.check(header, request.body)
            batch = self._store_batch(request, connection, header, queue_id, sys_flag)
            answer = self._slices.answer_in_order(batch, request, connection)
            self._learn(request, connection, header, topic, sys_flag)
            return answer
        is_half = is_half_message(pairs, header.reconsume_times)
        if is_half:
            queue, at = self._store_half(
                header, topic.name, queue_id, request.body, pairs, sys_flag, connection
            )
        elif level:
            queue = self._store.queue(*waiting_queue(level))
            delayed = put_aside(pairs, level, topic.name, queue_id)
            delay_ms = self._send_context.config.delay_levels.ms[level - 1]
            at = self._store_one(
                header, queue, request.body, delayed, sys_flag, connection, delay_ms
            )
        else:
            queue = self._store.queue(topic.name, queue_id)
            at = self._store_one(header, queue, request.body, pairs, sys_flag, connection)
        if request.code in _CODES and not is_half:
            self._learn(request, connection, header, topic, sys_flag)
        is_queued = is_half or not sys_flag & m.TRANSACTION_PREPARED
        message_id = f"{m.offset_message_id(self._store.config.store_host, at)},".encode()
        first = queue.max_offset - 1 if is_queued else 0
        return self._stored(
            request, connection, queue_id, first, message_id, waits=pairs.get(m.WAIT) != "false"
        )

    # checks

    def checked(self, request: Command) -> tuple[SendHeader, TopicConfig, int]:
        """Decode and check a send request: its header, its topic and the queue id to store it in.

        A queue id below 0 is replaced by that of a random write queue.

        :raises Refused: the broker cannot accept the request.
        """
        self._require_room()
        header_class = SendHeader if request.code in _SPELT_OUT else SendHeaderV2
        header = header_class.read(request.fields)
        topic = self._topic(header)
        return header, topic, self._queue_id(header.queue_id, topic)

    def _require_room(self) -> None:
        """:raises Refused: the broker accepts no messages now, or too many sends wait."""
        self._send_context.check()
        if why_busy := self._send_context.ack_gate.why_busy:
            raise Refused(ResponseCode.SYSTEM_BUSY, why_busy)

    def _topic(self, header: SendHeader) -> TopicConfig:
        try:
            m.check_topic(header.topic)
        except MessageError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if header.topic in m.NOT_SENDABLE:
            raise Refused(ResponseCode.NO_PERMISSION, f"topic {header.topic} belongs to the broker")
        sys_flag = 1 if header.unit_mode else 0
        topic = self._send_context.metadata.topic_for_send(
            header.topic, header.default_topic, header.default_topic_queue_nums, sys_flag
        )
        if topic is None:
            remark = (
                f"topic {header.topic} does not exist, and this broker cannot create it from topic "
                f"{header.default_topic} (it must exist and have the permission INHERIT, and "
                "autoCreateTopicEnable must be true): create it with an admin tool"
            )
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if topic.order and not self._send_context.config.is_writable:
            remark = f"brokerPermission does not allow sends to the ordered topic {header.topic}"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        return topic

    def _queue_id(self, queue_id: int, topic: TopicConfig) -> int:
        if queue_id < 0:
            return self._send_context.chance.randrange(max(1, topic.write_queues))
        if queue_id >= max(topic.write_queues, topic.read_queues):
            queues = f"{topic.write_queues} write queues and {topic.read_queues} read queues"
            remark = f"topic {topic.name} has no queue {queue_id}: it has {queues}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return queue_id

    def _retry_target(
        self, header: SendHeader, topic: TopicConfig, queue_id: int, version: int
    ) -> tuple[TopicConfig, int]:
        """The topic and queue id for a send to a retry topic.

        A message whose reconsume times have reached the maximum goes to the group's dead letter
        topic instead.

        See docs/protocol/producing.md#sends-to-retry-topics.
        """
        name = header.topic.removeprefix(m.RETRY_PREFIX)
        group = self._send_context.group(name)
        if header.reconsume_times < tries_max(group, version, header.max_reconsume_times):
            return topic, queue_id
        dead_letters = self._send_context.metadata.dead_letter_topic(name)
        if dead_letters is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the name of group {name} is too long for a dead letter topic",
            )
        return dead_letters, 0

    def _delay_level(self, pairs: dict[str, str]) -> int:
        try:
            return self._send_context.config.delay_levels.level_of(pairs)
        except MessageError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error

    def _check_size(self, body: bytes, properties: bytes) -> None:
        size_max = self._send_context.config.message_size_max
        if len(body) > size_max:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the body has {len(body)} bytes, maxMessageSize allows {size_max}",
            )
        if len(properties) > m.PROPERTIES_SIZE_MAX:
            remark = (
                f"the properties have {len(properties)} bytes, "
                f"at most {m.PROPERTIES_SIZE_MAX} are allowed"
            )
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)

    # storing

    def _sys_flag(self, header: SendHeader, topic: TopicConfig, connection: Connection) -> int:
        """The sysFlag to store: the client's, with the IPv6 and multi-tag bits of this broker."""
        flag = header.sys_flag & ~(m.BORN_HOST_V6 | m.STORE_HOST_V6)
        if topic.filter_type == "MULTI_TAG":
            flag |= m.MULTI_TAGS
        return flag | host_bits(connection.peer_host, self._store.config.store_host)

    def _stored_properties(self, pairs: dict[str, str]) -> str:
        """The properties text to store: without WAIT, with this broker's CLUSTER.

        See docs/protocol/messages.md#properties.
        """
        kept = {name: value for name, value in pairs.items() if name != m.WAIT}
        kept[m.CLUSTER] = self._send_context.config.cluster
        return m.join_properties(kept)

    def _store_one(
        self,
        header: SendHeader,
        queue: ConsumeQueue,
        body: bytes,
        pairs: dict[str, str],
        sys_flag: int,
        connection: Connection,
        delay_ms: int | None = None,
    ) -> PhysicalOffset:
        properties = self._stored_properties(pairs).encode()
        self._check_size(body, properties)
        record = NewRecord(
            queue,
            body,
            properties,
            header.flag,
            sys_flag,
            header.born_timestamp,
            connection.peer_host,
            self._store.config.store_host,
            header.reconsume_times,
        )
        tag_code = m.tag_code(pairs.get(m.TAGS))
        return self._store.writer.append(record, keys_of(pairs), tag_code, delay_ms)

    def _store_half(
        self,
        header: SendHeader,
        topic: str,
        queue_id: int,
        body: bytes,
        pairs: dict[str, str],
        sys_flag: int,
        connection: Connection,
    ) -> tuple[ConsumeQueue, PhysicalOffset]:
        """Store a half message. The answer to the send has its offset in the half topic's queue.

        :returns: the half topic's queue, and the physical offset of the half message.
        """
        if not self._send_context.config.takes_transactions:
            remark = "this broker rejects transactional messages: rejectTransactionMessage=true"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        self._check_size(body, b"")
        pairs = {**pairs, m.CLUSTER: self._send_context.config.cluster}
        at = self._halves.put(
            topic,
            queue_id,
            body,
            pairs,
            header.flag,
            sys_flag,
            header.born_timestamp,
            connection.peer_host,
            header.reconsume_times,
        )
        return self._store.queue(m.HALF_TOPIC, 0), at

    def _store_batch(
        self,
        request: Command,
        connection: Connection,
        header: SendHeader,
        queue_id: int,
        sys_flag: int,
    ) -> Steps[Answer]:
        """Store a batch whose header was checked, as messages with consecutive queue offsets."""
        records = yield from self._batches.packed(
            header, queue_id, sys_flag, connection.peer_host, request.body
        )
        self._require_room()  # other requests ran between the steps: the checks may fail now
        self._queue_id(queue_id, self._topic(header))
        first, physical = self._store.writer.append_batch(
            self._store.queue(header.topic, queue_id), records
        )
        ids = message_ids(self._message_id_head, physical)
        waits = m.split_properties(header.properties).get(m.WAIT) != "false"
        return self._stored(request, connection, queue_id, first, ids, waits=waits)

    # answering

    def _stored(
        self,
        request: Command,
        connection: Connection,
        queue_id: int,
        first: int,
        ids: bytes,
        *,
        waits: bool,
    ) -> Answer:
        """The answer to a send that was appended; None if it is one-way or the ack gate holds it.

        :param first: queue offset of the first message.
        :param ids: offset message ids of all messages, each followed by a comma.
        :param waits: whether the producer wants the answer held until disk and slave have the
            messages (False with the property `WAIT=false`).
        """
        self._send_context.turn.due()
        if request.is_one_way:
            return None
        binary = request.header_type == BINARY
        opaque = (
            request.opaque.to_bytes(4, "big", signed=True) if binary else b"%d" % request.opaque
        )
        (answer,) = self.answers.encode(
            ids, (b"%d" % queue_id,), (first,), (opaque,), binary=binary
        )
        if self._send_context.ack_gate.waits and waits:
            return self._send_context.ack_gate.hold(connection, answer, self._store.log.end)
        return answer

    def _learn(
        self,
        request: Command,
        connection: Connection,
        header: SendHeader,
        topic: TopicConfig,
        sys_flag: int,
    ) -> None:
        """Cache the header template of this send for the connection's fast path.

        Sends to a retry topic always take the slow path: their target depends on the group, too,
        and a change of the group table does not invalidate templates. They are rare: consumers
        send them only after a broker refused a send back.
        """
        if header.topic.startswith(m.RETRY_PREFIX) or topic.order or header.queue_id < 0:
            return
        fast_send = connection.dispatcher.fast_path(FastSend)
        if fast_send is None:
            return
        levels = self._send_context.config.delay_levels
        fast_send.learn(
            request,
            topic,
            sys_flag,
            levels,
            self._stored_properties,
            self._batches.item_maker(header),
        )
