"""`format("rocketmq")`: what Spark asks of a data source, answered by the modules beside this one."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from roquet.spark.options import ReadOptions, include_properties
from roquet.spark.ranges import QueueRange, partitions
from roquet.spark.read_cluster import plan, read
from roquet.spark.schema import arrow_schema, spark_schema
from roquet.spark.sink import RocketMQStreamWriter, RocketMQWriter
from roquet.spark.write_options import WriteOptions


class RocketMQSource(DataSource):
    """Topics of a RocketMQ 4.x cluster as a table, a row per message.

    `spark.read.schema("body binary, tags string")` reads just these columns, which saves making the others.

    nameServer               host:port of the name servers, separated by ; or ,
    subscribe (or topic)     topics, separated by commas
    startingOffsets          earliest, or JSON: {"orders":{"broker-a":{"0":23,"1":-2}}}, -2 is earliest
    endingOffsets            latest, or JSON, -1 is latest; queues that the JSON leaves out keep the default
    tags                     *, or tags separated by ||
    failOnDataLoss           true: messages asked for and gone end the read; false: they are logged and left out
    readFrom                 any: the master, a slave when it is gone; master; slave
    minPartitions            none: a task per queue; queues are split until there are so many
    maxRecordsPerPartition   none; queues are split until no task has more
    includeProperties        true; false leaves out the column properties
    pullBatchSize            32 messages per pull; brokers rarely give more
    pullTimeoutMs            3000, for one call to one broker
    noProgressTimeoutMs      30000; without one message of progress for so long a read fails
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return spark_schema(include_properties=include_properties(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return RocketMQReader(ReadOptions.of_batch(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return RocketMQWriter(WriteOptions.of(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        return RocketMQStreamWriter(WriteOptions.of(self.options), schema, overwrite=overwrite)


class RocketMQReader(DataSourceReader):
    """One batch read: its offsets are settled when it is planned, so it reads that much and no more."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in partitions(plan(self._options), self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # what Spark makes of a read without partitions
            return iter(())
        part: QueueRange = partition.value
        return read(part, self._options, self._schema)
