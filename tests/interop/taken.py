"""Messages that a consumer of ours gets."""

from __future__ import annotations

import asyncio

from roquet.client.consumer import Consumer, ReceivedMessage

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
