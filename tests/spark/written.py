"""What a sink stored, as our own consumer reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from roquet.client.pull_consumer import PullConsumer
from roquet.client.received import ReceivedMessage

ROW = pa.schema({"body": pa.binary(), "shardingKey": pa.string()})


def stored(name_server: str, topic: str) -> list[ReceivedMessage]:
    """Every message of the topic, queue by queue, in the order of each."""
    return asyncio.run(_stored(name_server, topic))


async def _stored(name_server: str, topic: str) -> list[ReceivedMessage]:
    async with PullConsumer(name_server, timeout_ms=20_000) as reader:
        found: list[ReceivedMessage] = []
        for queue in await reader.queues(topic):
            at, end = max(await reader.min_offset(queue), 0), await reader.max_offset(queue)
            while at < end:
                pulled = await reader.pull(queue, at)
                found += pulled.messages
                at = pulled.next_offset
        return found


def numbered(
    count: int, *, key: str | None = None, per_batch: int = 100
) -> Iterator[pa.RecordBatch]:
    """Rows whose bodies are their numbers, as Spark hands them to a task."""
    for first in range(0, count, per_batch):
        rows: list[dict[str, Any]] = [
            {"body": b"%d" % number, "shardingKey": key}
            for number in range(first, min(first + per_batch, count))
        ]
        yield pa.RecordBatch.from_pylist(rows, ROW)


def then(batches: Iterator[pa.RecordBatch], do: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """The batches, and something that happens when the sink asks for more."""
    yield from batches
    do()


def numbers(records: list[ReceivedMessage]) -> list[int]:
    """What `numbered` made, as it was found."""
    return [int(record.body) for record in records]
