"""`format("rocketmq")`: what Spark asks of a data source, answered by the modules beside this one."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from roquet.spark.options import ReadOptions
from roquet.spark.ranges import QueueRange, partitions, resolve
from roquet.spark.read_cluster import queue_bounds, read
from roquet.spark.schema import arrow_schema, spark_schema


class RocketMQSource(DataSource):
    """Topics of a RocketMQ 4.x cluster as a table, a row per message.

    The options are those of `roquet.spark.options`; `spark.read.schema("body binary, tags string")` reads just
    these columns.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return spark_schema(include_properties=ReadOptions.of_batch(self.options).include_properties)

    def reader(self, schema: StructType) -> DataSourceReader:
        return RocketMQReader(ReadOptions.of_batch(self.options), schema)


class RocketMQReader(DataSourceReader):
    """One batch read: its offsets are settled when it is planned, so it reads that much and no more."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        ranges = resolve(queue_bounds(self._options), self._options)
        return [InputPartition(part) for part in partitions(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # what Spark makes of a read without partitions
            return iter(())
        part: QueueRange = partition.value
        return read(part, self._options, self._schema)
