"""PURE: messages and batches, encoded for sending to any queue.

See docs/protocol/messages.md#batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from roquet.client._net.routes import NEW_TOPICS, NewTopics
from roquet.errors import MessageError
from roquet.protocol.records.batch import batch_item
from roquet.protocol.records.compression import ZLIB, Compression
from roquet.protocol.records.layout import SIZE_MIN_V6
from roquet.protocol.records.message import (
    RETRY_PREFIX,
    WAIT,
    Message,
    MessageQueue,
    join_properties,
)
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command

BODY_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes before compression (docs/protocol/producing.md#what-a-client-refuses)."""
BATCH_SIZE_MAX: Final = 4 * 1024 * 1024
"""Brokers refuse a batch whose records are larger than this together, as they would be stored.
Records are larger than the elements of the body."""
RECORD_OVERHEAD: Final = SIZE_MIN_V6 + 64
"""The fixed fields of a record with IPv6 hosts, and the properties that a broker adds."""


@dataclass(slots=True)
class EncodedMessage:
    """A message or a batch, encoded once for all tries: each has the same unique keys.

    See docs/pitfalls.md#trap-64. `reconsume_times` and `max_reconsume_times` are for retry topics
    only. Nothing changes an object. It is not frozen, because making it would take twice as long.
    """

    topic: str
    body: bytes
    unique_keys: tuple[str, ...]
    properties: str
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = False
    is_reply: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    overhead: int = 0
    """How many bytes of the body are not of the bodies of a batch's messages."""

    def request(
        self, group: str, queue: MessageQueue, now_ms: int, new_topics: NewTopics = NEW_TOPICS
    ) -> Command:
        """The send request, with one-letter field names.

        See docs/protocol/producing.md#a-sends-header.

        :param now_ms: the born time.
        :param new_topics: how the broker creates the topic if it does not exist.
        """
        fields = _common_fields(
            group,
            self.topic,
            queue.broker_name,
            queue.queue_id,
            self.sys_flag,
            self.is_batch,
            new_topics,
        ).copy()
        fields["g"] = str(now_ms)  # bornTimestamp
        fields["i"] = self.properties  # properties
        if self.flag:
            fields["h"] = str(self.flag)  # flag
        if self.reconsume_times:
            fields["j"] = str(self.reconsume_times)  # reconsumeTimes
        if self.max_reconsume_times is not None:
            fields["l"] = str(self.max_reconsume_times)  # maxReconsumeTimes
        return Command(self._code, fields, self.body)

    @property
    def _code(self) -> RequestCode:
        if self.is_reply:
            return RequestCode.SEND_REPLY_MESSAGE_V2
        return RequestCode.SEND_BATCH_MESSAGE if self.is_batch else RequestCode.SEND_MESSAGE_V2


@lru_cache(1024)
def _common_fields(
    group: str,
    topic: str,
    broker_name: str,
    queue_id: int,
    sys_flag: int,
    is_batch: bool,
    new_topics: NewTopics,
) -> dict[str, str]:
    """The fields of all sends of a producer to a queue, in the order of the wire.

    What most of its sends have in common is filled in.
    """
    return {
        "a": group,  # producerGroup
        "b": topic,  # topic
        "c": new_topics.template,  # defaultTopic
        "d": str(new_topics.queues),  # defaultTopicQueueNums
        "e": str(queue_id),  # queueId
        "f": str(sys_flag),  # sysFlag
        "g": "",
        "h": "0",  # flag
        "i": "",
        "j": "0",  # reconsumeTimes
        "k": "true" if new_topics.are_of_unit else "false",  # unitMode
        "m": "true" if is_batch else "false",  # batch
        "n": broker_name,  # brokerName
    }


def encode_message(
    message: Message,
    unique_key: str,
    compression: Compression | None = ZLIB,
    more: Mapping[str, str] | None = None,
    size_max: int = BODY_SIZE_MAX,
) -> EncodedMessage:
    """Encode a message for sending.

    :param compression: how a large body is compressed; None: not at all.
    :param more: further system properties.
    :param size_max: maximum size of the body in bytes, before compression.
    :raises MessageError: the body or the properties are too large.
    """
    if len(message.body) > size_max:
        raise MessageError(
            f"message to {message.topic}: body of {len(message.body)} bytes, allowed are {size_max}"
        )
    body, sys_flag = compression.apply(message.body) if compression else (message.body, 0)
    properties = message.wire_properties(unique_key, more)
    return EncodedMessage(message.topic, body, (unique_key,), properties, message.flag, sys_flag)


def encode_batch(
    topic: str,
    body: bytes,
    unique_keys: tuple[str, ...],
    wait_stored: bool,
    bodies_size: int | None = None,
) -> EncodedMessage:
    """Encode a batch for sending. `body` has its elements, already encoded, end to end.

    :param bodies_size: the size of the messages' own bodies, for whoever counts it.
    """
    properties = join_properties({WAIT: "true" if wait_stored else "false"})
    overhead = 0 if bodies_size is None else len(body) - bodies_size
    return EncodedMessage(topic, body, unique_keys, properties, is_batch=True, overhead=overhead)


def check_batch(messages: Sequence[Message]) -> None:
    """Check that messages can form a batch.

    :raises MessageError: they cannot.
    """
    if not messages:
        raise MessageError("a batch needs at least one message")
    first = messages[0]
    if first.topic.startswith(RETRY_PREFIX):
        raise MessageError(f"topic {first.topic}: retry topics take no batches")
    for message in messages:
        if message.topic != first.topic:
            raise MessageError(
                f"a batch has one topic, this one has {first.topic} and {message.topic}"
            )
        if message.wait_stored != first.wait_stored:
            raise MessageError("either all messages of a batch wait to be stored or none does")
        if message.delay_level:
            raise MessageError("a delayed message cannot be part of a batch")


def encode_batches(
    messages: Sequence[Message], unique_keys: Sequence[str], size_max: int = BATCH_SIZE_MAX
) -> Iterator[EncodedMessage]:
    """Encode messages, in order, as the fewest batches that their size allows.

    :param size_max: maximum size in bytes of the records of a batch as they will be stored.
    :raises MessageError: one message alone is too large.
    """
    first = 0
    size = 0
    elements: list[bytes] = []
    for index, (message, unique_key) in enumerate(zip(messages, unique_keys, strict=True)):
        element = batch_item(
            message.flag, message.body, message.wire_properties(unique_key).encode()
        )
        stored_size = len(element) + len(message.topic) + RECORD_OVERHEAD
        if stored_size > size_max:
            raise MessageError(
                f"message of {len(message.body)} bytes: it takes {stored_size} bytes stored, "
                f"a batch may have {size_max}"
            )
        if elements and size + stored_size > size_max:
            yield _batch(messages[first:index], elements, unique_keys[first:index])
            first = index
            size = 0
            elements = []
        elements.append(element)
        size += stored_size
    if elements:
        yield _batch(messages[first:], elements, unique_keys[first:])


def _batch(
    messages: Sequence[Message], elements: Iterable[bytes], unique_keys: Iterable[str]
) -> EncodedMessage:
    return encode_batch(
        messages[0].topic,
        b"".join(elements),
        tuple(unique_keys),
        messages[0].wait_stored,
        sum(len(message.body) for message in messages),
    )
