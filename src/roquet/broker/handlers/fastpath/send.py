"""The fast path of sends: stores sends that match a cached header template without decoding them.

Consecutive sends with one plan and one body size are a run; a long run is stored in columns, not
message by message. Records and answers are byte for byte those of the slow path (`handlers.send`);
the property tests in tests/broker/handlers/fastpath/test_send.py compare the two.

See docs/storage/performance.md#header-templates.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from roquet.broker.config.delay_levels import DelayLevels
from roquet.broker.handlers.batches import stored_size_max
from roquet.broker.handlers.fastpath.cache import TemplateCache
from roquet.broker.handlers.fastpath.send_template import (
    MakeItem,
    SendColumns,
    SendPlan,
    SendTemplate,
    Taken,
)
from roquet.broker.handlers.send_answers import SendAnswers
from roquet.broker.handlers.send_context import SendContext
from roquet.protocol.bodies.tables import TopicConfig
from roquet.protocol.records import message as m
from roquet.protocol.records.columns import Ints
from roquet.protocol.records.uniform import UniformBatch, message_ids
from roquet.protocol.remoting.command import Command, decode
from roquet.protocol.templates.request import is_number, is_safe
from roquet.storage.new_record import NewRecord
from roquet.transport.connection import Connection
from roquet.transport.handling import SlowPath

_KINDS_MAX: Final = 256
_TAGS_MAX: Final = 1024
_COLUMNS_FROM: Final = 9
"""Runs of at least this many messages are stored in columns. With 7 messages in a read, columns
take 17 % more CPU than storing one by one; with 11 they take 9 % less."""


class FastSend:
    """The fast path of one connection's sends.

    Invariant: `_templates` and `_plans` are valid under version `_version` of the topic table.
    """

    def __init__(
        self, send_context: SendContext, answers: SendAnswers, connection: Connection
    ) -> None:
        self._store = send_context.store
        self._write_gate = send_context.write_gate
        self._ack_gate = send_context.ack_gate
        self._turn = send_context.turn
        self._topics = send_context.metadata.topic_registry
        self._answers = answers
        self._connection = connection
        self._store_host = self._store.config.store_host
        self._message_id_head = self._store_host.hex().upper().encode()
        self._size_max = send_context.config.message_size_max
        self._stored_size_max = stored_size_max(send_context.config)
        self._version = self._topics.version
        self._templates: TemplateCache[SendTemplate] = TemplateCache()
        self._plans: dict[Hashable, SendPlan] = {}
        self._tag_codes: dict[bytes, int] = {}

    def take(self, frames: Iterable[bytes], slow_path: SlowPath) -> list[bytes]:
        """Answer these frames in order; `slow_path` answers those that match no template."""
        answers: list[bytes] = []
        run: list[Taken] = []
        plan: SendPlan | None = None
        body_size = -1
        sends, size_max = self._valid_sends(), self._size_max
        for frame in frames:
            for known in sends.get(frame[:4], ()):
                size = len(frame) - known.header_end
                pieces = known.unpack_from(frame) if size >= 0 else ()
                if (
                    pieces[::2] == known.constants
                ):  # `known`, `values` and `queue` are used after the loop
                    values = known.pick(pieces)
                    queue = known.queues.get(values[1]) or known.plan.find_queue(values[1])
                    break
            else:
                queue, size = None, -1
            if queue is None or size > size_max:
                answers += self._store_run(plan, run, slow_path)
                run = []
                answers += self._by_slow_path(frame, slow_path, learns=size < 0)
                sends = self._valid_sends()
                continue
            if size != body_size or known.plan is not plan:
                answers += self._store_run(plan, run, slow_path)
                run = []
                plan, body_size = known.plan, size
            run.append((known, values, queue, frame))
        return answers + self._store_run(plan, run, slow_path)

    def _valid_sends(self) -> dict[bytes, list[SendTemplate]]:
        """The templates that may be used now.

        None while the broker accepts no messages: the slow path then answers with the reason.
        """
        if self._write_gate.why_closed or self._ack_gate.why_busy:
            return {}
        if self._version is not self._topics.version:
            self._version = self._topics.version
            self._templates.clear()
            self._plans.clear()
        return self._templates.known

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
        self, plan: SendPlan | None, run: list[Taken], slow_path: SlowPath
    ) -> list[bytes]:
        """Store a run and return its answers: in columns if it is long enough and has plain values.

        :param run: sends with one plan and one body size.
        """
        if plan is None or not run:
            return []
        if len(run) < (1 if plan.is_batch else _COLUMNS_FROM):
            return [answer for taken in run for answer in self._store_one(plan, taken, slow_path)]
        columns = SendColumns.of_run(run)
        messages = (
            plan.alike_in_batches(columns, self._stored_size_max)
            if plan.is_batch
            else self._alike(plan, columns)
        )
        is_one = len(run) == 1
        if messages is not None and (is_one or plan.size_in_log(messages) <= self._store.log.room):
            try:
                offsets, physical = self._store.writer.append_alike(
                    messages, columns.queues, plan.delay_ms
                )
            except Exception as error:
                if is_one or not isinstance(error, OSError):
                    return self._failed(plan, columns.frames, error)
                # the run does not fit, or a queue's file was cut: store message by message
            else:
                return self._stored(plan, columns, offsets, physical)
        if not is_one:
            return [answer for taken in run for answer in self._store_run(plan, [taken], slow_path)]
        return self._by_slow_path(run[0][3], slow_path)

    def _store_one(self, plan: SendPlan, taken: Taken, slow_path: SlowPath) -> list[bytes]:
        """Store one message; by `slow_path` if a value could be parsed in another way."""
        known, values, queue, frame = taken
        opaque, queue_id, born, *texts = values
        if (
            not born.isdigit()
            or not (plan.is_binary or is_number(opaque))
            or not is_safe(b"".join(texts))
        ):
            return self._by_slow_path(frame, slow_path)
        keys: Sequence[bytes] = ()
        if plan.unique_key_at >= 0:
            keys = (texts[plan.unique_key_at],)
        if plan.keys_at >= 0:
            keys = (*keys, *texts[plan.keys_at].split())
        try:
            record = NewRecord(
                queue,
                frame[known.header_end :],
                plan.properties(texts, queue_id),
                plan.flag,
                plan.sys_flag,
                int(born),
                self._connection.peer_host,
                self._store_host,
                plan.reconsume_times,
            )
            tag_code = self._tag_code(texts[plan.tags_at]) if plan.tags_at >= 0 else 0
            at = self._store.writer.append(record, keys, tag_code, plan.delay_ms)
        except Exception as error:
            return self._failed(plan, (frame,), error)
        self._turn.due()
        if plan.is_one_way:
            return []
        message_id = b"%b%016X," % (self._message_id_head, at)
        return self._safe(
            plan, plan.answers(message_id, (queue_id,), (queue.max_offset - 1,), (opaque,))
        )

    def _alike(self, plan: SendPlan, columns: SendColumns) -> UniformBatch | None:
        tag_codes: int | list[int] = 0
        if plan.tags_at >= 0:
            texts = columns.texts[plan.tags_at]
            if not is_safe(b"".join(texts)):
                return None
            tag_codes = [self._tag_codes.get(tags) or self._tag_code(tags) for tags in texts]
        return plan.alike(columns, tag_codes)

    def _stored(
        self, plan: SendPlan, columns: SendColumns, offsets: Sequence[int], physical: Ints
    ) -> list[bytes]:
        """The answers to a run that was appended; each send has the same number of messages."""
        self._turn.due()
        if plan.is_one_way:
            return []
        ids = message_ids(self._message_id_head, physical)
        return self._safe(plan, plan.answers(ids, columns.queue_ids, offsets, columns.opaques))

    def _failed(self, plan: SendPlan, frames: Iterable[bytes], error: Exception) -> list[bytes]:
        """The error answers to sends that could not be stored; none if they are one-way.

        `Connection.failure` logs an error of the broker in either case.
        """
        answers = [self._connection.failure(decode(frame), error).encode() for frame in frames]
        return [] if plan.is_one_way else answers

    def _safe(self, plan: SendPlan, answers: list[bytes]) -> list[bytes]:
        """The answers that can be sent at once; the ack gate holds the others."""
        if not plan.waits:
            return answers
        end = self._store.log.end
        return [
            now for answer in answers if (now := self._ack_gate.hold(self._connection, answer, end))
        ]

    def _tag_code(self, tags: bytes) -> int:
        code = self._tag_codes.get(tags)
        if code is None:
            if len(self._tag_codes) >= _TAGS_MAX:
                self._tag_codes.clear()
            code = self._tag_codes[tags] = m.tag_code(tags.decode())
        return code

    # learning

    def learn(
        self,
        request: Command,
        topic: TopicConfig,
        sys_flag: int,
        levels: DelayLevels,
        stored_properties: Callable[[dict[str, str]], str],
        batch_item: MakeItem,
    ) -> None:
        """Cache the header template and the plan of a send that the slow path has just stored.

        :param sys_flag: the sysFlag as stored.
        :param stored_properties: turns a send's properties into the text that is stored.
        :param batch_item: turns a message of a batch with this header into an item to store.
        """
        header_template = self._templates.learn(request)
        if header_template is None:
            return
        if len(self._plans) >= _KINDS_MAX:
            self._plans.clear()
        host, waits = self._connection.peer_host, self._ack_gate.waits
        plan = SendPlan(
            header_template,
            self._store,
            topic,
            sys_flag,
            host,
            waits,
            self._answers,
            levels,
            stored_properties,
            batch_item,
        )
        if plan.is_takeable:
            plan = self._plans.setdefault(plan.identity, plan)
            self._templates.add(SendTemplate(header_template, plan))
