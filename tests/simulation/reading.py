"""What one broker process hands out, asked for by its address: no route decides which of master and
slaves it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from roquet.client._consume.pull_request import pull_request, pull_result
from roquet.client._consume.pull_result import PullResult, PullStatus
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.headers.offsets import OffsetAnswer, QueueHeader
from roquet.protocol.headers.pull import SUBSCRIPTION
from roquet.protocol.records.message import KEYS, MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked
from roquet.transport.channels import Channels
from tests.simulation.clients import GROUP, TOPIC, body_of

CALL_MS: Final = 3000
COUNT_MAX: Final = 32


class BrokerReader:
    """Reads the queues of one broker process, as a client would that knows only this one."""

    def __init__(self, channels: Channels, address: str, broker_name: str) -> None:
        self._channels = channels
        self._address = address
        self._broker_name = broker_name

    async def keys(self, queues: int) -> set[str]:
        """The keys of all messages in these queues of the topic."""
        return {key for queue_id in range(queues) async for key in self._keys_of(queue_id)}

    async def _keys_of(self, queue_id: int) -> AsyncIterator[str]:
        queue = MessageQueue(TOPIC, self._broker_name, queue_id)
        offset = max(0, await self._bound(RequestCode.GET_MIN_OFFSET, queue))
        end = await self._bound(RequestCode.GET_MAX_OFFSET, queue)
        while offset < end:
            result = await self._pull(queue, offset)
            if result.status is not PullStatus.FOUND:
                first = await self._bound(RequestCode.GET_MIN_OFFSET, queue)
                assert first > offset, f"{queue} at {offset} of {end}: {result.status}"
                offset = first  # what stood there was deleted meanwhile
                continue
            for message in result.messages:
                assert message.queue_offset == offset, (
                    f"{queue}: offset {message.queue_offset} where {offset} is due"
                )
                key = message.properties[KEYS]
                assert message.body == body_of(key), f"{key} has another body"
                yield key
                offset += 1
            assert result.next_offset == offset

    async def _bound(self, code: RequestCode, queue: MessageQueue) -> int:
        request = Command(code, QueueHeader(queue.topic, queue.queue_id).write())
        answer = checked(await self._channels.call(self._address, request, CALL_MS), self._address)
        return OffsetAnswer.read(answer.fields).offset

    async def _pull(self, queue: MessageQueue, offset: int) -> PullResult:
        wanted = Subscription(queue.topic)
        request = pull_request(GROUP, queue, offset, COUNT_MAX, SUBSCRIPTION, wanted, 0)
        return pull_result(
            await self._channels.call(self._address, request, CALL_MS), self._address, wanted
        )


async def read_everything(address: str, broker_name: str, queues: int) -> set[str]:
    """The keys of all messages that the broker process at this address hands out."""
    channels = Channels()
    try:
        return await BrokerReader(channels, address, broker_name).keys(queues)
    finally:
        await channels.close()
