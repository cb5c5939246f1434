"""Messages to send, and messages as callbacks get them."""

from __future__ import annotations

from typing import Self

from roquet.client import received
from roquet.compat.rocketmq.consts import MessageProperty
from roquet.compat.rocketmq.exceptions import RocketMQException
from roquet.compat.rocketmq.texts import Text, text_of
from roquet.protocol.records import message as m
from roquet.protocol.records.record import Record


class Message:
    """A message to send. It is checked when it is sent.

    :param topic: the topic.
    """

    def __init__(self, topic: Text) -> None:
        self._topic = text_of("topic", topic)
        self._body = b""
        self._tags: str | None = None
        self._keys: tuple[str, ...] = ()
        self._properties: dict[str, str] = {}
        self._delay_level = 0

    def set_keys(self, keys: Text) -> None:
        """Set the words by which the message can be queried, separated by blanks."""
        self._keys = tuple(text_of("keys", keys).split())

    def set_tags(self, tags: Text) -> None:
        """Set the tag by which consumers filter."""
        self._tags = text_of("tags", tags)

    def set_body(self, body: Text) -> None:
        """Set the body. A str is encoded as UTF-8."""
        if not isinstance(body, str | bytes):
            raise RocketMQException(f"body is of type {type(body).__name__}: give a str, or bytes")
        self._body = body.encode() if isinstance(body, str) else body

    def set_property(self, key: Text, value: Text) -> None:
        """Set a property of the application."""
        self._properties[text_of("key", key)] = text_of("value", value)

    def set_delay_time_level(self, delay_time_level: int) -> None:
        """Delay the delivery: by default level 1 is 1 s, 2 is 5 s, 3 is 10 s, 4 is 30 s; 0: not."""
        self._delay_level = delay_time_level

    def to_send(self) -> m.Message:
        """The message as `roquet.sync` takes it.

        :raises MessageError: it breaks a rule of the protocol.
        """
        return m.Message(
            self._topic,
            self._body,
            self._tags,
            self._keys,
            dict(self._properties),
            delay_level=self._delay_level,
        )


class ReceivedMessage:
    """A message as a callback gets it. Keys, tags, body and properties are bytes, b"" if missing.

    :param message: the message as `roquet.sync` delivers it.
    """

    def __init__(self, message: received.ReceivedMessage) -> None:
        self._message = message

    @classmethod
    def of_sent(cls, message: m.Message, message_id: str) -> Self:
        """A message that this process has sent.

        Where it is stored is not known here: its offsets are -1.
        """
        properties = message.wire_properties(message_id)
        record = Record(
            -1,
            message.flag,
            -1,
            -1,
            0,
            0,
            b"",
            0,
            b"",
            0,
            0,
            message.body,
            message.topic,
            properties,
        )
        return cls(received.ReceivedMessage(record, received.MessageSource(), 0))

    @property
    def topic(self) -> str:
        """The topic that the message was sent to."""
        return self._message.topic

    @property
    def tags(self) -> bytes:
        """The tag."""
        return self[m.TAGS]

    @property
    def keys(self) -> bytes:
        """The words by which the message can be queried, separated by blanks."""
        return self[m.KEYS]

    @property
    def body(self) -> bytes:
        """The body, decompressed. Zero bytes in it do not end it."""
        return self._message.body

    @property
    def id(self) -> str:
        """The id that the producer gave the message."""
        return self._message.message_id

    @property
    def delay_time_level(self) -> int:
        """The delay level that the message was sent with; 0: none."""
        level = self._message.properties.get(m.DELAY, "")
        return int(level) if level.isdecimal() else 0

    @property
    def queue_id(self) -> int:
        """The number of the queue on its broker."""
        return self._message.queue.queue_id

    @property
    def reconsume_times(self) -> int:
        """How often the message was delivered before."""
        return self._message.reconsume_times

    @property
    def store_size(self) -> int:
        """The size of the stored message in bytes."""
        return self._message.store_size

    @property
    def born_timestamp(self) -> int:
        """When the producer made the message, in ms since 1970."""
        return self._message.born_time_ms

    @property
    def store_timestamp(self) -> int:
        """When the broker stored the message, in ms since 1970."""
        return self._message.store_time_ms

    @property
    def queue_offset(self) -> int:
        """Where the message is in its queue."""
        return self._message.queue_offset

    @property
    def commit_log_offset(self) -> int:
        """Where the message is in the broker's commit log."""
        return self._message.physical_offset

    @property
    def prepared_transaction_offset(self) -> int:
        """Where the half message was in the commit log; 0 if there was none."""
        return self._message.prepared_offset

    def get_property(self, prop: Text | MessageProperty) -> bytes:
        """The value of a property; b"" if the message does not have it."""
        name = prop.value if isinstance(prop, MessageProperty) else text_of("prop", prop)
        return self._message.properties.get(name, "").encode()

    def __getitem__(self, key: Text | MessageProperty) -> bytes:
        return self.get_property(key)

    def __str__(self) -> str:
        return self.body.decode()

    def __bytes__(self) -> bytes:
        return self.body

    def __repr__(self) -> str:
        return f"<ReceivedMessage topic={self.topic!r} id={self.id!r} body={self.body!r}>"
