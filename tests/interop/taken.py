"""Messages that clients of ours get, and waiting for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from roquet.client.consumer import Consumer, ReceivedMessage
from roquet.client.pull_consumer import PullConsumer

CONSUME_SECONDS = 60


async def take(
    consumer: Consumer, count: int, seconds: float = CONSUME_SECONDS
) -> list[ReceivedMessage]:
    """The next so many messages, all acknowledged."""
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(seconds):
        async for message in consumer:
            found.append(message)
            message.ack()
            if len(found) == count:
                break
    return found


async def all_messages(reader: PullConsumer, topic: str) -> AsyncIterator[ReceivedMessage]:
    """The messages of a topic, by queue and offset."""
    for queue in await reader.queues(topic):
        offset, end = 0, await reader.max_offset(queue)
        while offset < end:
            result = await reader.pull(queue, offset)
            for message in result.messages:
                yield message
            offset = result.next_offset


async def until(reached: Callable[[], bool], seconds: float = CONSUME_SECONDS) -> None:
    """Wait until that is so."""
    async with asyncio.timeout(seconds):
        while not reached():
            await asyncio.sleep(0.02)
