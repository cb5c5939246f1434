"""`spark.read.format("rocketmq")`: what Spark asks of a batch read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from roquet.spark.options import ReadOptions
from roquet.spark.pushed_filters import EVERYTHING, narrowed
from roquet.spark.ranges import partitions
from roquet.spark.read_cluster import plan, read_partition
from roquet.spark.schema import arrow_schema

_FILTER_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def batch_reader(options: ReadOptions, schema: StructType) -> DataSourceReader:
    """The reader that Spark's settings allow.

    A reader that takes filters is an error where `spark.sql.python.filterPushdown.enabled` is off, as it is unless
    somebody turns it on, and a data source is not told. But filters come from a worker of Spark's own for them.
    """
    kind = FilteringReader if _FILTER_WORKER in sys.modules else RocketMQReader
    return kind(options, schema)


class RocketMQReader(DataSourceReader):
    """One batch read: its offsets are settled when it is planned, so it reads that much and no more."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._narrowing = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        ranges = plan(self._options, self._narrowing)
        return [InputPartition(part) for part in partitions(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition.value, self._options, self._schema)


class FilteringReader(RocketMQReader):
    """The same, leaving out what the query's conditions leave out."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._narrowing, left = narrowed(filters)
        if (tags := self._narrowing.tags) is not None:
            wanted = tags if self._options.tags is None else tags & self._options.tags
            self._options = replace(self._options, tags=wanted)
        return left
