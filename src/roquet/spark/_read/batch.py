"""Batch reads: the readers that Spark calls for `spark.read.format("rocketmq")`, and their queries.

The driver plans the ranges, and each task reads one of them. Spark calls these functions from
synchronous code, so each public function runs an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from roquet.errors import CorruptRecord, PeerError, RoquetError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.columns import BadBody, decode
from roquet.spark._arrow.corrupt import (
    CORRUPT,
    DamageReport,
    of_messages,
    schema_with_damage,
    with_corrupt,
)
from roquet.spark._arrow.records import Records
from roquet.spark._options.pushed_filters import EVERYTHING, Narrowing, narrowed
from roquet.spark._options.ranges import Bounds, QueueRange, partitions, resolve, times_wanted
from roquet.spark._options.read import ReadOptions
from roquet.spark._read.cluster_queries import ClusterQueries, opened
from roquet.spark._read.queue import RangeReader
from roquet.spark._worker import begin_task, filters_are_pushed


class CorruptBody(RoquetError):  # noqa: N818
    """A body is damaged or larger than allowed; see the options mode and maxUncompressedBytes."""


def batch_reader(options: ReadOptions, schema: StructType) -> DataSourceReader:
    """A reader, with filter pushdown if Spark's settings enable it."""
    kind = FilteringReader if filters_are_pushed() else RocketMQReader
    return kind(options, schema)


class RocketMQReader(DataSourceReader):
    """One batch read. `partitions` resolves its offsets, so later messages are not part of it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema_with_damage(schema)
        self._narrowing = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        ranges = plan(self._options, self._narrowing)
        return [InputPartition(part) for part in partitions(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition.value, self._options, self._schema)


class FilteringReader(RocketMQReader):
    """A batch read that does not read messages which the filters of the query exclude."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._narrowing, left = narrowed(filters)
        self._options = replace(self._options, tags=self._narrowing.tags_among(self._options.tags))
        return left


def plan(options: ReadOptions, narrowing: Narrowing = EVERYTHING) -> list[QueueRange]:
    """The ranges to read of all selected queues, resolved now.

    :raises RouteNotFound: there is no such topic.
    :raises OptionError: there is no such queue, or no message is as young as a starting time.
    :raises DataLoss: a requested offset does not exist.
    :raises NoProgress: no broker answered within `no_progress_timeout_ms`.
    :raises MasterAway: a master that must resolve an offset did not answer in time.
    """
    return asyncio.run(_plan(options, narrowing))


async def _plan(options: ReadOptions, narrowing: Narrowing) -> list[QueueRange]:
    async with await opened(options) as consumer:
        queries = ClusterQueries(consumer, options)
        ranges = await queries.patiently(partial(_ranges, queries, options))
        return await _clip_times(queries, narrowing.clip(ranges), narrowing)


async def _ranges(queries: ClusterQueries, options: ReadOptions) -> list[QueueRange]:
    bounds = await queries.bounds(await queries.queues())
    wanted = times_wanted(bounds, options.starting_offsets, options.ending_offsets)
    return resolve(bounds, options, await queries.times(bounds, wanted))


async def _clip_times(
    queries: ClusterQueries, ranges: list[QueueRange], narrowing: Narrowing
) -> list[QueueRange]:
    """The parts of the ranges that were stored within the times of the pushed filters."""
    times = [ms for ms in (narrowing.time_from_ms, narrowing.time_until_ms) if ms is not None]
    bounds = {each.queue: Bounds(each.start, each.end) for each in ranges}
    found = await queries.times(bounds, [(queue, ms) for queue in bounds for ms in times])

    def offset(queue: MessageQueue, ms: int | None, otherwise: int) -> int:
        if ms is None:
            return otherwise
        at = found[queue, ms]
        return bounds[queue].max if at is None else at

    clipped = (
        QueueRange(
            each.queue,
            offset(each.queue, narrowing.time_from_ms, each.start),
            offset(each.queue, narrowing.time_until_ms, each.end),
        )
        for each in ranges
    )
    return [each for each in clipped if each.size > 0]


def read_partition(
    part: QueueRange | None, options: ReadOptions, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Read the partition of a task. Spark passes None if the read has no partitions."""
    if part is None:
        return iter(())
    begin_task()
    return read(part, options, schema)


def read(part: QueueRange, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages of a range as batches with the columns of `schema`.

    :raises roquet.spark._options.ranges.DataLoss: messages are lost and failOnDataLoss is true.
    :raises NoProgress: no broker answered or returned the next message in time.
    :raises PeerError: a broker's answer contains bytes that are no valid record.
    :raises CorruptBody: a body is damaged or too large, and mode is FAILFAST.
    """
    with asyncio.Runner() as runner:
        consumer = runner.run(opened(options))
        try:
            reading = RangeReader(consumer, part, options)
            report = DamageReport(options.mode, schema, CorruptBody)
            while (records := runner.run(reading.chunk())) is not None:
                for each in _decoded(records, part, options, of_messages(schema)):
                    if not isinstance(each, BadBody):
                        yield with_corrupt(each, schema)
                    elif (corrupt := report.skip(f"{each.place}: {each.reason}")) is not None:
                        yield each.row(schema, {CORRUPT: corrupt})
            report.close(part)
        except CorruptRecord as error:  # error.at is an offset in the pulled bytes, not in the log
            at = f"byte {error.at} of the pulled bytes"
            raise PeerError(
                f"while reading {part}: no valid record at {at}: {error.reason}"
            ) from error
        except RoquetError as error:
            error.add_note(f"while reading {part}")
            raise
        finally:
            runner.run(consumer.close())


def _decoded(
    records: Records, part: QueueRange, options: ReadOptions, schema: pa.Schema
) -> Iterator[pa.RecordBatch | BadBody]:
    return decode(
        records,
        schema,
        broker_name=part.queue.broker_name,
        tags=options.tags,
        uncompressed_max=options.uncompressed_max,
    )
