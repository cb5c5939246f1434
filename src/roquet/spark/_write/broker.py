"""What the journal of a write asks the master of a broker: never a slave, which may not have everything yet."""

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
from roquet.client._send.sender import Sender
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
"""Brokers give no more, the newest (docs/protocol/administration.md#query-by-key)."""
_PULL_COUNT: Final = 32
_END_OF_TIME: Final = 2**63 - 1
_AGAIN_CODES: Final = frozenset((ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE))
"""Of a broker that does not take or tell anything now, and may soon."""
_LOOKS: Final = 200
_LOOK_PAUSE_S: Final = 0.05
"""What is stored can be read, and found by its key, a moment later; so often and with such pauses it is looked for."""


@dataclass(frozen=True)
class Brokers:
    """Who is asked, and how patiently."""

    session: Session
    sender: Sender
    unique_keys: UniqueKeys
    options: WriteOptions

    def at(self, queue: MessageQueue) -> Broker:
        """The broker that has this queue."""
        return Broker(self, queue)


@dataclass(frozen=True)
class Broker:
    """The broker of one queue.

    All methods raise `ConnectionClosed`, `CallTimeout` or `RouteNotFound` when its master answers no try, and
    `ResponseError` when it refuses.
    """

    brokers: Brokers
    queue: MessageQueue

    async def end_of(self, queue: MessageQueue) -> int:
        """The offset of the queue's next message, of those that can be read."""
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
        """Store an intent, and wait until it can be read; its offset among the intents of this broker.

        :raises SinkError: the broker has no topic for them, or does not give it back.
        """
        message = outgoing(Message(INTENT_TOPIC, body, keys=key), self.brokers.unique_keys.next())
        intents = MessageQueue(INTENT_TOPIC, self.queue.broker_name, 0)
        now_ms = self.brokers.session.runtime.now_ms()
        response, address = await self._ask(
            message.request(self.brokers.options.group, intents, now_ms)
        )
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            raise SinkError(
                f"{intents.broker_name} has no topic {INTENT_TOPIC} and creates none by itself: "
                "delivery=effectively-once needs it on every broker, with one queue"
            )
        offset = accepted(SendAnswer, response, address, STATUS_OF_CODE).queue_offset
        for _ in range(_LOOKS):
            if (await self.pull(intents, offset)).body:
                return offset
            await asyncio.sleep(_LOOK_PAUSE_S)
        raise SinkError(
            f"{intents} does not give offset {offset}, which it has stored: is it waiting for a slave?"
        )

    async def find(self, key: str, offset: int) -> list[Record]:
        """Intents by their key, that at `offset` among them.

        :raises SinkError: the broker finds nothing by key.
        """
        for _ in range(_LOOKS):
            found = await self._query(key)
            if any(intent.queue_offset == offset for intent in found):
                return found
            await asyncio.sleep(_LOOK_PAUSE_S)
        raise SinkError(
            f"{self.queue.broker_name} does not find messages by their keys, which delivery=effectively-once needs: "
            "is messageIndexEnable=false there?"
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
        address = await self.brokers.sender.master(self.queue, timeout_ms)
        response = await self.brokers.session.call(address, request, timeout_ms)
        if response.code in _AGAIN_CODES:
            raise ResponseError(response.code, response.remark or "", address)
        return response, address
