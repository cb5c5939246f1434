"""The client of a cluster: one session from which producers, consumers and the rest come.

May import: admin, client, protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from typing import Any, Final, Self, Unpack

from roquet.admin.cluster import AdminClient
from roquet.client._consume.offsets import Start
from roquet.client._consume.topic_patterns import Topics
from roquet.client._net.session_user import SessionUser
from roquet.client._send.encoder import MessageFields
from roquet.client.config import ClientConfig, ClientOptions, NameServers
from roquet.client.consumer import Consumer, ConsumerOptions
from roquet.client.producer import (
    TIMEOUT_MS,
    BatchOptions,
    OneWayOptions,
    Producer,
    ProducerOptions,
    ReplyOptions,
    SendOptions,
)
from roquet.client.pull_consumer import PullConsumer, PullOptions
from roquet.client.received import ReceivedMessage
from roquet.client.send_result import SendResult
from roquet.client.transactions import Check, TransactionProducer
from roquet.protocol.records.message import Message

__all__ = ["Client", "connect"]

DEFAULT_GROUP: Final = "roquet"
"""The producer group of what a `Client` sends itself."""


class Client(SessionUser):
    """A client of a cluster. Its producers and consumers share one session.

        async with roquet.connect("127.0.0.1:9876") as mq:
            await mq.send("orders", b"...")
            async with mq.consumer("billing", "orders") as consumer:
                async for message in consumer:
                    ...

    They share the connections, the routes and the client id. They are started and closed on their
    own; those that are still open are closed with this client.

    :param name_server: `host:port`, several separated by semicolons; or a `ClientConfig`.
    :param options: the keyword arguments of `ClientConfig`: `credentials`, `tls`, `client_id`,
        `hooks`, `namespace`, `poll_name_server_ms`, `heartbeat_ms`, `unit_mode`, `unit_name`;
        and `runtime`, for simulations. `help(roquet.ClientConfig)` explains them.
    :raises ConfigError: an argument cannot be used; the message names it.
    """

    _made_by = "roquet.connect"

    def __init__(
        self, name_server: NameServers | ClientConfig, **options: Unpack[ClientOptions]
    ) -> None:
        super().__init__(name_server, **options)
        self._producer: Producer | None = None
        self._producer_starts = asyncio.Lock()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    def producer(self, group: str = DEFAULT_GROUP, **options: Unpack[ProducerOptions]) -> Producer:
        """A producer, not started yet. The arguments are those of `Producer`."""
        return Producer(self, group, **options)

    def transaction_producer(
        self,
        group: str,
        check: Check,
        *,
        topics: Iterable[str] = (),
        **options: Unpack[ProducerOptions],
    ) -> TransactionProducer:
        """A transaction producer, not started. The arguments are those of `TransactionProducer`."""
        return TransactionProducer(self, group, check, topics=topics, **options)

    def consumer(
        self,
        group: str,
        topics: Topics,
        start: Start = "latest",
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """A member of a consumer group, not started yet. The arguments are those of `Consumer`.

        A session has one member of a group. Several members need a client each.
        """
        return Consumer(self, group, topics, start, **options)

    def pull_consumer(self, **options: Unpack[PullOptions]) -> PullConsumer:
        """A reader of queues without a group, not started. The arguments are `PullConsumer`'s."""
        return PullConsumer(self, **options)

    def admin(self) -> AdminClient:
        """A client for administration, not started yet."""
        return AdminClient(self)

    async def send(
        self, topic: str | Message, body: bytes | None = None, **options: Unpack[SendOptions]
    ) -> SendResult:
        """Send one message. The arguments and errors are those of `Producer.send`.

        :param options: `tags`, `keys`, `properties`, `flag`, `delay_level`, `wait_stored`,
            `sharding_key`, `queue`, `timeout_ms`.
        """
        return await (await self._default_producer()).send(topic, body, **options)

    async def send_batch(
        self, messages: Iterable[Message], **options: Unpack[BatchOptions]
    ) -> list[SendResult]:
        """Send a batch. The arguments and errors are those of `Producer.send_batch`."""
        return await (await self._default_producer()).send_batch(messages, **options)

    async def send_one_way(
        self, topic: str | Message, body: bytes | None = None, **options: Unpack[OneWayOptions]
    ) -> str:
        """Send without waiting. Arguments and errors are those of `Producer.send_one_way`."""
        return await (await self._default_producer()).send_one_way(topic, body, **options)

    async def flush(self) -> None:
        """Do for all open producers of this client what `Producer.flush` does for one."""
        self._require_open()
        producers = [guest for guest in self._guests if isinstance(guest, Producer)]
        await asyncio.gather(*(each.flush() for each in producers if each.is_open))

    async def request(
        self,
        topic: str | Message,
        body: bytes | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        **fields: Unpack[MessageFields],
    ) -> ReceivedMessage:
        """Send a message and wait for the reply. Arguments and errors are `Producer.request`'s."""
        return await (await self._default_producer()).request(
            topic, body, timeout_ms=timeout_ms, **fields
        )

    async def reply(
        self, request: ReceivedMessage, body: bytes, **options: Unpack[ReplyOptions]
    ) -> SendResult:
        """Reply to a request. The arguments and errors are those of `Producer.reply`."""
        return await (await self._default_producer()).reply(request, body, **options)

    async def _default_producer(self) -> Producer:
        self._require_open()
        if self._producer is None:
            async with self._producer_starts:
                if self._producer is None:
                    self._producer = await self.producer().start()
        return self._producer


def connect(name_server: NameServers | ClientConfig, **options: Unpack[ClientOptions]) -> Client:
    """A client of a cluster, to be used with `async with`, or with `await`.

        async with roquet.connect("127.0.0.1:9876;127.0.0.1:9877") as mq:
            ...

        mq = await roquet.connect("127.0.0.1:9876")
        ...
        await mq.close()

    :param name_server: `host:port`, several separated by semicolons; or a `ClientConfig`.
    :param options: the keyword arguments of `ClientConfig`: `credentials`, `tls`, `client_id`,
        `hooks`, `namespace`, `poll_name_server_ms`, `heartbeat_ms`, `unit_mode`, `unit_name`;
        and `runtime`, for simulations. `help(roquet.ClientConfig)` explains them.
    :raises ConfigError: an argument cannot be used; the message names it.
    """
    return Client(name_server, **options)
