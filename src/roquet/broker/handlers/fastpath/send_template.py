"""Send plans and templates: how sends that match a cached header template are stored."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np

from roquet.broker.config.delay_levels import DelayLevels, put_aside, waiting_queue
from roquet.broker.handlers.fastpath.cache import CachedTemplate
from roquet.broker.handlers.send_answers import SendAnswers
from roquet.errors import Refused
from roquet.protocol.bodies.tables import TopicConfig
from roquet.protocol.headers.send import SendHeader, SendHeaderV2
from roquet.protocol.records import message as m
from roquet.protocol.records.batch import split_batch
from roquet.protocol.records.layout import record_struct
from roquet.protocol.records.uniform import UniformBatch, checksums, rows_of
from roquet.protocol.records.uniform_batch import BatchTemplate, learn_form
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import BINARY
from roquet.protocol.templates.request import HeaderTemplate, is_number, is_safe
from roquet.storage.batch_records import BatchItem
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store

MakeItem = Callable[[int, bytes, bytes], BatchItem]
"""(flag, body, properties) of a message in a batch -> the item to store. Raises Refused."""


class SendPlan:
    """How sends are stored; templates that differ only in the length of a number share one plan.

    `unique_key_at`, `keys_at` and `tags_at` are indices in the texts of a send, -1 for a property
    that it does not have. Plans of one connection with equal `identity` are interchangeable.

    :param sys_flag: the sysFlag as stored.
    :param born_host: the client's address and port, as stored.
    :param broker_waits: whether SEND_OK waits for disk or slave at all.
    :param stored_properties: turns a send's properties into the text that is stored.
    """

    def __init__(
        self,
        header_template: HeaderTemplate,
        store: Store,
        topic: TopicConfig,
        sys_flag: int,
        born_host: bytes,
        broker_waits: bool,
        answers: SendAnswers,
        levels: DelayLevels,
        stored_properties: Callable[[dict[str, str]], str],
        batch_item: MakeItem,
    ) -> None:
        plan = (
            SendHeader if header_template.command.code == RequestCode.SEND_MESSAGE else SendHeaderV2
        )
        header = plan.read(header_template.command.fields)
        pairs = m.split_properties(header.properties)
        level = levels.level_of(pairs)
        self.delay_ms = levels.ms[level - 1] if level else None
        self._store = store
        self._topic = topic
        self._waits_in = store.queue(*waiting_queue(level)) if level else None
        self._topic_size = len((m.SCHEDULE_TOPIC if level else topic.name).encode())
        self._queue_limit = max(topic.write_queues, topic.read_queues)
        self._batch_item = batch_item
        self._batch: tuple[BatchTemplate, BatchItem] | None = None
        self.queues: dict[bytes, ConsumeQueue] = {}
        """By queue id in decimal digits, as in the header."""
        self.is_binary = header_template.command.header_type == BINARY
        self.is_one_way = header_template.command.is_one_way
        self.answers = partial(answers.encode, binary=self.is_binary)
        self.is_batch = header.batch
        self.flag = header.flag
        self.sys_flag = sys_flag
        self.born_host = born_host
        self.reconsume_times = header.reconsume_times
        self.waits = broker_waits and pairs.get(m.WAIT) != "false"
        self.names = [name for name in pairs if name in (m.UNIQ_KEY, m.KEYS, m.TAGS)]
        self.unique_key_at, self.keys_at, self.tags_at = (
            self.names.index(name) if name in self.names else -1
            for name in (m.UNIQ_KEY, m.KEYS, m.TAGS)
        )
        if level:
            pairs = put_aside(pairs, level, topic.name, header.queue_id)
        names = [*self.names, m.REAL_QID] if level else self.names
        stored = stored_properties(pairs)
        texts = tuple(pairs[name].encode() for name in names)
        self._constants = self._split(stored, pairs, names)
        self._properties_format = b"%b".join(
            constant.replace(b"%", b"%%") for constant in self._constants
        )
        sizes = [len(text) for text in texts]
        befores = zip(
            accumulate(map(len, self._constants)), accumulate(sizes, initial=0), strict=True
        )
        self._piece_places = [sum(before) for before in befores][:-1]
        is_shared = self.is_batch and (self.keys_at >= 0 or self.tags_at >= 0)
        takes_a_slot = not sys_flag & m.TRANSACTION_PREPARED
        is_stored_so = self._properties_format % texts == stored.encode()
        self.is_takeable = (
            takes_a_slot and not is_shared and is_stored_so and not (self.is_batch and level)
        )
        """Whether the fast path may store these sends.

        It may not store prepared transactions (they get no queue entry), delayed batches, batches
        whose header has keys or tags, or properties that the template cannot reproduce.
        """
        self.identity: Hashable = (
            *(
                topic.name,
                self.is_binary,
                self.is_one_way,
                self.is_batch,
                self.flag,
                sys_flag,
                self.reconsume_times,
            ),
            *(
                (name, len(value.encode()) if name in names else value)
                for name, value in pairs.items()
            ),
        )

    def _split(self, stored: str, pairs: dict[str, str], names: Sequence[str]) -> list[bytes]:
        """The constant parts before, between and after the variable values in stored properties."""
        constants: list[bytes] = []
        for name in names:
            start = f"{name}{m.NAME_SEPARATOR}"
            before, _, stored = stored.partition(f"{start}{pairs[name]}")
            constants.append(f"{before}{start}".encode())
        return [*constants, stored.encode()]

    def find_queue(self, queue_id: bytes) -> ConsumeQueue | None:
        """The consume queue that sends with this queue id are stored in; added to `queues`.

        :param queue_id: as in the header.
        :returns: None if the topic has no such queue, or if the queue has no file yet: the slow
            path creates it, so that a run of messages to new queues does not create all files at
            once.
        """
        if not is_number(queue_id) or int(queue_id) >= self._queue_limit:
            return None
        queue = self._waits_in or self._store.queue(self._topic.name, int(queue_id))
        if not queue.is_in_use:
            return None
        self.queues[queue_id] = queue
        return queue

    def properties(self, texts: Sequence[bytes], queue_id: bytes) -> bytes:
        """The properties to store for a message with these texts.

        :param queue_id: the queue of a delayed message (`REAL_QID`); otherwise unused.
        """
        return self._properties_format % (
            (*texts, queue_id) if self.delay_ms is not None else tuple(texts)
        )

    def _is_plain(self, columns: SendColumns) -> bool:
        """Whether no value could be parsed in another way than as its own bytes."""
        return (
            b"".join(columns.born).isdigit()
            and all(block.isalnum() or is_safe(block) for block in columns.blocks)
            and (self.is_binary or all(map(is_number, columns.opaques)))
        )

    def size_in_log(self, messages: UniformBatch) -> int:
        return len(messages) * self._record_size(messages.body, messages.properties)

    def _record_size(self, body: bytes, properties: bytes) -> int:
        return record_struct(self.sys_flag, len(body), self._topic_size, len(properties)).size

    def alike(self, columns: SendColumns, tag_codes: int | list[int]) -> UniformBatch | None:
        """The messages of a run of single sends as a uniform batch.

        :returns: None if a value could be parsed in another way, or a message has several keys.
        """
        if not self._is_plain(columns) or (
            self.keys_at >= 0 and b" " in columns.blocks[self.keys_at]
        ):
            return None
        bodies, count = columns.bodies, len(columns.bodies)
        first, blocks = [text[0] for text in columns.texts], columns.blocks
        if self.delay_ms is not None:
            blocks = [*blocks, b"".join(columns.queue_ids)]
        return UniformBatch(
            self.flag,
            self.sys_flag,
            self.reconsume_times,
            self.born_host,
            [int(born) for born in columns.born],
            bodies[0],
            self.properties(first, columns.queue_ids[0]),
            rows_of(b"".join(bodies), count),
            checksums(zip(bodies, strict=True)),
            [
                (at, rows_of(block, count))
                for at, block in zip(self._piece_places, blocks, strict=True)
            ],
            [columns.blocks[at] for at in (self.unique_key_at, self.keys_at) if at >= 0],
            tag_codes,
        )

    # batches

    def alike_in_batches(self, columns: SendColumns, stored_size_max: int) -> UniformBatch | None:
        """The messages of a run of batches as one uniform batch.

        :param stored_size_max: bytes that the records of one batch may take.
        :returns: None if the messages do not have one layout, if a value could be parsed in another
            way, or if the records of a batch are too large.
        """
        batches = columns.bodies
        data = batches[0] if len(batches) == 1 else b"".join(batches)
        if self._batch is None or (len(batches) == 1 and self._batch[0].rows(data) is None):
            self._batch = self._learn_batch(batches[0])
        if (
            self._batch is None
            or len(batches[0]) % self._batch[0].item_size
            or not self._is_plain(columns)
        ):
            return None
        template, first = self._batch
        stored_size = (
            len(batches[0]) // template.item_size * self._record_size(first.body, first.properties)
        )
        if stored_size > stored_size_max:
            return None
        rows = template.rows(data)
        if rows is None:
            return None
        count = len(rows)
        unique_keys = template.unique_keys(rows)
        return UniformBatch(
            first.flag,
            self.sys_flag,
            self.reconsume_times,
            self.born_host,
            np.repeat(np.array([int(born) for born in columns.born]), count // len(batches)),
            template.bodies(rows)[0].tobytes(),
            first.properties,
            template.bodies(rows),
            template.checksums(data),
            [(template.key_in_properties, unique_keys)],
            [unique_keys.tobytes(), *(key * count for key in first.keys[1:])],
            first.tag_code,
        )

    def _learn_batch(self, data: bytes) -> tuple[BatchTemplate, BatchItem] | None:
        try:
            flag, body, properties = next(split_batch(data))
            template = learn_form(data)
            if template is None or template.key_at == template.key_end:
                return None
            return template, self._batch_item(flag, body, properties)
        except (ValueError, StopIteration, Refused):
            return None


class SendTemplate(CachedTemplate):
    """A header template of sends; `pick` takes opaque, queue id, born time and the plan's texts."""

    def __init__(self, header_template: HeaderTemplate, plan: SendPlan) -> None:
        super().__init__(header_template, plan.names)
        self.plan = plan
        self.queues = plan.queues


Taken = tuple[SendTemplate, tuple[bytes, ...], ConsumeQueue, bytes]
"""A send: its template, what `SendTemplate.pick` took from it, its queue and the frame."""


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
    def of_run(cls, run: Sequence[Taken]) -> SendColumns:
        templates, values, queues, frames = zip(*run, strict=True)
        opaques, queue_ids, born, *texts = zip(*values, strict=True)
        bodies = [
            frame[template.header_end :] for template, frame in zip(templates, frames, strict=True)
        ]
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
