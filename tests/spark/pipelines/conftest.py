"""What the tests of pipelines share: a real cluster, messages in it, and what an archive has of
them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from pyspark.sql import DataFrame

from roquet import Message, Producer
from roquet.dev import Cluster
from tests.docs.conftest import cluster
from tests.interop.processes import SEND_MS_MAX

__all__ = ["cluster"]


def store_of(cluster: Cluster) -> Path:
    """The store directory of its broker."""
    return cluster.store_folder()


def send(name_server: str, topic: str, numbers: range) -> None:
    """Messages whose bodies are these numbers, spread over the topic's queues."""

    async def sending() -> None:
        async with Producer(name_server, "pipelines", timeout_ms=SEND_MS_MAX) as producer:
            for start in range(numbers.start, numbers.stop, 50):
                some = numbers[start - numbers.start :][:50]
                await producer.send_batch(
                    [
                        Message(topic, b"%d" % number, tags=f"T{number % 3}", keys=f"k{number}")
                        for number in some
                    ]
                )

    asyncio.run(sending())


def numbers_in(frame: DataFrame) -> list[int]:
    """The bodies, as numbers, in order."""
    return sorted(int(bytes(row.body)) for row in frame.select("body").collect())
