"""What the tests of pipelines share: a real cluster, messages in it, and what an archive has of them."""

from __future__ import annotations

import asyncio

from pyspark.sql import DataFrame

from roquet import Message, Producer
from tests.docs.conftest import cluster

__all__ = ["cluster"]


def send(name_server: str, topic: str, numbers: range) -> None:
    """Messages whose bodies are these numbers, spread over the topic's queues."""

    async def sending() -> None:
        async with Producer(name_server, "pipelines") as producer:
            for start in range(numbers.start, numbers.stop, 50):
                some = numbers[start - numbers.start :][:50]
                await producer.send_batch(
                    [Message(topic, b"%d" % number, tags=f"T{number % 3}", keys=f"k{number}") for number in some]
                )

    asyncio.run(sending())


def numbers_in(frame: DataFrame) -> list[int]:
    """The bodies, as numbers, in order."""
    return sorted(int(bytes(row.body)) for row in frame.select("body").collect())
