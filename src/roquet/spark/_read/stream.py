"""The reader that Spark calls for streams: `spark.readStream.format("rocketmq")`.

One reader lives in a process beside Spark's driver while the query runs, and plans its batches.
Spark copies the unused reader to the executors, where the copies read partitions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.corrupt import schema_with_damage
from roquet.spark._options.ranges import Bounds, partitions
from roquet.spark._options.read import ReadOptions
from roquet.spark._read.backlog import StreamBacklog
from roquet.spark._read.batch import read_partition
from roquet.spark._read.batch_limits import TriggerDelay, share_bytes, share_rows
from roquet.spark._read.stream_client import StreamClient
from roquet.spark._read.stream_offset import StreamOffset

_Json = dict[str, Any]
_ROWS_MAX: Final = 2**63 - 1
"""Reported if only bytes are limited: without a limit Spark would demand all available messages."""


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a stream, and reads their partitions."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema_with_damage(schema)
        self._client = StreamClient(options)
        self._pace = TriggerDelay(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        self._ends_now = False
        self._target: Mapping[MessageQueue, Bounds] | None = None
        self._newest: StreamOffset | None = None

    def initialOffset(self) -> _Json:
        return StreamOffset(self._client.run(self._client.starts()), is_first=True).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if (
            self._options.max_offsets_per_trigger is not None
            or self._options.max_bytes_per_trigger is not None
        ):
            return ReadMaxRows(self._options.max_offsets_per_trigger or _ROWS_MAX)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: _Json, limit: ReadLimit) -> _Json:
        before = StreamOffset.from_json(start)
        backlog = StreamBacklog.since(
            before, self._bounds(before), fail_on_data_loss=self._options.fail_on_data_loss
        )
        self._newest = StreamOffset(backlog.ends)
        counts = self._counts(backlog.sizes, limit)
        if self._options.max_bytes_per_trigger is not None and not isinstance(
            limit, ReadAllAvailable
        ):
            sizes = self._client.run(
                self._client.message_sizes(
                    backlog.firsts, counts, otherwise=self._options.max_bytes_per_trigger
                )
            )
            counts = share_bytes(counts, sizes, self._options.max_bytes_per_trigger)
        return backlog.taking(counts).to_json()

    def reportLatestOffset(self) -> _Json | None:
        return None if self._newest is None else self._newest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only to the ends that the queues have at the next `latestOffset`, then stop."""
        self._ends_now = True

    def partitions(self, start: _Json, end: _Json) -> list[InputPartition]:
        ranges = StreamOffset.from_json(end).ranges_from(StreamOffset.from_json(start))
        return [InputPartition(part) for part in partitions(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition.value, self._options, self._schema)

    def commit(self, end: _Json) -> None:
        group = self._options.consumer_group
        if group is not None:
            positions = StreamOffset.from_json(end).positions
            self._client.run(self._client.commit(group, positions))

    def stop(self) -> None:
        self._client.close()

    def _bounds(self, start: StreamOffset) -> Mapping[MessageQueue, Bounds]:
        if self._target is not None:
            return self._target
        bounds = self._client.run(self._client.bounds(start.positions))
        if self._ends_now:
            self._target = bounds
        return bounds

    def _counts(
        self, waiting: Mapping[MessageQueue, int], limit: ReadLimit
    ) -> Mapping[MessageQueue, int]:
        """The number of messages to read of each queue.

        `ReadAllAvailable` overrides the options: Spark uses it to finish a query with availableNow.
        """
        if isinstance(limit, ReadAllAvailable):
            return waiting
        now_ms = int(time.monotonic() * 1000)
        if self._target is None and not self._pace.is_due(sum(waiting.values()), now_ms):
            return {}
        most = self._options.max_offsets_per_trigger
        return waiting if most is None else share_rows(waiting, most)
