"""Requests of a producer, which wait for a reply, and replies to them.

See docs/protocol/producing.md#request-and-reply.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from roquet.client._net.replies import reply_properties
from roquet.client._net.session import Session
from roquet.client._net.tasks import deadline_after
from roquet.client._send.encoder import MessageEncoder, MessageFields, message_of
from roquet.client._send.queue_choice import pick_of
from roquet.client._send.sender import Sender
from roquet.client._send.topic_routes import TopicRoutes
from roquet.client.received import ReceivedMessage
from roquet.client.send_result import SendResult
from roquet.errors import CallTimeout, MessageError, RouteNotFound
from roquet.protocol.records.message import (
    CORRELATION_ID,
    REPLY_TO_CLIENT,
    TTL,
    Message,
    reply_topic,
)


class Requests:
    """Sends the requests and replies of one producer.

    Invariant: before a request is sent, the brokers that may get its reply had a heartbeat of this
    client. `_announced` has the topics for which all brokers of their clusters had one.
    """

    def __init__(
        self, session: Session, routes: TopicRoutes, sender: Sender, encoder: MessageEncoder
    ) -> None:
        self._session = session
        self._routes = routes
        self._sender = sender
        self._encoder = encoder
        self._announced: set[str] = set()

    async def request(self, message: Message, timeout_ms: int) -> ReceivedMessage:
        """Send a message and return the reply. Raises as `Producer.request`."""
        try:
            async with asyncio.timeout_at(deadline_after(timeout_ms)):
                await self._announce_to_brokers(message.topic, timeout_ms)
                with self._session.replies.expect() as (correlation_id, reply):
                    properties = {
                        CORRELATION_ID: correlation_id,
                        REPLY_TO_CLIENT: self._session.client_id,
                        TTL: str(timeout_ms),
                    }
                    encoded = self._encoder.encode(message, properties)
                    await self._sender.send(encoded, timeout_ms)
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
        topic_route = await self._routes.get(topic, deadline_after(timeout_ms))
        for cluster in sorted({broker.cluster for broker in topic_route.route.brokers}):
            with suppress(RouteNotFound):
                await self._session.routes.route(reply_topic(cluster))
        await self._session.membership.beat()
        self._announced.add(topic)

    async def reply(
        self, request: ReceivedMessage, body: bytes, fields: MessageFields, timeout_ms: int
    ) -> SendResult:
        """Send the reply to a request. Raises as `Producer.reply`."""
        topic, properties = reply_properties(request)
        message = message_of(topic, body, fields)
        if message.delay_level:
            raise MessageError("a reply cannot be delayed: delay_level must be 0")
        encoded = self._encoder.encode(message, properties)
        queues = await self._routes.queues(topic, timeout_ms)
        # The broker of the request has a connection to the requester.
        nearest = next(
            (queue for queue in queues if queue.broker_name == request.queue.broker_name), None
        )
        (result,) = await self._sender.send(
            replace(encoded, is_reply=True), timeout_ms, pick_of(topic, queue=nearest)
        )
        return result
