"""The network part of a batch read: at planning the ranges of queues, in each task one of them.

Spark calls from plain code, so each function here runs an event loop of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from roquet.errors import CorruptRecord, PeerError, RoquetError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.columns import BadBody, decode
from roquet.spark._arrow.corrupt import BodyReport, of_messages
from roquet.spark._arrow.records import Records
from roquet.spark._options.pushed_filters import EVERYTHING, Narrowing
from roquet.spark._options.ranges import Bounds, QueueRange, resolve, times_wanted
from roquet.spark._options.read import ReadOptions
from roquet.spark._read.cluster_queries import ClusterQueries, client
from roquet.spark._read.queue import RangeReader
from roquet.spark._runtime.worker import begin_task


def plan(options: ReadOptions, narrowing: Narrowing = EVERYTHING) -> list[QueueRange]:
    """What to read of every queue selected, as things are now.

    :raises RouteNotFound: there is no such topic.
    :raises OptionError, DataLoss: what was asked for is not there.
    :raises NoProgress: a broker did not answer within `no_progress_timeout_ms`.
    :raises MasterAway: one that has to say where queues begin or end did not.
    """
    return asyncio.run(_plan(options, narrowing))


async def _plan(options: ReadOptions, narrowing: Narrowing) -> list[QueueRange]:
    async with client(options) as consumer:
        survey = ClusterQueries(consumer, options)
        ranges = await survey.patiently(partial(_ranges, survey, options))
        return await _clip_times(survey, narrowing.clip(ranges), narrowing)


async def _ranges(survey: ClusterQueries, options: ReadOptions) -> list[QueueRange]:
    bounds = await survey.bounds(await survey.queues())
    wanted = times_wanted(bounds, options.starting_offsets, options.ending_offsets)
    return resolve(bounds, options, await survey.times(bounds, wanted))


async def _clip_times(
    survey: ClusterQueries, ranges: list[QueueRange], narrowing: Narrowing
) -> list[QueueRange]:
    """The parts of the ranges stored within the times that a query asks for."""
    times = [ms for ms in (narrowing.time_from_ms, narrowing.time_until_ms) if ms is not None]
    bounds = {each.queue: Bounds(each.start, each.end) for each in ranges}
    found = await survey.times(bounds, [(queue, ms) for queue in bounds for ms in times])

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
    """A task's part; None is what Spark makes of a read without any."""
    if part is None:
        return iter(())
    begin_task()
    return read(part, options, schema)


def read(part: QueueRange, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages of a range as batches with the columns of `schema`.

    :raises roquet.spark._options.ranges.DataLoss: some are gone and that is not allowed.
    :raises NoProgress: no broker answered, or none had the next message.
    :raises PeerError: a broker's answer is no run of records.
    :raises CorruptBody: a body is damaged or too large, and mode is FAILFAST.
    """
    with asyncio.Runner() as runner:
        consumer = runner.run(client(options).__aenter__())
        try:
            reading, report = RangeReader(consumer, part, options), BodyReport(options.mode, schema)
            while (records := runner.run(reading.chunk())) is not None:
                for each in _decoded(records, part, options, of_messages(schema)):
                    if (rows := report.rows(each)) is not None:
                        yield rows
            report.close(part)
        except CorruptRecord as error:  # its offset is one in what was pulled, not in the log
            at = f"byte {error.at} of what was pulled"
            raise PeerError(
                f"while reading {part}: no valid record at {at}: {error.reason}"
            ) from error
        except RoquetError as error:
            error.add_note(f"while reading {part}")
            raise
        finally:
            runner.run(consumer.__aexit__(None, None, None))


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
