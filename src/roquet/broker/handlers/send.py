"""SEND_MESSAGE 10, 310 and 320: the slow path, which decodes any send request.

It teaches `fastpath.send.FastSend` the header templates of a connection. Frames that match no
template come here.

See docs/protocol/producing.md#a-send-step-by-step.
"""

from __future__ import annotations

from typing import Final

from roquet.broker.handlers.batches import Batches
from roquet.broker.handlers.fastpath.send import FastSend
from roquet.broker.handlers.send_context import SendContext
from roquet.broker.handlers.send_executor import SendExecutor
from roquet.broker.handlers.send_plan import SendPlan, SendValues
from roquet.broker.handlers.send_planner import SendPlanner
from roquet.broker.transactions.half_messages import HalfMessages
from roquet.common.steps import Steps
from roquet.protocol.records import message as m
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.storage.log.dispatch_request import keys_of
from roquet.transport.connection import Connection, Handler
from roquet.transport.handling import Answer
from roquet.transport.slices import Slices

_CODES: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)


class SendHandler:
    """Stores the messages that clients send and answers with their ids and offsets."""

    def __init__(self, send_context: SendContext, halves: HalfMessages, slices: Slices) -> None:
        self._send_context = send_context
        self._store = send_context.store
        self._halves = halves
        self._slices = slices
        self._batches = Batches(send_context)
        self.executor = SendExecutor(send_context)
        self.planner = SendPlanner(send_context)

    def handlers(self) -> dict[int, Handler]:
        return dict.fromkeys(_CODES, self.send)

    def fast_path(self, connection: Connection) -> FastSend:
        """The fast path of a connection's sends, which `send` teaches."""
        return FastSend(self._send_context, self.executor, self._batches, connection)

    def send(self, request: Command, connection: Connection) -> Answer:
        """Store what the request sends: a message, a half message, a delayed message or a batch.

        :returns: the answer; None if the request is one-way, if the ack gate holds the answer, or
            if a batch is stored in slices.
        """
        plan, values = self.planner.plan(request, connection)
        answer: Answer
        if plan.is_batch:
            batch = self._store_batch(request, plan, values, connection)
            answer = self._slices.answer_in_order(batch, request, connection)
        else:
            answer = self._store_one(plan, values, connection)
        if (fast_send := connection.fast_paths.get(FastSend)) is not None:
            fast_send.learn(request, plan, values)
        return answer

    def _store_one(
        self, plan: SendPlan, values: SendValues, connection: Connection
    ) -> bytes | None:
        opaque, queue_id, born_ms, pairs, body = values
        plan.check_body(len(body))
        if plan.is_half:
            at = self._halves.put(
                plan.topic,
                queue_id,
                body,
                plan.stored_pairs(pairs, queue_id),
                plan.flag,
                plan.sys_flag,
                born_ms,
                plan.born_host,
                plan.reconsume_times,
            )
            queue = self._store.queue(m.HALF_TOPIC, 0)
        else:
            queue = self.executor.queue(plan, queue_id)
            properties = plan.stored_properties(pairs, queue_id)
            keys, tag_code = keys_of(pairs), m.tag_code(pairs.get(m.TAGS))
            at = self.executor.store(plan, queue, born_ms, body, properties, keys, tag_code)
        return self.executor.answer(plan, connection, opaque, b"%d" % queue_id, queue, at)

    def _store_batch(
        self, request: Command, plan: SendPlan, values: SendValues, connection: Connection
    ) -> Steps[Answer]:
        """Store a batch as messages with consecutive queue offsets."""
        queue_id = values.queue_id
        records = yield from self._batches.packed(plan, values)
        # other requests ran between the steps
        self.planner.check_again(plan, request, queue_id)
        queue = self.executor.queue(plan, queue_id)
        first, physical = self._store.writer.append_batch(queue, records)
        answers = self.executor.answers(
            plan, connection, (values.opaque,), (b"%d" % queue_id,), (first,), physical
        )
        return answers[0] if answers else None
