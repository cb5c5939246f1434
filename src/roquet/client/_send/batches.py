"""PURE: batches: several messages as the body of one send.

See docs/protocol/messages.md#batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from roquet.client._send.encoded_message import EncodedMessage, outgoing_batch
from roquet.errors import MessageError
from roquet.protocol.records.batch import batch_item
from roquet.protocol.records.layout import SIZE_MIN_V6
from roquet.protocol.records.message import RETRY_PREFIX, Message

BATCH_SIZE_MAX: Final = 4 * 1024 * 1024
"""Brokers compare this with the sum of the records they will store. Records are larger than the
elements of the body."""

RECORD_OVERHEAD: Final = SIZE_MIN_V6 + 64
"""The fixed fields of a record with IPv6 hosts, and the properties that a broker adds."""


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


def batches(
    messages: Sequence[Message], unique_keys: Sequence[str], size_max: int = BATCH_SIZE_MAX
) -> Iterator[EncodedMessage]:
    """Encode messages, in order, as the fewest batches that their size allows.

    :param size_max: maximum size in bytes of the records of a batch.
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
                f"message of {len(message.body)} bytes: a batch takes {size_max} bytes altogether"
            )
        if elements and size + stored_size > size_max:
            yield _batch(messages[first], elements, unique_keys[first:index])
            first = index
            size = 0
            elements = []
        elements.append(element)
        size += stored_size
    if elements:
        yield _batch(messages[first], elements, unique_keys[first:])


def _batch(first: Message, elements: Iterable[bytes], unique_keys: Iterable[str]) -> EncodedMessage:
    return outgoing_batch(first.topic, b"".join(elements), tuple(unique_keys), first.wait_stored)
