"""The producer: sends messages, and requests that wait for a reply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from roquet.client._net.broker_requests import CheckBackHandler
from roquet.client._net.hooks import SendHooks
from roquet.client._net.replies import reply_properties
from roquet.client._net.routes import NEW_TOPICS, QUEUES_MAX, NewTopics
from roquet.client._net.session_user import SessionUser
from roquet.client._net.tasks import deadline_after, each_in_turn
from roquet.client._send.encoded_message import BODY_SIZE_MAX
from roquet.client._send.encoder import (
    MessageEncoder,
    MessageFields,
    check_messages,
    message_of,
)
from roquet.client._send.gatherer import BATCH_SIZE, Gatherer
from roquet.client._send.queue_choice import QueueSelector, pick_of
from roquet.client._send.sender import IN_FLIGHT_MAX, Sender, SendRules
from roquet.client._send.topic_routes import TopicRoutes
from roquet.client._send.trace import SendTrace, TraceSender
from roquet.client._send.unique_key import UniqueKeys
from roquet.client.config import ClientConfig, ClientOptions, NameServers
from roquet.client.received import ReceivedMessage
from roquet.client.send_result import SendResult, SendStatus
from roquet.common.arguments import check_bool, check_number
from roquet.errors import CallTimeout, ConfigError, MessageError, RouteNotFound
from roquet.protocol.records.compression import (
    COMPRESS_FROM_SIZE,
    Compression,
    CompressionName,
)
from roquet.protocol.records.message import (
    CORRELATION_ID,
    REPLY_TO_CLIENT,
    TTL,
    Message,
    MessageQueue,
    check_group,
    check_topic,
    reply_topic,
    wrong_type,
)
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX

if TYPE_CHECKING:
    from roquet.client.metrics import PartMetrics

__all__ = ["Producer", "SendResult", "SendStatus"]

TIMEOUT_MS: Final = 3000


class ProducerOptions(ClientOptions, total=False):
    """The keyword arguments of `Producer`, for callers that pass them on."""

    timeout_ms: int
    retries: int | None
    max_in_flight: int
    linger_ms: int
    batch_size: int
    compression: CompressionName | None
    compress_from_size: int
    avoid_slow_brokers: bool
    trace: bool | str
    create_topic_key: str
    default_topic_queue_nums: int
    max_message_size: int
    retry_another_broker_when_not_stored: bool


class OneWayOptions(MessageFields, total=False):
    """The keyword arguments of `Producer.send_one_way` after the body, as `ProducerOptions`."""

    sharding_key: str | None
    queue: MessageQueue | QueueSelector | None


class SendOptions(OneWayOptions, total=False):
    """The keyword arguments of `Producer.send` after the body, as `ProducerOptions`."""

    timeout_ms: int | None


class BatchOptions(TypedDict, total=False):
    """The keyword arguments of `Producer.send_batch`, as `ProducerOptions`."""

    sharding_key: str | None
    queue: MessageQueue | QueueSelector | None
    timeout_ms: int | None


class ReplyOptions(MessageFields, total=False):
    """The keyword arguments of `Producer.reply`, as `ProducerOptions`."""

    timeout_ms: int | None


class Producer(SessionUser):
    """Sends messages. Use it with `async with`, or call `start` and `close`.

    Any number of tasks may use one producer at the same time. Their calls share one connection per
    broker, so `await asyncio.gather(*(producer.send(...) for ...))` reaches a high rate.

    :param name_server: `host:port`, several separated by semicolons; or a `ClientConfig`; or a
        started client whose session is shared.
    :param group: the name of the producer group; brokers list producers by it.
    :param timeout_ms: the time in ms for one send, from the call on, with all its tries; each call
        may override it.
    :param retries: maximum number of retries after the first try. None: until the time is over. A
        retry goes to another broker if there is one; otherwise it waits.
    :param max_in_flight: maximum number of sends that wait for an answer of one broker. Others wait
        for these.
    :param linger_ms: how long a send waits for others of its topic, in ms, to be sent with them in
        one request. 0: not at all.
    :param batch_size: maximum number of messages that are sent together because of `linger_ms`.
    :param compression: how large bodies are compressed; None: not at all. "lz4" and "zstd" need
        `roquet[compression]`, and consumers that read them: Apache's do since 4.9.4.
    :param compress_from_size: bodies of at least this many bytes are compressed.
    :param avoid_slow_brokers: avoid brokers for a while whose last send was slow or failed
        (docs/protocol/producing.md#choosing-a-queue).
    :param trace: send a record of each message to the trace topic, from which Apache's tools show
        what became of it: True, or the name of the topic if it is not `RMQ_SYS_TRACE_TOPIC`.
    :param create_topic_key: the topic whose settings brokers give a topic that does not exist when
        this producer sends to it. Brokers with `autoCreateTopicEnable=true` have `TBW102`.
    :param default_topic_queue_nums: maximum number of queues that such a topic gets at each broker;
        it gets no more than the topic `create_topic_key` has.
    :param max_message_size: maximum size in bytes of a body before compression, and of a batch.
        More than 4 MiB is for brokers whose `maxMessageSize` allows it.
    :param retry_another_broker_when_not_stored: if a broker has a message and its status is not
        `SEND_OK`, send it to the other brokers of the topic, too, until one says that. So consumers
        may get it twice. It does not count for a send whose queue is fixed, nor in a transaction.
    :param client: the keyword arguments of `ClientConfig`.
    :raises ConfigError: an argument cannot be used; the message names it.
    :raises MessageError: the group name is not allowed.
    """

    def __init__(
        self,
        name_server: NameServers | ClientConfig | SessionUser,
        group: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        retries: int | None = None,
        max_in_flight: int = IN_FLIGHT_MAX,
        linger_ms: int = 0,
        batch_size: int = BATCH_SIZE,
        compression: CompressionName | None = "zlib",
        compress_from_size: int = COMPRESS_FROM_SIZE,
        avoid_slow_brokers: bool = False,
        trace: bool | str = False,
        create_topic_key: str = NEW_TOPICS.template,
        default_topic_queue_nums: int = NEW_TOPICS.queues,
        max_message_size: int = BODY_SIZE_MAX,
        retry_another_broker_when_not_stored: bool = False,
        **client: Unpack[ClientOptions],
    ) -> None:
        super().__init__(name_server, **client)
        check_group(group)
        check_number("timeout_ms", timeout_ms, 1)
        check_number("linger_ms", linger_ms, 0, timeout_ms)
        check_number("batch_size", batch_size, 1)
        check_number("compress_from_size", compress_from_size, 0)
        check_bool("avoid_slow_brokers", avoid_slow_brokers)
        check_bool("retry_another_broker_when_not_stored", retry_another_broker_when_not_stored)
        check_number("max_message_size", max_message_size, 1, FRAME_SIZE_MAX)
        self._names = self._session.names
        self._group = self._names.full(group)
        check_group(self._group)
        self._timeout_ms = timeout_ms
        new_topics = _new_topics(
            create_topic_key, default_topic_queue_nums, are_of_unit=self.config.unit_mode
        )
        self._routes = TopicRoutes(self._session, new_topics)
        rules = SendRules(
            retries, max_in_flight, avoid_slow_brokers, retry_another_broker_when_not_stored
        )
        traces = TraceSender.of(self._session, group, "PRODUCE", trace)
        self._trace = None if traces is None else SendTrace(traces)
        on_sent = None if self._trace is None else self._trace.sent
        self._sender = Sender(self._session, self._routes, self._group, rules, on_sent)
        self._gatherer = (
            Gatherer(
                self._sender,
                self._routes,
                self._session.tasks,
                linger_ms,
                batch_size,
                max_message_size,
            )
            if linger_ms
            else None
        )
        unique_keys = UniqueKeys.of_client(self._session.client_id, self._session.runtime)
        compressed = Compression.of(compression, compress_from_size)
        self._encoder = MessageEncoder(unique_keys, compressed, self._names, max_message_size)
        self._hooks = SendHooks.of(self.config.hooks, self._session.client_id, group)
        self._on_check_back: CheckBackHandler | None = None
        self._has_joined = False
        self._announced: set[str] = set()
        """Topics whose clusters' brokers have all had a heartbeat of this client."""

    async def _on_start(self) -> None:
        if self._trace is not None:
            self._trace.sender.start()
        self._session.membership.join_as_producer(self._group, self._on_check_back)
        self._has_joined = True

    def _own_metrics(self) -> PartMetrics:
        return self._sender.metrics(self._names.plain(self._group))

    async def _on_close(self) -> None:
        steps: list[Callable[[], Awaitable[object]]] = []
        if self._gatherer is not None:
            steps.append(self._gatherer.close)
        if self._trace is not None:
            steps.append(self._trace.sender.close)
        await each_in_turn(*steps, self._leave)

    async def _leave(self) -> None:
        if self._has_joined:
            await self._session.membership.leave_as_producer(self._group, self._on_check_back)

    async def send(
        self,
        topic: str | Message,
        body: bytes | None = None,
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Send one message and return where the broker stored it.

            await producer.send("orders", b"...", tags="new", keys="o-1")
            await producer.send(Message("orders", b"...", tags="new", keys="o-1"))

        :param topic: the topic; or a `Message`, without `body` and `fields`.
        :param body: the body, at least 1 byte and at most `max_message_size`.
        :param sharding_key: messages with the same key go to the same queue, and stay in order
            if each send is awaited before the next. Retries go to that queue, too.
        :param queue: send to this queue; or a function that is given the topic's queues and returns
            one of them. Retries go to it, too.
        :param timeout_ms: the time in ms from this call on, including retries.
        :param fields: `tags`, `keys`, `properties`, `flag`, `delay_level`, `wait_stored` of
            `Message`.
        :raises MessageError: the message breaks a rule; nothing was sent.
        :raises ConfigError: `timeout_ms` is no number of ms.
        :raises RouteNotFound: no broker has the topic, and none would create it.
        :raises ResponseError: a broker refused the message; see `code` and `remark`.
        :raises ConnectionClosed: no connection after all tries; the message may be stored.
        :raises CallTimeout: no answer in time, the message may be stored; or the send waited for
            others all the time, and the message was not sent.
        """
        self._require_open()
        message = message_of(topic, body, fields, "send", SendOptions)
        if self._hooks is not None:
            return await self._send_told(
                message, lambda told: self._begin_send(told, sharding_key, queue, timeout_ms)
            )
        # As `_counted`, in place: one coroutine more would cost a hundredth of the whole send.
        sending = self._begin_send(message, sharding_key, queue, timeout_ms)
        try:
            (result,) = await sending
        except BaseException as error:
            self._sender.counters.failed(error)
            raise
        return result

    def _begin_send(
        self,
        message: Message,
        sharding_key: str | None,
        queue: MessageQueue | QueueSelector | None,
        timeout_ms: int | None,
    ) -> Awaitable[list[SendResult]]:
        """Encode a message. It is sent when the result is awaited, or together with others."""
        encoded = self._encoder.encode(message)
        pick = pick_of(encoded.topic, sharding_key, queue, self._names)
        time_ms = self._timeout_or_default(timeout_ms)
        if self._gatherer is not None:
            gathered = self._gatherer.begin(message, encoded, time_ms, pick)
            if gathered is not None:
                return gathered
        return self._sender.send(encoded, time_ms, pick)

    async def flush(self) -> None:
        """Send what waits for others because of `linger_ms`, and wait until that is answered.

        It raises nothing: an error of a send is raised by that send. `close` flushes, too.
        """
        self._require_open()
        if self._gatherer is not None:
            await self._gatherer.flush()

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send several messages of one topic as a batch; return one result per message, in order.

        If the messages exceed `max_message_size` together, they are sent in several requests, one
        after the other. Batches are not compressed.

        :param messages: at least one; without delay, and with the same `wait_stored`.
        :param sharding_key: as in `send`, for the whole batch.
        :param queue: as in `send`, for the whole batch.
        :param timeout_ms: the time in ms for each request including its retries.
        :raises ConfigError: `timeout_ms` is no number of ms.
        :raises MessageError: the messages cannot form a batch; nothing was sent.
        :raises RoquetError: as `send`. If there are several requests, earlier ones are stored.
        """
        self._require_open()
        if not isinstance(messages, Iterable):
            raise wrong_type("messages", messages, "a list of Messages")
        batch = list(messages)
        if self._hooks is None:
            return await self._send_batch(batch, sharding_key, queue, timeout_ms)
        check_messages(batch)  # hooks get none that is refused
        with self._hooks.sending(*batch) as event:
            event.results = results = await self._send_batch(
                event.messages, sharding_key, queue, timeout_ms
            )
        return results

    async def _send_batch(
        self,
        messages: Sequence[Message],
        sharding_key: str | None,
        queue: MessageQueue | QueueSelector | None,
        timeout_ms: int | None,
    ) -> list[SendResult]:
        encoded_batches = self._encoder.encode_batches(messages)
        pick = pick_of(encoded_batches[0].topic, sharding_key, queue, self._names)
        time_ms = self._timeout_or_default(timeout_ms)
        results: list[SendResult] = []
        try:
            for encoded in encoded_batches:
                results += await self._sender.send(encoded, time_ms, pick)
        except BaseException as error:
            self._sender.counters.failed(error, len(messages) - len(results))
            raise
        return results

    async def send_one_way(
        self,
        topic: str | Message,
        body: bytes | None = None,
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | QueueSelector | None = None,
        **fields: Unpack[MessageFields],
    ) -> str:
        """Send a message without waiting for an answer; return its message id.

        Nothing is retried, and a message that the broker refuses or that gets lost is not
        reported. The arguments are those of `send`.

        :raises MessageError, RouteNotFound, ConnectionClosed, CallTimeout: nothing was sent.
        """
        self._require_open()
        message = message_of(topic, body, fields, "send_one_way", OneWayOptions)
        if self._hooks is None:
            return await self._send_one_way(message, sharding_key, queue)
        with self._hooks.sending(message, is_one_way=True) as event:
            return await self._send_one_way(event.messages[0], sharding_key, queue)

    async def _send_one_way(
        self,
        message: Message,
        sharding_key: str | None,
        queue: MessageQueue | QueueSelector | None,
    ) -> str:
        encoded = self._encoder.encode(message)
        pick = pick_of(encoded.topic, sharding_key, queue, self._names)
        try:
            await self._sender.send_one_way(encoded, self._timeout_ms, pick)
        except BaseException as error:
            self._sender.counters.failed(error)
            raise
        return encoded.unique_keys[0]

    async def request(
        self,
        topic: str | Message,
        body: bytes | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        **fields: Unpack[MessageFields],
    ) -> ReceivedMessage:
        """Send a message and wait until a consumer of it calls `reply`; return that reply.

        See docs/protocol/producing.md#request-and-reply.

            reply = await producer.request("prices", b"apples")

        :param topic: as `body` and `fields`: as in `send`.
        :param timeout_ms: the time in ms for send and reply together.
        :raises CallTimeout: no reply in time; the message may be consumed.
        :raises MessageError, RouteNotFound, ResponseError, ConnectionClosed: as `send`.
        """
        self._require_open()
        message = message_of(topic, body, fields, "request", ReplyOptions)
        check_number("timeout_ms", timeout_ms, 0)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._announce_to_brokers(message.topic, timeout_ms)
                with self._session.replies.expect() as (correlation_id, reply):
                    properties = {
                        CORRELATION_ID: correlation_id,
                        REPLY_TO_CLIENT: self._session.client_id,
                        TTL: str(timeout_ms),
                    }
                    await self._send_told(
                        message,
                        lambda message: self._sender.send(
                            self._encoder.encode(message, properties), timeout_ms
                        ),
                    )
                    return await reply
        except TimeoutError:
            raise CallTimeout(
                f"no reply to the request to topic {message.topic} within {timeout_ms} ms"
            ) from None

    async def _announce_to_brokers(self, topic: str, timeout_ms: int) -> None:
        """Send heartbeats to all brokers of the topic's clusters, once per topic.

        Any of these brokers may get the reply. It passes the reply on only to a client whose
        heartbeat it has.
        """
        if topic in self._announced:
            return
        full = self._names.full(topic)
        topic_route = await self._routes.get(full, deadline_after(timeout_ms))
        for cluster in sorted({broker.cluster for broker in topic_route.route.brokers}):
            with suppress(RouteNotFound):
                await self._session.routes.route(reply_topic(cluster))
        await self._session.membership.beat()
        self._announced.add(topic)

    async def reply(
        self,
        request: ReceivedMessage,
        body: bytes,
        *,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Send the reply to a message that was sent by `request`.

        :param request: the received message.
        :param fields: as in `send`; without delay.
        :raises MessageError: the message was not sent by `request`, or the reply breaks a rule.
        :raises ResponseError: SYSTEM_ERROR (1): the requester is gone, or did not accept the reply.
        :raises RouteNotFound, ConnectionClosed, CallTimeout: as `send`.
        """
        self._require_open()
        time_ms = self._timeout_or_default(timeout_ms)
        topic, properties = reply_properties(request)
        message = message_of(topic, body, fields, "reply", ReplyOptions)
        if message.delay_level:
            raise MessageError("a reply cannot be delayed: delay_level must be 0")
        queues = await self._routes.queues(topic, time_ms)
        # The broker of the request has a connection to the requester.
        nearest = next(
            (queue for queue in queues if queue.broker_name == request.queue.broker_name), None
        )

        def send(message: Message) -> Awaitable[list[SendResult]]:
            encoded = self._encoder.encode(message, properties)
            # The topic of replies is the cluster's own, which has no namespace.
            encoded = replace(encoded, topic=topic, is_reply=True)
            return self._sender.send(encoded, time_ms, pick_of(topic, queue=nearest))

        return await self._send_told(message, send)

    async def _send_told(
        self, message: Message, send: Callable[[Message], Awaitable[list[SendResult]]]
    ) -> SendResult:
        """Send one message, tell the hooks, and count a failure.

        :param send: encodes the message when it is called, and sends it when it is awaited.
        """
        if self._hooks is None:
            return await self._counted(send(message))
        with self._hooks.sending(message) as event:
            result = await self._counted(send(event.messages[0]))
            event.results = (result,)
        return result

    async def _counted(self, sending: Awaitable[list[SendResult]]) -> SendResult:
        try:
            (result,) = await sending
        except BaseException as error:
            self._sender.counters.failed(error)
            raise
        return result

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that `send` chooses from.

        :raises RouteNotFound: no broker has the topic, and none would create it.
        """
        self._require_open()
        queues = await self._routes.queues(self._names.full(topic), self._timeout_ms)
        return [self._names.plain_queue(queue) for queue in queues]

    def _timeout_or_default(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self._timeout_ms
        # What is left of a longer time may be less than nothing: that send times out.
        if not isinstance(timeout_ms, int) or timeout_ms >= 0:
            check_number("timeout_ms", timeout_ms, 0)
        return timeout_ms


def _new_topics(template: str, queues: int, *, are_of_unit: bool) -> NewTopics:
    """How brokers create topics for a producer.

    :raises ConfigError: an argument cannot be used; the message names it.
    """
    try:
        check_topic(template)
    except MessageError as error:
        raise ConfigError(f"create_topic_key is {template!r}: {error}") from None
    check_number("default_topic_queue_nums", queues, 1, QUEUES_MAX)
    return NewTopics(template, queues, are_of_unit)
