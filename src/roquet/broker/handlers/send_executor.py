"""Stores and answers sends as their plans say."""

from __future__ import annotations

from collections.abc import Sequence
from struct import iter_unpack

from roquet.broker.handlers.send_context import SendContext
from roquet.broker.handlers.send_plan import SendPlan
from roquet.protocol.records.columns import Ints
from roquet.protocol.records.uniform import message_ids
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import to_text
from roquet.protocol.templates.response import ResponseTemplate
from roquet.storage.new_record import NewRecord
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.transport.connection import Connection


class SendExecutor:
    """Carries out send plans, for the slow path and the fast path alike."""

    def __init__(self, send_context: SendContext) -> None:
        self._store = send_context.store
        self._ack_gate = send_context.ack_gate
        self._turn = send_context.turn
        self._store_host = self._store.config.store_host
        self._message_id_head = self._store_host.hex().upper().encode()
        config = send_context.config
        always = {"MSG_REGION": config.region_id, "TRACE_ON": to_text(config.trace_on)}
        self._template = ResponseTemplate(
            ResponseCode.SUCCESS, None, always, ("msgId", "queueId", "queueOffset")
        )

    def queue(self, plan: SendPlan, queue_id: int) -> ConsumeQueue:
        return self._store.queue(*plan.queue(queue_id))

    def queue_in_use(self, plan: SendPlan, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None until this process has made room in it; makes nothing."""
        queue = self._store.queues.known(*plan.queue(queue_id))
        return queue if queue is not None and queue.is_in_use else None

    def store(
        self,
        plan: SendPlan,
        queue: ConsumeQueue,
        born_ms: int,
        body: bytes,
        properties: bytes,
        keys: Sequence[bytes],
        tag_code: int,
    ) -> int:
        """Store one message whose body was checked.

        :param queue: that of the plan and the send's queue id.
        :param properties: of `SendPlan.stored_properties`.
        """
        record = NewRecord(
            queue,
            body,
            properties,
            plan.flag,
            plan.sys_flag,
            born_ms,
            plan.born_host,
            self._store_host,
            plan.reconsume_times,
        )
        return self._store.writer.append(record, keys, tag_code, plan.delay_ms)

    def answer(
        self,
        plan: SendPlan,
        connection: Connection,
        opaque: bytes,
        queue_id: bytes,
        queue: ConsumeQueue,
        physical: int,
    ) -> bytes | None:
        """The answer to a send whose message was appended last.

        :param queue_id: of the send, in decimal digits.
        :param queue: in which the message was stored.
        :returns: None if the send is one-way, or if the ack gate holds the answer.
        """
        self._turn.due()
        if plan.is_one_way:
            return None
        first = queue.max_offset - 1 if plan.is_queued else 0
        message_id = b"%b%016X" % (self._message_id_head, physical)
        answer = self.encode(opaque, message_id, queue_id, first, binary=plan.is_binary)
        if plan.waits:
            return self._ack_gate.hold(connection, answer, self._store.log.end)
        return answer

    def answers(
        self,
        plan: SendPlan,
        connection: Connection,
        opaques: Sequence[bytes],
        queue_ids: Sequence[bytes],
        firsts: Sequence[int],
        physical: Ints,
    ) -> list[bytes]:
        """The answers to sends whose messages were appended last, as many for each send.

        :param firsts: the queue offset of each send's first message.
        :param physical: the physical offset of each message.
        :returns: as `answer`, without None.
        """
        self._turn.due()
        if plan.is_one_way:
            return []
        ids = message_ids(self._message_id_head, physical)
        answers = self._encode_run(opaques, ids, queue_ids, firsts, binary=plan.is_binary)
        if not plan.waits:
            return answers
        end = self._store.log.end
        held = (self._ack_gate.hold(connection, answer, end) for answer in answers)
        return [answer for answer in held if answer is not None]

    def encode(
        self, opaque: bytes, message_ids: bytes, queue: bytes, queue_offset: int, *, binary: bool
    ) -> bytes:
        """The frame that answers a send.

        :param opaque: four bytes for a binary header, decimal digits for a JSON header.
        :param message_ids: offset message ids of all messages, joined by commas.
        :param queue: queue id in decimal digits.
        :param queue_offset: of the first message.
        """
        offset = b"%d" % queue_offset
        if not binary:
            return self._template.json(opaque, (message_ids, queue, offset))
        sizes = len(message_ids), len(queue), len(offset)
        first, second, third, fourth = self._template.binary(sizes)
        return b"".join((first, opaque, second, message_ids, third, queue, fourth, offset))

    def _encode_run(
        self,
        opaques: Sequence[bytes],
        ids: bytes,
        queues: Sequence[bytes],
        queue_offsets: Sequence[int],
        *,
        binary: bool,
    ) -> list[bytes]:
        """The frames that answer several sends, each of which stored the same number of messages.

        :param ids: offset message ids of all messages of all sends, each followed by a comma.
        """
        ids_size = len(ids) // len(queues) - 1
        answers: list[bytes] = []
        queue_size = offset_size = -1
        columns = zip(
            opaques, iter_unpack(f"{ids_size}sx", ids), queues, queue_offsets, strict=True
        )
        for opaque, (joined_ids,), queue, queue_offset in columns:
            if not binary:
                answers.append(self.encode(opaque, joined_ids, queue, queue_offset, binary=False))
                continue
            offset = b"%d" % queue_offset
            if len(queue) != queue_size or len(offset) != offset_size:
                queue_size, offset_size = len(queue), len(offset)
                sizes = ids_size, queue_size, offset_size
                first, second, third, fourth = self._template.binary(sizes)
            answers.append(
                b"".join((first, opaque, second, joined_ids, third, queue, fourth, offset))
            )
        return answers
