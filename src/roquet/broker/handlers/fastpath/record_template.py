"""Record templates: what sends with one plan and one set of properties have in common as stored."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from roquet.broker.handlers.batches import Batches, MakeItem
from roquet.broker.handlers.send_executor import SendExecutor
from roquet.broker.handlers.send_plan import SendPlan, SendValues
from roquet.errors import Refused
from roquet.protocol.records import message as m
from roquet.protocol.records.batch import split_batch
from roquet.protocol.records.columns import Bytes
from roquet.protocol.records.layout import record_struct
from roquet.protocol.records.uniform import (
    BatchTemplate,
    UniformBatch,
    checksums,
    learn_batch,
    view_rows,
)
from roquet.protocol.templates.request import is_number, is_safe
from roquet.storage.batch_records import BatchItem
from roquet.storage.queues.consume_queue import ConsumeQueue


@lru_cache(1024)
def tag_code(tags: bytes) -> int:
    return m.tag_code(tags.decode())


class RecordTemplate:
    """Makes the records of similar sends: a plan, and their properties as a format string.

    Header templates that differ only in the length of a number share one record template. Those of
    one connection with equal `identity` are interchangeable.

    `unique_key_at`, `keys_at` and `tags_at` are indices in the texts of a send, -1 for a property
    that it does not have.
    """

    def __init__(
        self,
        plan: SendPlan,
        values: SendValues,
        names: Sequence[str],
        executor: SendExecutor,
        batches: Batches,
    ) -> None:
        """:param names: the properties that vary, in their order in a header."""
        self.plan = plan
        self._executor = executor
        self._stored_size_max = batches.stored_size_max
        self.queues: dict[bytes, ConsumeQueue] = {}
        """By queue id in decimal digits, as in the header."""
        self.unique_key_at, self.keys_at, self.tags_at = (
            names.index(name) if name in names else -1 for name in (m.UNIQ_KEY, m.KEYS, m.TAGS)
        )
        self._topic_size = len(plan.queue(values.queue_id)[0].encode())
        pairs = plan.stored_pairs(values.pairs, values.queue_id)
        stored_names = [*names, m.REAL_QID] if plan.level else names
        texts = tuple(pairs[name].encode() for name in stored_names)
        stored = m.join_properties(pairs)
        constants = _split(stored, pairs, stored_names)
        self._properties_format = b"%b".join(
            constant.replace(b"%", b"%%") for constant in constants
        )
        sizes = tuple(map(len, texts))
        befores = zip(accumulate(map(len, constants)), accumulate(sizes, initial=0), strict=True)
        self._piece_places = [sum(before) for before in befores][:-1]
        self._batch_item: MakeItem | None = None
        self._batch: tuple[BatchTemplate, BatchItem] | None = None
        is_shared = False
        if plan.is_batch:
            self._batch_item = batches.item_maker(plan, values.pairs)
            is_shared = self.keys_at >= 0 or self.tags_at >= 0
        self.is_usable = not is_shared and self._properties_format % texts == stored.encode()
        """Whether the records of these sends can be made.

        They cannot if a batch has keys or tags for all of its messages, or if the properties do not
        come out as they are stored.
        """
        self.identity: Hashable = (plan, self._properties_format, sizes)

    def find_queue(self, queue_id: bytes) -> ConsumeQueue | None:
        """The consume queue that sends with this queue id are stored in; added to `queues`.

        :param queue_id: as in the header.
        :returns: None if the topic has no such queue, or until this process has made room in
            it: the slow path does, so that a run of messages to new queues does not create all
            files at once.
        """
        if not is_number(queue_id) or int(queue_id) >= self.plan.queue_limit:
            return None
        queue = self._executor.queue_in_use(self.plan, int(queue_id))
        if queue is not None:
            self.queues[queue_id] = queue
        return queue

    def properties(self, texts: Sequence[bytes], queue_id: bytes) -> bytes:
        """The properties to store for a message with these texts.

        :param queue_id: the queue of a delayed message (`REAL_QID`); otherwise unused.
        """
        return self._properties_format % ((*texts, queue_id) if self.plan.level else tuple(texts))

    def _is_plain(self, columns: SendColumns) -> bool:
        """Whether each value means exactly its bytes: no escapes, no other spelling of a number."""
        return (
            b"".join(columns.born).isdigit()
            and all(block.isalnum() or is_safe(block) for block in columns.blocks)
            and (self.plan.is_binary or all(map(is_number, columns.opaques)))
        )

    def size_in_log(self, messages: UniformBatch) -> int:
        return len(messages) * self._record_size(messages.body, messages.properties)

    def _record_size(self, body: bytes, properties: bytes) -> int:
        return record_struct(self.plan.sys_flag, len(body), self._topic_size, len(properties)).size

    def uniform(self, columns: SendColumns) -> UniformBatch | None:
        """The messages of a run as a uniform batch.

        :returns: None if they cannot be stored in columns.
        :raises Refused: their bodies are too large.
        """
        if not self._is_plain(columns):
            return None
        self.plan.check_body(len(columns.bodies[0]))
        if self._batch_item is not None:
            return self._messages_of_batches(columns, self._batch_item)
        return self._messages(columns)

    def _messages(self, columns: SendColumns) -> UniformBatch | None:
        """:returns: None if a message has several keys."""
        plan, blocks = self.plan, columns.blocks
        if self.keys_at >= 0 and b" " in blocks[self.keys_at]:
            return None
        bodies = columns.bodies
        count = len(bodies)
        first = [text[0] for text in columns.texts]
        pieces = [*blocks, b"".join(columns.queue_ids)] if plan.level else blocks
        tags = columns.texts[self.tags_at] if self.tags_at >= 0 else ()
        return UniformBatch(
            plan.flag,
            plan.sys_flag,
            plan.reconsume_times,
            plan.born_host,
            list(map(int, columns.born)),
            bodies[0],
            self.properties(first, columns.queue_ids[0]),
            view_rows(b"".join(bodies), count),
            checksums(zip(bodies, strict=True)),
            [
                (at, view_rows(piece, count))
                for at, piece in zip(self._piece_places, pieces, strict=True)
            ],
            [blocks[at] for at in (self.unique_key_at, self.keys_at) if at >= 0],
            list(map(tag_code, tags)) or 0,
        )

    # batches

    def _messages_of_batches(
        self, columns: SendColumns, make_item: MakeItem
    ) -> UniformBatch | None:
        """:returns: None if the messages have several layouts, or the records are too large."""
        plan, batches = self.plan, columns.bodies
        data = batches[0] if len(batches) == 1 else b"".join(batches)
        rows = self._batch_rows(data)
        if rows is None and (self._batch is None or len(batches) == 1):
            self._batch = _learn_batch(batches[0], make_item)
            rows = self._batch_rows(data)
        if self._batch is None or rows is None:
            return None
        template, first = self._batch
        each, rest = divmod(len(batches[0]), template.item_size)
        if rest or each * self._record_size(first.body, first.properties) > self._stored_size_max:
            return None
        count = len(rows)
        unique_keys = template.unique_keys(rows)
        return UniformBatch(
            first.flag,
            plan.sys_flag,
            plan.reconsume_times,
            plan.born_host,
            np.repeat(np.array([int(born) for born in columns.born]), count // len(batches)),
            template.bodies(rows)[0].tobytes(),
            first.properties,
            template.bodies(rows),
            template.checksums(data),
            [(template.key_in_properties, unique_keys)],
            [unique_keys.tobytes(), *(key * count for key in first.keys[1:])],
            first.tag_code,
        )

    def _batch_rows(self, data: bytes) -> Bytes | None:
        return self._batch[0].rows(data) if self._batch is not None else None


def _split(stored: str, pairs: dict[str, str], names: Sequence[str]) -> list[bytes]:
    """The constant parts before, between and after the variable values in stored properties."""
    constants: list[bytes] = []
    for name in names:
        start = f"{name}{m.NAME_SEPARATOR}"
        before, _, stored = stored.partition(f"{start}{pairs[name]}")
        constants.append(f"{before}{start}".encode())
    return [*constants, stored.encode()]


def _learn_batch(data: bytes, make_item: MakeItem) -> tuple[BatchTemplate, BatchItem] | None:
    try:
        flag, body, properties = next(split_batch(data))
        template = learn_batch(data)
        if template is None or template.key_at == template.key_end:
            return None
        return template, make_item(flag, body, properties)
    except (ValueError, StopIteration, Refused):
        return None


MatchedSend = tuple[tuple[bytes, ...], ConsumeQueue, bytes, int]
"""A send that matches a template: the variable values of its header (opaque, queue id, born time,
texts), its queue, the frame, and where the body begins in it."""


@dataclass(frozen=True, slots=True)
class SendColumns:
    """The fields of a run, in columns: item i of each field belongs to send i.

    :param texts: one tuple per variable property (unique key, keys, tags).
    :param blocks: `texts`, each tuple joined to one bytes object.
    """

    queues: tuple[ConsumeQueue, ...]
    frames: tuple[bytes, ...]
    opaques: tuple[bytes, ...]
    queue_ids: tuple[bytes, ...]
    born: tuple[bytes, ...]
    texts: list[tuple[bytes, ...]]
    blocks: list[bytes]
    bodies: list[bytes]

    @classmethod
    def of_run(cls, run: Sequence[MatchedSend]) -> SendColumns:
        values, queues, frames, body_starts = zip(*run, strict=True)
        opaques, queue_ids, born, *texts = zip(*values, strict=True)
        bodies = [frame[start:] for frame, start in zip(frames, body_starts, strict=True)]
        return cls(
            queues,
            frames,
            opaques,
            queue_ids,
            born,
            texts,
            [b"".join(text) for text in texts],
            bodies,
        )
