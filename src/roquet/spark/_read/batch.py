"""The readers that Spark calls for batch reads: `spark.read.format("rocketmq")`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from roquet.spark._arrow.corrupt import schema_with_damage
from roquet.spark._options.pushed_filters import EVERYTHING, narrowed
from roquet.spark._options.ranges import partitions
from roquet.spark._options.read import ReadOptions
from roquet.spark._read.cluster import plan, read_partition
from roquet.spark._runtime.worker import filters_are_pushed


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
