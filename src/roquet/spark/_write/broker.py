"""The requests of a write's journal to a broker.

They go to the master only: a slave may lag, and the journal would take stored rows for missing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final

from roquet.client._consume.pull_request import pull_request, pull_result
from roquet.client._consume.pull_result import PullResult
from roquet.client._net.queue_calls import accepted
from roquet.client._net.session import Session
from roquet.client._send.encoded_message import outgoing
from roquet.client._send.topic_routes import TopicRoutes
from roquet.client._send.unique_key import UniqueKeys
from roquet.errors import ResponseError
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.headers.offsets import OffsetAnswer, QueueHeader
from roquet.protocol.headers.pull import SUBSCRIPTION
from roquet.protocol.headers.query import QueryMessageAnswer, QueryMessageHeader
from roquet.protocol.headers.send import SendAnswer
from roquet.protocol.records.message import KEYS, Message, MessageQueue
from roquet.protocol.records.record import Record, decode_all
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.spark._options.write import WriteOptions
from roquet.spark._write.send import STATUS_OF_CODE, SinkError, patiently

INTENT_TOPIC: Final = "ROQUET_SPARK_SINK"
HITS_MAX: Final = 64
"""Brokers return only the newest 64 hits (docs/protocol/administration.md#query-by-key)."""
_PULL_COUNT: Final = 32
_END_OF_TIME: Final = 2**63 - 1
_AGAIN_CODES: Final = frozenset((ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE))
"""Responses of a broker that cannot serve the request now, but may be able to soon."""
_LOOKS: Final = 200
_LOOK_PAUSE_S: Final = 0.05
"""A broker dispatches a message shortly after it stored it. Until then the message can neither be
pulled nor found by its key, so both are tried this many times, with this pause.
"""


@dataclass(frozen=True)
class Brokers:
    """Creates a `MasterRequests` for each queue; they share a session and options."""

    session: Session
    routes: TopicRoutes
    unique_keys: UniqueKeys
    options: WriteOptions

    def at(self, queue: MessageQueue) -> MasterRequests:
        """The requests to the broker of `queue`."""
        return MasterRequests(self, queue)


@dataclass(frozen=True)
class MasterRequests:
    """Sends requests to the master of the broker that has `queue`, with retries.

    All methods raise `ConnectionClosed`, `CallTimeout` or `RouteNotFound` if the master answers no
    attempt, and `ResponseError` if it refuses the request.
    """

    brokers: Brokers
    queue: MessageQueue

    async def end_of(self, queue: MessageQueue) -> int:
        """The queue's end: the offset after the last message that can be pulled."""
        fields = QueueHeader(queue.topic, queue.queue_id, queue.broker_name).write()
        response, address = await self._ask(Command(RequestCode.GET_MAX_OFFSET, fields))
        return accepted(OffsetAnswer, response, address).offset

    async def pull(self, queue: MessageQueue, offset: int) -> PullResult:
        wanted = Subscription(queue.topic)
        group = self.brokers.options.group
        request = pull_request(group, queue, offset, _PULL_COUNT, SUBSCRIPTION, wanted, 0)
        response, address = await self._ask(request)
        return pull_result(response, address, wanted)

    async def write(self, body: bytes, key: str = "") -> int:
        """Store an intent, and wait until it can be pulled.

        :returns: its queue offset.
        :raises SinkError: the broker has no topic for intents, or does not return the intent.
        """
        message = outgoing(Message(INTENT_TOPIC, body, keys=key), self.brokers.unique_keys.next())
        intents = MessageQueue(INTENT_TOPIC, self.queue.broker_name, 0)
        now_ms = self.brokers.session.runtime.now_ms()
        response, address = await self._ask(
            message.request(self.brokers.options.group, intents, now_ms)
        )
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            raise SinkError(
                f"{intents.broker_name} has no topic {INTENT_TOPIC} and does not create topics: "
                "delivery=effectively-once needs this topic on every broker, with one queue"
            )
        offset = accepted(SendAnswer, response, address, STATUS_OF_CODE).queue_offset
        for _ in range(_LOOKS):
            if (await self.pull(intents, offset)).body:
                return offset
            await asyncio.sleep(_LOOK_PAUSE_S)
        raise SinkError(
            f"{intents} does not return offset {offset}, which the broker has stored: "
            "does the broker wait for a slave?"
        )

    async def find(self, key: str, offset: int) -> list[Record]:
        """The intents with this key, once the intent at `offset` is among them.

        :raises SinkError: the broker does not find that intent.
        """
        for _ in range(_LOOKS):
            found = await self._query(key)
            if any(intent.queue_offset == offset for intent in found):
                return found
            await asyncio.sleep(_LOOK_PAUSE_S)
        raise SinkError(
            f"{self.queue.broker_name} does not find messages by key, which "
            "delivery=effectively-once needs: is messageIndexEnable=false there?"
        )

    async def _query(self, key: str) -> list[Record]:
        header = QueryMessageHeader(INTENT_TOPIC, key, HITS_MAX, 0, _END_OF_TIME)
        response, address = await self._ask(Command(RequestCode.QUERY_MESSAGE, header.write()))
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        accepted(QueryMessageAnswer, response, address)
        return [each for each in decode_all(response.body) if each.properties.get(KEYS) == key]

    async def _ask(self, request: Command) -> tuple[Command, str]:
        return await patiently(partial(self._ask_once, request), self.brokers.options.retries)

    async def _ask_once(self, request: Command) -> tuple[Command, str]:
        timeout_ms = self.brokers.options.timeout_ms
        address = await self.brokers.routes.master(self.queue, timeout_ms)
        response = await self.brokers.session.call(address, request, timeout_ms)
        if response.code in _AGAIN_CODES:
            raise ResponseError(response.code, response.remark or "", address)
        return response, address
