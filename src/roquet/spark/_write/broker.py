"""The requests of a write's journal to brokers.

They go to the master only: a slave may lag, and the journal would take stored rows for missing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final

from roquet.client._consume.pull_request import pull_request, pull_result
from roquet.client._consume.pull_result import PullResult
from roquet.client._net.queue_calls import checked_header
from roquet.client._net.session import Session
from roquet.client._send.encoded_message import encode_message
from roquet.client._send.topic_routes import TopicRoutes
from roquet.client._send.unique_key import UniqueKeys
from roquet.errors import ResponseError
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.headers.admin import QueryMessageAnswer, QueryMessageHeader
from roquet.protocol.headers.offsets import OffsetAnswer, QueueHeader
from roquet.protocol.headers.pull import SUBSCRIPTION
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
class MasterRequests:
    """Sends requests to the masters of queues, with retries.

    All methods raise `ConnectionClosed`, `CallTimeout` or `RouteNotFound` if the master answers no
    attempt, and `ResponseError` if it refuses the request.
    """

    session: Session
    routes: TopicRoutes
    unique_keys: UniqueKeys
    options: WriteOptions

    async def end_of(self, queue: MessageQueue) -> int:
        """The queue's end: the offset after the last message that can be pulled."""
        fields = QueueHeader(queue.topic, queue.queue_id, queue.broker_name).write()
        response, address = await self._ask(queue, Command(RequestCode.GET_MAX_OFFSET, fields))
        return checked_header(OffsetAnswer, response, address).offset

    async def pull(self, queue: MessageQueue, offset: int) -> PullResult:
        return await self._pull(queue, queue, offset)

    async def write_intent(self, beside: MessageQueue, body: bytes, key: str = "") -> int:
        """Store an intent at the broker of the queue `beside`, and wait until it can be pulled.

        :returns: its queue offset.
        :raises SinkError: the broker has no topic for intents, or does not return the intent.
        """
        message = encode_message(Message(INTENT_TOPIC, body, keys=key), self.unique_keys.next())
        intents = MessageQueue(INTENT_TOPIC, beside.broker_name, 0)
        request = message.request(self.options.group, intents, self.session.runtime.now_ms())
        response, address = await self._ask(beside, request)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            raise SinkError(
                f"{intents.broker_name} has no topic {INTENT_TOPIC} and does not create topics: "
                "delivery=effectively-once needs this topic on every broker, with one queue"
            )
        offset = checked_header(SendAnswer, response, address, STATUS_OF_CODE).queue_offset
        for _ in range(_LOOKS):
            if (await self._pull(beside, intents, offset)).body:
                return offset
            await asyncio.sleep(_LOOK_PAUSE_S)
        raise SinkError(
            f"{intents} does not return offset {offset}, which the broker has stored: "
            "does the broker wait for a slave?"
        )

    async def find_intents(self, beside: MessageQueue, key: str, offset: int) -> list[Record]:
        """The intents with this key at the broker of the queue `beside`.

        Waits until the intent at `offset` is among them.

        :raises SinkError: the broker does not find that intent.
        """
        for _ in range(_LOOKS):
            found = await self._query(beside, key)
            if any(intent.queue_offset == offset for intent in found):
                return found
            await asyncio.sleep(_LOOK_PAUSE_S)
        raise SinkError(
            f"{beside.broker_name} does not find messages by key, which "
            "delivery=effectively-once needs: is messageIndexEnable=false there?"
        )

    async def _query(self, beside: MessageQueue, key: str) -> list[Record]:
        header = QueryMessageHeader(INTENT_TOPIC, key, HITS_MAX, 0, _END_OF_TIME)
        request = Command(RequestCode.QUERY_MESSAGE, header.write())
        response, address = await self._ask(beside, request)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        checked_header(QueryMessageAnswer, response, address)
        return [each for each in decode_all(response.body) if each.properties.get(KEYS) == key]

    async def _pull(self, beside: MessageQueue, queue: MessageQueue, offset: int) -> PullResult:
        wanted = Subscription(queue.topic)
        request = pull_request(
            self.options.group, queue, offset, _PULL_COUNT, SUBSCRIPTION, wanted, 0
        )
        response, address = await self._ask(beside, request)
        return pull_result(response, address, wanted)

    async def _ask(self, queue: MessageQueue, request: Command) -> tuple[Command, str]:
        """The response of the master of `queue`, and its address."""
        return await patiently(partial(self._ask_once, queue, request), self.options.retries)

    async def _ask_once(self, queue: MessageQueue, request: Command) -> tuple[Command, str]:
        timeout_ms = self.options.timeout_ms
        address = await self.routes.master(queue, timeout_ms)
        response = await self.session.call(address, request, timeout_ms)
        if response.code in _AGAIN_CODES:
            raise ResponseError(response.code, response.remark or "", address)
        return response, address
