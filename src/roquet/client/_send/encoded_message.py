"""PURE: messages encoded for sending, independent of the queue they are sent to."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from roquet.errors import MessageError
from roquet.protocol.records.message import (
    COMPRESSED,
    DEFAULT_TOPIC,
    WAIT,
    Message,
    MessageQueue,
    join_properties,
)
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command

BODY_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes before compression (docs/protocol/producing.md#what-a-client-refuses)."""
COMPRESS_FROM_SIZE: Final = 4096
COMPRESSION_LEVEL: Final = 5
NEW_TOPIC_QUEUES: Final = "4"


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """A message or a batch, encoded once for all tries.

    So retries carry the same unique keys (docs/pitfalls.md#trap-64). `reconsume_times` and
    `max_reconsume_times` are for retry topics only.
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

    def request(self, group: str, queue: MessageQueue, now_ms: int) -> Command:
        """The send request, with one-letter field names.

        See docs/protocol/producing.md#a-sends-header.

        :param now_ms: the born time.
        """
        fields = {
            "a": group,
            "b": self.topic,
            "c": DEFAULT_TOPIC,
            "d": NEW_TOPIC_QUEUES,
            "e": str(queue.queue_id),
            "f": str(self.sys_flag),
            "g": str(now_ms),
            "h": str(self.flag),
            "i": self.properties,
            "j": str(self.reconsume_times),
            "k": "false",
            "m": "true" if self.is_batch else "false",
            "n": queue.broker_name,
        }
        if self.max_reconsume_times is not None:
            fields["l"] = str(self.max_reconsume_times)
        return Command(self._code, fields, self.body)

    @property
    def _code(self) -> RequestCode:
        if self.is_reply:
            return RequestCode.SEND_REPLY_MESSAGE_V2
        return RequestCode.SEND_BATCH_MESSAGE if self.is_batch else RequestCode.SEND_MESSAGE_V2


def outgoing(
    message: Message,
    unique_key: str,
    compress_from_size: int = COMPRESS_FROM_SIZE,
    more: Mapping[str, str] | None = None,
) -> EncodedMessage:
    """Encode a message for sending.

    :param compress_from_size: bodies of at least this many bytes are compressed.
    :param more: further system properties.
    :raises MessageError: the body or the properties are too large.
    """
    if len(message.body) > BODY_SIZE_MAX:
        raise MessageError(
            f"message to {message.topic}: body of {len(message.body)} bytes, "
            f"allowed are {BODY_SIZE_MAX}"
        )
    body, sys_flag = compressed(message.body, compress_from_size)
    properties = message.wire_properties(unique_key, more)
    return EncodedMessage(message.topic, body, (unique_key,), properties, message.flag, sys_flag)


def outgoing_batch(
    topic: str, body: bytes, unique_keys: tuple[str, ...], wait_stored: bool
) -> EncodedMessage:
    """Encode a batch for sending."""
    properties = join_properties({WAIT: "true" if wait_stored else "false"})
    return EncodedMessage(topic, body, unique_keys, properties, is_batch=True)


def compressed(body: bytes, from_size: int) -> tuple[bytes, int]:
    """Compress a body if that makes it smaller; return it with its sysFlag bit.

    The bits for the type of compression stay 0, which all releases read as zlib. Java's client
    sends 0x300 since 4.9.4; only newer releases know it (docs/protocol/messages.md#compression).
    """
    if len(body) < from_size:
        return body, 0
    smaller = zlib.compress(body, COMPRESSION_LEVEL)
    return (smaller, COMPRESSED) if len(smaller) < len(body) else (body, 0)
