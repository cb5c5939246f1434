"""The blocking client of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from roquet import cluster
from roquet.client._consume.offsets import Start
from roquet.client._consume.topic_patterns import Topics
from roquet.client._send.encoder import MessageFields
from roquet.client.config import ClientConfig, ClientOptions, NameServers
from roquet.client.producer import (
    TIMEOUT_MS,
    BatchOptions,
    OneWayOptions,
    ProducerOptions,
    ReplyOptions,
    SendOptions,
)
from roquet.client.pull_consumer import PullOptions
from roquet.client.received import ReceivedMessage
from roquet.client.send_result import SendResult
from roquet.cluster import DEFAULT_GROUP
from roquet.protocol.records.message import Message
from roquet.sync.admin import AdminClient
from roquet.sync.blocking_user import BlockingUser
from roquet.sync.consumer import Consumer, ConsumerOptions
from roquet.sync.producer import Producer, taken_here
from roquet.sync.pull_consumer import PullConsumer
from roquet.sync.transactions import Check, TransactionProducer

__all__ = ["Client", "connect"]


class Client(BlockingUser[cluster.Client]):
    """A client of a cluster, for code without event loop. Its producers and consumers share it.

        with roquet.sync.connect("127.0.0.1:9876") as mq:
            mq.send("orders", b"...")
            with mq.consumer("billing", "orders") as consumer:
                for message in consumer:
                    ...

    Any thread may use it and what comes from it.

    :param name_server: `host:port`, several separated by semicolons; or a `ClientConfig`.
    :param options: the keyword arguments of `ClientConfig`: `credentials`, `tls`, `client_id`,
        `hooks`, `namespace`, `poll_name_server_ms`, `heartbeat_ms`, `unit_mode`, `unit_name`;
        and `runtime`, for simulations. `help(roquet.ClientConfig)` explains them.
    :raises ConfigError: an argument cannot be used; the message names it.
    """

    _made_by = "roquet.sync.connect"

    def __init__(
        self, name_server: NameServers | ClientConfig, **options: Unpack[ClientOptions]
    ) -> None:
        super().__init__(cluster.Client(name_server, **options), None)

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
        """A member of a consumer group, not started yet. The arguments are those of `Consumer`."""
        return Consumer(self, group, topics, start, **options)

    def pull_consumer(self, **options: Unpack[PullOptions]) -> PullConsumer:
        """A reader of queues without a group, not started. The arguments are `PullConsumer`'s."""
        return PullConsumer(self, **options)

    def admin(self) -> AdminClient:
        """A client for administration, not started yet."""
        return AdminClient(self)

    def send(
        self, topic: str | Message, body: bytes | None = None, **options: Unpack[SendOptions]
    ) -> SendResult:
        """Send one message. The arguments and errors are those of `Producer.send`.

        :param options: `tags`, `keys`, `properties`, `flag`, `delay_level`, `wait_stored`,
            `sharding_key`, `queue`, `timeout_ms`.
        """
        return self._call(self._client.send, topic, body, **options)

    def send_batch(
        self, messages: Iterable[Message], **options: Unpack[BatchOptions]
    ) -> list[SendResult]:
        """Send a batch. The arguments and errors are those of `Producer.send_batch`."""
        return self._call(self._client.send_batch, taken_here(messages), **options)

    def send_one_way(
        self, topic: str | Message, body: bytes | None = None, **options: Unpack[OneWayOptions]
    ) -> str:
        """Send without waiting. Arguments and errors are those of `Producer.send_one_way`."""
        return self._call(self._client.send_one_way, topic, body, **options)

    def flush(self) -> None:
        """Do for all open producers of this client what `Producer.flush` does for one."""
        self._call(self._client.flush)

    def request(
        self,
        topic: str | Message,
        body: bytes | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        **fields: Unpack[MessageFields],
    ) -> ReceivedMessage:
        """Send a message and wait for the reply. Arguments and errors are `Producer.request`'s."""
        return self._call(self._client.request, topic, body, timeout_ms=timeout_ms, **fields)

    def reply(
        self, request: ReceivedMessage, body: bytes, **options: Unpack[ReplyOptions]
    ) -> SendResult:
        """Reply to a request. The arguments and errors are those of `Producer.reply`."""
        return self._call(self._client.reply, request, body, **options)


def connect(name_server: NameServers | ClientConfig, **options: Unpack[ClientOptions]) -> Client:
    """A blocking client of a cluster, to be used with `with`, or with `start` and `close`.

        with roquet.sync.connect("127.0.0.1:9876;127.0.0.1:9877") as mq:
            ...

    :param name_server: `host:port`, several separated by semicolons; or a `ClientConfig`.
    :param options: the keyword arguments of `ClientConfig`: `credentials`, `tls`, `client_id`,
        `hooks`, `namespace`, `poll_name_server_ms`, `heartbeat_ms`, `unit_mode`, `unit_name`;
        and `runtime`, for simulations. `help(roquet.ClientConfig)` explains them.
    :raises ConfigError: an argument cannot be used; the message names it.
    """
    return Client(name_server, **options)
