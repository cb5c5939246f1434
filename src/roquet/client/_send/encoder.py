"""The messages of a producer: built from the arguments of a send, and encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from roquet.client._send.encoded_message import (
    BODY_SIZE_MAX,
    EncodedMessage,
    check_batch,
    encode_batches,
    encode_message,
)
from roquet.client._send.unique_key import UniqueKeys
from roquet.common.arguments import unknown_keyword
from roquet.errors import MessageError
from roquet.protocol.records.compression import Compression
from roquet.protocol.records.message import (
    INSTANCE_ID,
    PRODUCER_GROUP,
    PROPERTY_SEPARATOR,
    TRAN_MSG,
    TRANSACTION_PREPARED,
    Message,
    join_properties,
    wrong_type,
)
from roquet.protocol.records.namespace import NO_NAMESPACE, Namespace


class MessageFields(TypedDict, total=False):
    """The parameters of `Message` after topic and body, as keyword arguments of a send."""

    tags: str | None
    keys: str | tuple[str, ...]
    properties: Mapping[str, str]
    flag: int
    delay_level: int
    wait_stored: bool


def message_of(
    topic: str | Message,
    body: bytes | None,
    fields: MessageFields,
    method: str = "send",
    options: type[MessageFields] = MessageFields,
) -> Message:
    """The message that the arguments of a send mean.

    :param method: the method that was called.
    :param options: its keyword arguments after the body.
    :raises MessageError: the message breaks a rule, or there is a `Message` and something else.
    :raises TypeError: the method has no such keyword argument.
    """
    if not isinstance(topic, Message):
        if not isinstance(topic, str):
            raise wrong_type("topic", topic, "a topic's name, or a Message without a body")
        if body is None:
            raise MessageError(f"a message to {topic} has no body: give bytes, at least one")
        try:
            return Message(topic, body, **fields)
        except TypeError:
            for name in fields:
                if name not in MessageFields.__annotations__:
                    raise unknown_keyword(method, name, options.__annotations__) from None
            raise
    if body is not None or fields:
        given = [*fields] if body is None else ["body", *fields]
        raise MessageError(
            f"a Message to {topic.topic} is sent together with {', '.join(given)}: "
            "make these part of the Message, or give a topic in place of it"
        )
    return topic


def check_message(message: Message) -> None:
    """:raises MessageError: `message` is something else."""
    if not isinstance(message, Message):
        raise wrong_type("message", message, "a Message")


def check_messages(messages: Sequence[Message]) -> None:
    """Check that messages can form a batch.

    :raises MessageError: they cannot.
    """
    for message in messages:
        check_message(message)
    check_batch(messages)


class MessageEncoder:
    """Encodes the messages of one producer. Each gets a unique key.

    :param compression: how large bodies are compressed; None: not at all.
    :param names: the namespace of the client.
    :param size_max: maximum size in bytes of a body before compression, and of a batch as it will
        be stored.
    """

    def __init__(
        self,
        unique_keys: UniqueKeys,
        compression: Compression | None,
        names: Namespace = NO_NAMESPACE,
        size_max: int = BODY_SIZE_MAX,
    ) -> None:
        self._size_max = size_max
        self._names = names
        self._unique_keys = unique_keys
        self._compression = compression

    def encode(self, message: Message, more: Mapping[str, str] | None = None) -> EncodedMessage:
        """Encode a message.

        :param more: further system properties.
        :raises MessageError: it is no `Message`, or the body or the properties are too large.
        """
        check_message(message)
        if self._names.name:
            message = replace(message, topic=self._names.full(message.topic))
            more = {**(more or {}), INSTANCE_ID: self._names.name}
        unique_key = self._unique_keys.next()
        return encode_message(message, unique_key, self._compression, more, self._size_max)

    def encode_half(self, message: Message, group: str) -> EncodedMessage:
        """Encode a half message: it is delivered only after its transaction is committed.

        See docs/protocol/transactions.md#half-message.

        :param group: the producer group, whose members the broker asks for the outcome.
        :raises MessageError: the body or the properties are too large, or the message has a delay.
        """
        check_message(message)
        if message.delay_level:
            raise MessageError(
                "a message of a transaction cannot be delayed: delay_level must be 0"
            )
        half = self.encode(message, {TRAN_MSG: "true", PRODUCER_GROUP: group})
        return replace(half, sys_flag=half.sys_flag | TRANSACTION_PREPARED)

    def encode_batches(self, messages: Sequence[Message]) -> list[EncodedMessage]:
        """Encode messages of one topic as few batches, in order. They are not compressed.

        :raises MessageError: the messages cannot form a batch, or one is too large.
        """
        check_messages(messages)
        unique_keys = [self._unique_keys.next() for _ in messages]
        if not self._names.name:
            return list(encode_batches(messages, unique_keys, self._size_max))
        full = self._names.full(messages[0].topic)
        named = [replace(each, topic=full) for each in messages]
        batches = encode_batches(named, unique_keys, self._size_max)
        instance = PROPERTY_SEPARATOR + join_properties({INSTANCE_ID: self._names.name})
        return [replace(batch, properties=batch.properties + instance) for batch in batches]
