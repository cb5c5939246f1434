"""The blocking producer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

from roquet.client import producer
from roquet.client._send.encoder import MessageFields
from roquet.client._send.queue_choice import QueueSelector
from roquet.client.config import ClientConfig, NameServers
from roquet.client.producer import TIMEOUT_MS, ProducerOptions
from roquet.client.received import ReceivedMessage
from roquet.client.send_result import SendResult
from roquet.protocol.records.message import Message, MessageQueue
from roquet.sync.blocking_user import BlockingUser, underneath

__all__ = ["Producer"]


class Producer(BlockingUser[producer.Producer]):
    """Sends messages: `roquet.Producer` for code without event loop.

        with Producer("127.0.0.1:9876", "shop") as producer:
            producer.send("orders", b"...", tags="new", keys="o-1")

    The arguments are those of `roquet.Producer`. Threads that send at the same time share one
    connection per broker.

    :raises ConfigError: an argument cannot be used; the message names it.
    :raises MessageError: the group name is not allowed.
    """

    def __init__(
        self,
        name_server: NameServers | ClientConfig | BlockingUser[Any],
        group: str,
        **options: Unpack[ProducerOptions],
    ) -> None:
        shared, owner = underneath(name_server)
        super().__init__(producer.Producer(shared, group, **options), owner)

    def send(
        self,
        topic: str | Message,
        body: bytes | None = None,
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Send one message and return where the broker stored it. See `roquet.Producer.send`.

        :param queue: a queue; or a function that chooses one. It must not block, because it runs in
            the event loop that all clients share.
        """
        return self._call(
            self._client.send,
            topic,
            body,
            sharding_key=sharding_key,
            queue=queue,
            timeout_ms=timeout_ms,
            **fields,
        )

    def flush(self) -> None:
        """Send what waits for others because of `linger_ms`, and wait until that is answered."""
        self._call(self._client.flush)

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send several messages of one topic as a batch; return one result per message, in order.

        See `roquet.Producer.send_batch`.
        """
        return self._call(
            self._client.send_batch,
            taken_here(messages),
            sharding_key=sharding_key,
            queue=queue,
            timeout_ms=timeout_ms,
        )

    def send_one_way(
        self,
        topic: str | Message,
        body: bytes | None = None,
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | QueueSelector | None = None,
        **fields: Unpack[MessageFields],
    ) -> str:
        """Send a message without waiting for an answer; return its message id."""
        return self._call(
            self._client.send_one_way,
            topic,
            body,
            sharding_key=sharding_key,
            queue=queue,
            **fields,
        )

    def request(
        self,
        topic: str | Message,
        body: bytes | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        **fields: Unpack[MessageFields],
    ) -> ReceivedMessage:
        """Send a message and wait until a consumer of it calls `reply`; return that reply."""
        return self._call(self._client.request, topic, body, timeout_ms=timeout_ms, **fields)

    def reply(
        self,
        request: ReceivedMessage,
        body: bytes,
        *,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Send the reply to a message that was sent by `request`."""
        return self._call(self._client.reply, request, body, timeout_ms=timeout_ms, **fields)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that `send` chooses from."""
        return self._call(self._client.queues, topic)


def taken_here(messages: Iterable[Message]) -> Iterable[Message]:
    """The messages of a generator, which may block: it runs in the thread of the caller.

    What is no iterable is left to the asyncio client, which refuses it.
    """
    return list(messages) if isinstance(messages, Iterable) else messages
