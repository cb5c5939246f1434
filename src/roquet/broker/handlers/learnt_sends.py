"""The usual sends of one connection, taken without parsing (performance.md, technique 2).

What a learnt send does is what the general path in `send` would do for the same frame, record and answer byte for
byte; the property test in tests/broker/test_learnt_sends.py holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from roquet.broker.durability import Durability
from roquet.broker.handlers.send_answers import SendAnswers
from roquet.broker.topics import TopicRegistry
from roquet.broker.turn import Turn
from roquet.errors import Refused
from roquet.protocol import message as m
from roquet.protocol.batch import split_batch
from roquet.protocol.batch_rows import BatchForm, Rows, learn_form
from roquet.protocol.bodies import TopicConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import BINARY, Command
from roquet.protocol.headers.send import SendHeader, SendHeaderV2
from roquet.protocol.learnt import Shape, is_safe, learn, shape_key
from roquet.storage.consume_queue import ConsumeQueue
from roquet.storage.store import BatchItem, Store
from roquet.transport.connection import Connection

MakeItem = Callable[[int, bytes, bytes], BatchItem]
"""Flag, body and properties of a message in a batch -> the message as it is stored, or Refused."""
_ALWAYS_LEARNT: Final = 64
_LEARN_EVERY: Final = 100
"""A connection whose sends are all different learns the first few, then rarely: learning costs more than parsing."""
_SHAPES_MAX: Final = 256
_TAGS_MAX: Final = 1024


class LearntSends:
    """Keeps: `_sends` only holds forms that were valid under the topic table's `_version`."""

    def __init__(
        self,
        store: Store,
        durability: Durability,
        turn: Turn,
        topics: TopicRegistry,
        answers: SendAnswers,
        message_size_max: int,
    ) -> None:
        self._store = store
        self._durability = durability
        self._turn = turn
        self._topics = topics
        self._answers = answers
        self._message_id_head = store.store_host.hex().upper().encode()
        self._size_max = message_size_max
        self._version = topics.version
        self._sends: dict[bytes, list[_LearntSend]] = {}
        self._tag_codes: dict[bytes, int] = {}
        self._unknown = b""
        self._unknown_count = 0

    def take(self, frame: bytes) -> bytes | None:
        """The answer to a send of a learnt form; None for any other frame."""
        if self._version is not self._topics.version:
            self._version = self._topics.version
            self._sends.clear()
        for known in self._sends.get(frame[:4], ()):
            values = known.match(frame)
            if values is not None:
                answer = self._send_batch(known, values, frame) if known.is_batch else self._send(known, values, frame)
                if answer is not None:
                    return answer
        self._unknown = frame
        return None

    def _send(self, known: _LearntSend, values: tuple[bytes, ...], frame: bytes) -> bytes | None:
        """Store one message; None when a value needs the general path after all."""
        queue = known.queues.get(values[known.queue_id_at]) or known.find_queue(values[known.queue_id_at])
        body = frame[known.header_end :]
        born = values[known.born_at]
        opaque = values[known.opaque_at]
        if queue is None or len(body) > self._size_max or not born.isdigit() or not known.takes_opaque(opaque):
            return None
        keys: Sequence[bytes] = ()
        tag_code = 0
        if known.text_at:
            for at in known.text_at:
                if not values[at].isalnum() and not is_safe(values[at]):
                    return None
            if known.unique_key_at >= 0:
                keys = (values[known.unique_key_at],)
            if known.keys_at >= 0:
                keys = (*keys, *values[known.keys_at].split())
            if known.tags_at >= 0:
                tags = values[known.tags_at]
                tag_code = self._tag_codes.get(tags) or self._tag_code(tags)
        at = self._store.append(
            queue,
            body,
            known.properties(values),
            keys,
            tag_code,
            known.flag,
            known.sys_flag,
            int(born),
            known.born_host,
            known.reconsume_times,
        )
        if not self._turn.is_due:
            self._turn.due()
        message_id = b"%b%016X" % (self._message_id_head, at)
        answer = known.answer(message_id, queue.queue_id, queue.max_offset - 1, opaque)
        if known.waits:
            return self._durability.hold(known.connection, answer, self._store.log.end)
        return answer

    def _send_batch(self, known: _LearntSend, values: tuple[bytes, ...], frame: bytes) -> bytes | None:
        """Store a batch of messages that are alike; None when they are not, or a value needs the general path."""
        queue = known.queues.get(values[known.queue_id_at]) or known.find_queue(values[known.queue_id_at])
        data = frame[known.header_end :]
        born = values[known.born_at]
        opaque = values[known.opaque_at]
        if queue is None or len(data) > self._size_max or not born.isdigit() or not known.takes_opaque(opaque):
            return None
        alike = known.rows(data)
        if alike is None:
            return None
        form, first, rows = alike
        places = self._store.append_rows(
            queue, form, data, rows, first, known.sys_flag, int(born), known.born_host, known.reconsume_times
        )
        if not self._turn.is_due:
            self._turn.due()
        message_ids = self._message_ids(places)
        answer = known.answer(message_ids, queue.queue_id, queue.max_offset - len(places), opaque)
        if known.waits:
            return self._durability.hold(known.connection, answer, self._store.log.end)
        return answer

    def _message_ids(self, places: range) -> bytes:
        """The ids of a batch's messages: store host and place of each, in hexadecimal digits."""
        head = self._message_id_head
        digits = b"".join([at.to_bytes(8, "big") for at in places]).hex().upper().encode()
        return b",".join([head + digits[at : at + 16] for at in range(0, len(digits), 16)])

    def _tag_code(self, tags: bytes) -> int:
        if len(self._tag_codes) >= _TAGS_MAX:
            self._tag_codes.clear()
        code = self._tag_codes[tags] = m.tag_code(tags.decode())
        return code

    def learn(
        self,
        request: Command,
        connection: Connection,
        topic: TopicConfig,
        sys_flag: int,
        stored_properties: Callable[[dict[str, str]], str],
        batch_item: MakeItem,
    ) -> None:
        """Learn the form of the send that `take` did not know a moment ago and the general path has now stored."""
        frame, self._unknown = self._unknown, b""
        self._unknown_count += 1
        if not frame or (self._unknown_count > _ALWAYS_LEARNT and self._unknown_count % _LEARN_EVERY):
            return
        shape = learn(frame, request)
        if shape is None:
            return
        if len(self._sends) >= _SHAPES_MAX:
            self._sends.clear()
        known = _LearntSend(
            shape,
            self._store,
            self._durability,
            self._answers,
            connection,
            topic,
            sys_flag,
            stored_properties,
            batch_item,
        )
        if known.properties(known.match(frame) or ()) == known.properties_of_example:
            self._sends.setdefault(shape_key(frame), []).append(known)


class _LearntSend:
    """One form of send, and all that follows from it once."""

    def __init__(
        self,
        shape: Shape,
        store: Store,
        durability: Durability,
        answers: SendAnswers,
        connection: Connection,
        topic: TopicConfig,
        sys_flag: int,
        stored_properties: Callable[[dict[str, str]], str],
        batch_item: MakeItem,
    ) -> None:
        request = shape.command
        kind = SendHeader if request.code == RequestCode.SEND_MESSAGE else SendHeaderV2
        header = kind.read(request.fields)
        pairs = m.split_properties(header.properties)
        places = shape.places
        self.match = shape.match
        self._store = store
        self._topic = topic
        self._queue_limit = max(topic.write_queues, topic.read_queues)
        self.header_end = shape.header_end
        self.queues: dict[bytes, ConsumeQueue] = {}
        self.is_batch = header.batch
        self._batch_item = batch_item
        self._batch: tuple[BatchForm, BatchItem] | None = None
        self.connection = connection
        self.born_host = connection.peer_host
        self.flag = header.flag
        self.sys_flag = sys_flag
        self.reconsume_times = header.reconsume_times
        self.waits = durability.waits and pairs.get(m.WAIT) != "false"
        self.opaque_at, self.queue_id_at, self.born_at = places.opaque, places.queue_id, places.born
        self.unique_key_at, self.keys_at, self.tags_at = places.unique_key, places.keys, places.tags
        self.text_at = [at for at in (places.unique_key, places.keys, places.tags) if at >= 0]
        self._is_binary = request.header_type == BINARY
        self.answer = answers.binary if self._is_binary else answers.json
        example = stored_properties(pairs)
        self.properties_of_example = example.encode()
        self._set_properties(example, pairs)

    def find_queue(self, queue_id: bytes) -> ConsumeQueue | None:
        """The queue of a queue id as it stands in the header; None for one that the topic does not have."""
        if not queue_id.isdigit() or int(queue_id) >= self._queue_limit:
            return None
        queue = self.queues[queue_id] = self._store.queue(self._topic.name, int(queue_id))
        return queue

    def rows(self, data: bytes) -> tuple[BatchForm, BatchItem, Rows] | None:
        """A batch whose messages are alike, with its first message as it is stored; None for any other batch."""
        known = self._batch
        rows = known[0].rows(data) if known is not None else None
        if known is None or rows is None:
            known = self._batch = self._learn_batch(data)
            rows = known[0].rows(data) if known is not None else None
        return (*known, rows) if known is not None and rows is not None else None

    def _learn_batch(self, data: bytes) -> tuple[BatchForm, BatchItem] | None:
        try:
            flag, body, properties = next(split_batch(data))
            form = learn_form(data)
            if form is None or form.key_at == form.key_end:
                return None
            return form, self._batch_item(flag, body, properties)
        except (ValueError, StopIteration, Refused):
            return None

    def takes_opaque(self, opaque: bytes) -> bool:
        """Whether an opaque can be copied into the answer as it stands."""
        return self._is_binary or (opaque.isdigit() and (opaque[0] != 48 or len(opaque) == 1))

    # stored properties: constant text with the changing values between

    def _set_properties(self, example: str, pairs: dict[str, str]) -> None:
        places = {m.UNIQ_KEY: self.unique_key_at, m.KEYS: self.keys_at, m.TAGS: self.tags_at}
        names = [name for name in pairs if places.get(name, -1) >= 0]
        text = example.replace("%", "%%")
        for name in names:
            value = pairs[name].replace("%", "%%")
            text = text.replace(f"{name}{m.NAME_SEPARATOR}{value}", f"{name}{m.NAME_SEPARATOR}%b", 1)
        self._properties_format = text.encode()
        indices = [places[name] for name in names]
        self._pick: Callable[[tuple[bytes, ...]], Any] = itemgetter(*indices) if indices else lambda _: ()

    def properties(self, values: tuple[bytes, ...]) -> bytes:
        """What is stored as properties for these values."""
        stored: bytes = self._properties_format % self._pick(values)
        return stored
