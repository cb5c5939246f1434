"""The producer: sends messages, and requests that wait for a reply."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Self, Unpack, overload

from roquet.client._net.client import Client
from roquet.client._net.identity import address_bytes
from roquet.client._net.replies import reply_properties
from roquet.client._send.batches import batches, check_batch
from roquet.client._send.encoded_message import (
    COMPRESS_FROM_SIZE,
    EncodedMessage,
    outgoing,
    outgoing_batch,
)
from roquet.client._send.queue_choice import queue_of_key
from roquet.client._send.sender import Pick, Sender
from roquet.client._send.unique_key import UniqueKeys
from roquet.client.config import ClientConfig, ClientOptions
from roquet.client.received import ReceivedMessage
from roquet.client.send_result import SendResult, SendStatus
from roquet.common.units import INT_MAX
from roquet.errors import CallTimeout, MessageError, RouteNotFound
from roquet.protocol.records.message import (
    CORRELATION_ID,
    REPLY_TO_CLIENT,
    TTL,
    Message,
    MessageQueue,
    check_group,
    reply_topic,
)

__all__ = ["Producer", "SendResult", "SendStatus"]

TIMEOUT_MS: Final = 3000


class ProducerOptions(ClientOptions, total=False):
    """The keyword arguments of `Producer`, for producers that add to it."""

    timeout_ms: int
    retries: int
    compress_from_size: int
    avoid_slow_brokers: bool


class Producer(Client):
    """Sends messages. Use it as `async with Producer(...) as producer`.

    Any number of tasks may use one producer at the same time. Their calls share one connection per
    broker, so `await asyncio.gather(*(producer.send(...) for ...))` reaches a high rate.

    :param name_server: `host:port`, several separated by semicolons; or a `ClientConfig`.
    :param group: the name of the producer group; brokers list producers by it.
    :param timeout_ms: the time in ms for one send including its retries; each call may override
        it.
    :param retries: maximum number of retries after the first try. A retry goes to another broker
        if there is one.
    :param compress_from_size: bodies of at least this many bytes are compressed with zlib.
    :param avoid_slow_brokers: avoid brokers for a while whose last send was slow or failed
        (docs/protocol/producing.md#choosing-a-queue).
    :param client: `credentials`, `tls`, `client_id`, `runtime` of `ClientConfig`.
    :raises ConfigError: an argument cannot be used; the message names it.
    :raises MessageError: the group name is not allowed.
    """

    def __init__(
        self,
        name_server: str | ClientConfig,
        group: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        retries: int = 2,
        compress_from_size: int = COMPRESS_FROM_SIZE,
        avoid_slow_brokers: bool = False,
        **client: Unpack[ClientOptions],
    ) -> None:
        super().__init__(name_server, **client)
        check_group(group)
        self._group = group
        self._timeout_ms = timeout_ms
        self._compress_from_size = compress_from_size
        self._sender = Sender(self._session, group, retries, avoid_slow_brokers=avoid_slow_brokers)
        chance = self._session.runtime.random
        address = address_bytes(self._session.client_id, chance)
        self._unique_keys = UniqueKeys(address, self._session.runtime.now_ms, chance)
        self._known_for: set[str] = set()
        """Topics for which all brokers of the cluster have got a heartbeat (see `request`)."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._session.membership.join_as_producer(self._group)
        return self

    @overload
    async def send(
        self,
        message: Message,
        /,
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult: ...

    @overload
    async def send(
        self,
        topic: str,
        body: bytes,
        /,
        *,
        tags: str | None = None,
        keys: str | tuple[str, ...] = (),
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult: ...

    async def send(
        self,
        topic: str | Message,
        body: bytes = b"",
        /,
        *,
        tags: str | None = None,
        keys: str | tuple[str, ...] = (),
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message and return where the broker stored it.

        :param topic: the topic; or a `Message`, which replaces the arguments up to `delay_level`.
        :param body: the body, 1 byte to 4 MiB.
        :param tags: the tag that consumers may filter by.
        :param keys: the keys by which the message can be queried.
        :param properties: properties of the application.
        :param delay_level: deliver the message after the delay of this level: by default 1 is
            1 s, 2 is 5 s, ..., 18 is 2 h; 0 is no delay.
        :param sharding_key: messages with the same key go to the same queue, and stay in order
            if each send is awaited before the next. Retries go to that queue, too.
        :param queue: send to this queue. Retries go to it, too.
        :param timeout_ms: the time in ms including retries.
        :raises MessageError: the message breaks a rule; nothing was sent.
        :raises RouteNotFound: no broker has the topic, and none would create it.
        :raises ResponseError: a broker refused the message; see `code` and `remark`.
        :raises ConnectionClosed: no connection after all tries; the message may be stored.
        :raises CallTimeout: no answer in time; the message may be stored.
        """
        message = _message(topic, body, tags, keys, properties, delay_level)
        encoded = outgoing(message, self._unique_keys.next(), self._compress_from_size)
        pick = _pick(message.topic, sharding_key, queue)
        (result,) = await self._sender.send(encoded, self._time(timeout_ms), pick)
        return result

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send several messages of one topic as a batch; return one result per message, in order.

        If the messages exceed 4 MiB together, they are sent in several requests, one after the
        other. Batches are not compressed.

        :param messages: at least one; without delay, and with the same `wait_stored`.
        :param sharding_key: as in `send`, for the whole batch.
        :param queue: send to this queue.
        :param timeout_ms: the time in ms for each request including its retries.
        :raises MessageError: the messages cannot form a batch; nothing was sent.
        :raises RoquetError: as `send`. If there are several requests, earlier ones are stored.
        """
        many = list(messages)
        check_batch(many)
        pick = _pick(many[0].topic, sharding_key, queue)
        results: list[SendResult] = []
        for encoded in self._encoded_batches(many):
            results += await self._sender.send(encoded, self._time(timeout_ms), pick)
        return results

    def _encoded_batches(self, messages: Sequence[Message]) -> list[EncodedMessage]:
        unique_keys = [self._unique_keys.next() for _ in messages]
        return [
            outgoing_batch(
                messages[0].topic, batch.body, batch.unique_keys, messages[0].wait_stored
            )
            for batch in batches(messages, unique_keys)
        ]

    @overload
    async def send_one_way(
        self,
        message: Message,
        /,
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> str: ...

    @overload
    async def send_one_way(
        self,
        topic: str,
        body: bytes,
        /,
        *,
        tags: str | None = None,
        keys: str | tuple[str, ...] = (),
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> str: ...

    async def send_one_way(
        self,
        topic: str | Message,
        body: bytes = b"",
        /,
        *,
        tags: str | None = None,
        keys: str | tuple[str, ...] = (),
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> str:
        """Send a message without waiting for an answer; return its message id.

        Nothing is retried, and a message that the broker refuses or that gets lost is not
        reported. The arguments are those of `send`.

        :raises MessageError, RouteNotFound, ConnectionClosed, CallTimeout: nothing was sent.
        """
        message = _message(topic, body, tags, keys, properties, delay_level)
        unique_key = self._unique_keys.next()
        encoded = outgoing(message, unique_key, self._compress_from_size)
        await self._sender.send_one_way(
            encoded, self._timeout_ms, _pick(message.topic, sharding_key, queue)
        )
        return unique_key

    # requests and replies

    async def request(self, message: Message, timeout_ms: int = TIMEOUT_MS) -> ReceivedMessage:
        """Send a message and wait until a consumer of it calls `reply`; return that reply.

        :param timeout_ms: the time in ms for send and reply together.
        :raises CallTimeout: no reply in time; the message may be consumed.
        :raises MessageError, RouteNotFound, ResponseError, ConnectionClosed: as `send`.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                await self._announce_to_brokers(message.topic)
                with self._session.replies.expect() as (correlation_id, reply):
                    encoded = outgoing(
                        message,
                        self._unique_keys.next(),
                        self._compress_from_size,
                        {
                            CORRELATION_ID: correlation_id,
                            REPLY_TO_CLIENT: self._session.client_id,
                            TTL: str(timeout_ms),
                        },
                    )
                    await self._sender.send(encoded, timeout_ms)
                    return await reply
        except TimeoutError:
            raise CallTimeout(
                f"no reply to the request to topic {message.topic} within {timeout_ms} ms"
            ) from None

    async def _announce_to_brokers(self, topic: str) -> None:
        """Send heartbeats to all brokers of the topic's clusters, once per topic.

        Any of these brokers may get the reply. It passes the reply on only to a client whose
        heartbeat it has.
        """
        if topic in self._known_for:
            return
        await self._sender.queues(topic, self._timeout_ms)
        clusters = {
            broker.cluster for broker in (await self._session.routes.publish_route(topic)).brokers
        }
        for cluster in sorted(clusters):
            with suppress(RouteNotFound):
                await self._session.routes.route(reply_topic(cluster))
        await self._session.membership.beat()
        self._known_for.add(topic)

    async def reply(
        self,
        request: ReceivedMessage,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | tuple[str, ...] = (),
        properties: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send the reply to a message that was sent by `request`.

        :param request: the received message.
        :raises MessageError: the message was not sent by `request`.
        :raises ResponseError: with code 1: the requester is gone, or did not accept the reply.
        :raises RouteNotFound, ConnectionClosed, CallTimeout: as `send`.
        """
        topic, more = reply_properties(request)
        message = Message(topic, body, tags, keys, properties or {})
        encoded = outgoing(message, self._unique_keys.next(), self._compress_from_size, more)
        queues = await self._sender.queues(topic, self._time(timeout_ms))
        # The broker of the request has a connection to the requester.
        nearest = next(
            (queue for queue in queues if queue.broker_name == request.queue.broker_name), None
        )
        pick = None if nearest is None else _pick(topic, None, nearest)
        (result,) = await self._sender.send(
            replace(encoded, is_reply=True), self._time(timeout_ms), pick
        )
        return result

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that `send` chooses from.

        :raises RouteNotFound: no broker has the topic, and none would create it.
        """
        return list(await self._sender.queues(topic, self._timeout_ms))

    def _time(self, timeout_ms: int | None) -> int:
        return self._timeout_ms if timeout_ms is None else timeout_ms


def _message(
    topic: str | Message,
    body: bytes,
    tags: str | None,
    keys: str | tuple[str, ...],
    properties: Mapping[str, str] | None,
    delay_level: int,
) -> Message:
    if isinstance(topic, Message):
        return topic
    return Message(topic, body, tags, keys, properties or {}, delay_level=delay_level)


def _pick(topic: str, sharding_key: str | None, queue: MessageQueue | None) -> Pick | None:
    if queue is not None:
        if queue.topic != topic:
            raise MessageError(f"queue {queue} is not one of topic {topic}")
        if not 0 <= queue.queue_id <= INT_MAX:
            raise MessageError(f"queue {queue}: a queue id is a number from 0 to {INT_MAX}")
        return lambda _: queue
    if sharding_key is not None:
        return lambda queues: queue_of_key(queues, sharding_key)
    return None
