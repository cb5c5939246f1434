"""The network part of a batch read: at planning the queues and their offsets, in each task one range of a queue.

Spark calls from plain code, so each function here runs an event loop of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TypeVar

import pyarrow as pa

from roquet.client.pull_consumer import PullConsumer
from roquet.errors import RoquetError, RouteNotFound
from roquet.protocol.message import MessageQueue
from roquet.spark.columns import decode
from roquet.spark.options import ReadOptions
from roquet.spark.queue_read import PAUSE_SECONDS_MAX, NoProgress, QueueRead
from roquet.spark.ranges import Bounds, QueueRange

_About = TypeVar("_About")
_Answer = TypeVar("_Answer")


def queue_bounds(options: ReadOptions) -> dict[MessageQueue, Bounds]:
    """Every queue of the topics to read, and what it holds now.

    :raises RouteNotFound: there is no such topic.
    :raises NoProgress: a broker did not answer within `no_progress_timeout_ms`.
    """
    return asyncio.run(_queue_bounds(options))


def read(part: QueueRange, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages of a range as batches with the columns of `schema`.

    :raises roquet.spark.ranges.DataLoss: some are gone and that is not allowed.
    :raises NoProgress: no broker answered, or none had the next message.
    """
    with asyncio.Runner() as runner:
        consumer = runner.run(_consumer(options).__aenter__())
        try:
            reading = QueueRead(consumer, part, options)
            while (records := runner.run(reading.chunk())) is not None:
                batch = decode(records, schema, broker_name=part.queue.broker_name, tags=options.tags)
                if batch.num_rows:
                    yield batch
        except RoquetError as error:
            error.add_note(f"while reading {part}")
            raise
        finally:
            runner.run(consumer.__aexit__(None, None, None))


def _consumer(options: ReadOptions) -> PullConsumer:
    return PullConsumer(
        options.name_server,
        group="spark-roquet-source",
        read_from=options.read_from,
        timeout_ms=options.pull_timeout_ms,
    )


async def _queue_bounds(options: ReadOptions) -> dict[MessageQueue, Bounds]:
    async with _consumer(options) as consumer:
        patience = _Patience(options)
        queues: list[MessageQueue] = []
        for topic in options.topics:
            queues += await patience.call(consumer.queues, topic)
        bounds = (patience.call(partial(_bounds_of, consumer), queue) for queue in queues)
        return dict(zip(queues, await asyncio.gather(*bounds), strict=True))


async def _bounds_of(consumer: PullConsumer, queue: MessageQueue) -> Bounds:
    """A queue never written to has no minimum: the broker says -1."""
    first, end = await asyncio.gather(consumer.min_offset(queue), consumer.max_offset(queue))
    return Bounds(max(first, 0), max(first, end, 0))


class _Patience:
    """Asks again while brokers come and go, but not for ever."""

    def __init__(self, options: ReadOptions) -> None:
        self._timeout_s = options.no_progress_timeout_ms / 1000
        self._deadline = asyncio.get_running_loop().time() + self._timeout_s

    async def call(self, ask: Callable[[_About], Awaitable[_Answer]], about: _About) -> _Answer:
        while True:
            try:
                return await ask(about)
            except RouteNotFound:
                raise
            except (RoquetError, OSError) as error:
                if asyncio.get_running_loop().time() >= self._deadline:
                    raise NoProgress(f"{about}: no answer in {self._timeout_s:g} s, last {error}") from error
            await asyncio.sleep(PAUSE_SECONDS_MAX)
