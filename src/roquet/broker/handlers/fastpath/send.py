"""The fast path of sends: stores sends that match a cached header template without decoding them.

It takes the values of a send from their places in its header, and gives them with the plan that the
slow path made of an earlier send (`handlers.send_plan`) to the slow path's `SendExecutor`.
Consecutive sends with one plan and one body size are a run; a long run is stored in columns, not
message by message. Records and answers are byte for byte those of the slow path; the property tests
in tests/broker/handlers/fastpath/test_send.py and tests/broker/test_changed_tables.py compare the
two.

See docs/storage/performance.md#header-templates.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from roquet.broker.handlers.batches import Batches
from roquet.broker.handlers.fastpath.cache import TemplateCache
from roquet.broker.handlers.fastpath.record_template import (
    MatchedSend,
    RecordTemplate,
    SendColumns,
    tag_code,
)
from roquet.broker.handlers.send_context import SendContext
from roquet.broker.handlers.send_executor import SendExecutor
from roquet.broker.handlers.send_plan import SendPlan, SendValues
from roquet.common.bounded_dict import BoundedDict
from roquet.errors import Refused
from roquet.protocol.records.columns import Ints
from roquet.protocol.remoting.command import Command, decode
from roquet.protocol.templates.request import is_number, is_safe
from roquet.storage.log.dispatch_request import index_keys
from roquet.transport.connection import Connection
from roquet.transport.handling import SlowPath

_RECORD_TEMPLATES_MAX: Final = 256
_TEXTS_AT: Final = 3
"""Of a send's variable fields: opaque, queue id and born time come before the properties."""
_COLUMNS_FROM: Final = 9
"""Runs of at least this many messages are stored in columns. With 7 messages in a read, columns
take 17 % more CPU than storing one by one; with 11 they take 9 % less."""


class FastSend:
    """The fast path of one connection's sends.

    Invariant: all plans that it keeps have the guard `_guard`; they are used only while it holds.
    """

    def __init__(
        self,
        send_context: SendContext,
        executor: SendExecutor,
        batches: Batches,
        connection: Connection,
    ) -> None:
        self._send_context = send_context
        self._store = send_context.store
        self._executor = executor
        self._batches = batches
        self._connection = connection
        self._guard = send_context.guard()
        self._templates: TemplateCache[RecordTemplate] = TemplateCache()
        self._records: BoundedDict[Hashable, RecordTemplate] = BoundedDict(_RECORD_TEMPLATES_MAX)

    def take(self, frames: Iterable[bytes], slow_path: SlowPath) -> list[bytes]:
        """Answer these frames in order; `slow_path` answers those that match no template."""
        answers: list[bytes] = []
        run: list[MatchedSend] = []
        records: RecordTemplate | None = None
        body_size = -1
        may_match, match = self._may_match(), self._templates.match
        for frame in frames:
            found = match(frame) if may_match else None
            if found is not None:
                template, body_at, values = found
                queue = template.queues.get(values[1]) or template.find_queue(values[1])
                if queue is not None:
                    size = len(frame) - body_at
                    if size != body_size or template is not records:
                        answers += self._store_run(records, run, slow_path)
                        run = []
                        records, body_size = template, size
                    run.append((values, queue, frame, body_at))
                    continue
            answers += self._store_run(records, run, slow_path)
            run = []
            answers += self._by_slow_path(frame, slow_path, learns=found is None)
            may_match = self._may_match()
        return answers + self._store_run(records, run, slow_path)

    def _may_match(self) -> bool:
        """Whether the kept plans hold, and the broker accepts sends.

        If not, the slow path says why, or makes plans that hold.
        """
        try:
            self._send_context.check()
        except Refused:
            return False
        return self._guard.holds()

    def _by_slow_path(
        self, frame: bytes, slow_path: SlowPath, *, learns: bool = True
    ) -> list[bytes]:
        """The answer to one frame by the slow path, if there is one at once.

        :param learns: False if the frame matched a template: it must not be cached again.
        """
        answer = self._templates.by_slow_path(frame, slow_path) if learns else slow_path(frame)
        return [answer] if answer is not None else []

    # storing

    def _store_run(
        self, records: RecordTemplate | None, run: list[MatchedSend], slow_path: SlowPath
    ) -> list[bytes]:
        """Store a run and return its answers: in columns if it is long enough and has plain values.

        The slow path takes it if the broker may accept only some of it.

        :param run: sends with one record template and one body size.
        """
        if records is None or not run:
            return []
        plan = records.plan
        if plan.waits and len(run) > self._send_context.ack_gate.room:
            return [
                answer
                for _, _, frame, _ in run
                for answer in self._by_slow_path(frame, slow_path, learns=False)
            ]
        if len(run) < (1 if plan.is_batch else _COLUMNS_FROM):
            return [answer for send in run for answer in self._store_one(records, send, slow_path)]
        columns = SendColumns.of_run(run)
        is_one = len(run) == 1
        stored: tuple[list[int], Ints] | None = None
        try:
            messages = records.uniform(columns)
            if messages is not None and (
                is_one or records.size_in_log(messages) <= self._store.log.room
            ):
                stored = self._store.writer.append_alike(messages, columns.queues, plan.delay_ms)
        except Exception as error:
            if is_one or not isinstance(error, OSError):
                return self._failed(plan, columns.frames, error)
            # the run does not fit, or a queue's file was cut: store message by message
        if stored is not None:
            return self._executor.answers(
                plan, self._connection, columns.opaques, columns.queue_ids, *stored
            )
        if not is_one:
            return [
                answer for send in run for answer in self._store_run(records, [send], slow_path)
            ]
        return self._by_slow_path(run[0][2], slow_path)

    def _store_one(
        self, records: RecordTemplate, send: MatchedSend, slow_path: SlowPath
    ) -> list[bytes]:
        """Store one message; by `slow_path` if a value could be parsed in another way."""
        values, queue, frame, body_at = send
        opaque, queue_id, born, *texts = values
        plan = records.plan
        if (
            not born.isdigit()
            or not (plan.is_binary or is_number(opaque))
            or not is_safe(b"".join(texts))
        ):
            return self._by_slow_path(frame, slow_path)
        unique_key = texts[records.unique_key_at] if records.unique_key_at >= 0 else b""
        keys = texts[records.keys_at] if records.keys_at >= 0 else b""
        body = frame[body_at:]
        try:
            plan.check_body(len(body))
            at = self._executor.store(
                plan,
                queue,
                int(born),
                body,
                records.properties(texts, queue_id),
                index_keys(unique_key, keys),
                tag_code(texts[records.tags_at]) if records.tags_at >= 0 else 0,
            )
        except Exception as error:
            return self._failed(plan, (frame,), error)
        answer = self._executor.answer(plan, self._connection, opaque, queue_id, queue, at)
        return [] if answer is None else [answer]

    def _failed(self, plan: SendPlan, frames: Iterable[bytes], error: Exception) -> list[bytes]:
        """The error answers to sends that could not be stored; none if they are one-way.

        `Connection.failure` logs an error of the broker in either case.
        """
        answers = [self._connection.failure(decode(frame), error).encode() for frame in frames]
        return [] if plan.is_one_way else answers

    # learning

    def learn(self, request: Command, plan: SendPlan, values: SendValues) -> None:
        """Cache the header template and the plan of a send that the slow path has just stored.

        Half messages, dead letters and messages without a queue entry always take the slow path.
        """
        if plan.is_half or plan.is_dead_letter or not plan.is_queued:
            return
        header_template = self._templates.learn(request)
        if header_template is None:
            return
        names = header_template.names[_TEXTS_AT:]
        records = RecordTemplate(plan, values, names, self._executor, self._batches)
        if records.is_usable:
            if plan.guard != self._guard:
                self._guard = plan.guard
                self._templates.clear()
                self._records.clear()
            known = self._records.get(records.identity)
            if known is None:
                self._records[records.identity] = known = records
            self._templates.add(header_template, known)
