"""`format("rocketmq-store")`: what Spark asks of a data source, answered by the modules beside this one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from roquet.spark.pushed_filters import narrowed
from roquet.spark.schema import spark_schema
from roquet.spark.store_damage import CORRUPT, schema_with_damage
from roquet.spark.store_options import StoreOptions
from roquet.spark.store_pieces import StorePart
from roquet.spark.store_plan import parts
from roquet.spark.store_read import read
from roquet.spark.worker import begin_task, filters_are_pushed


class RocketMQStoreSource(DataSource):
    """The messages in store directories of RocketMQ 4.x brokers as a table, a row per message.

    `spark.read.format("rocketmq-store").load("/data/store")`, or several separated by commas or as a list, with
    wildcards. Nothing is written there and no lock is taken; a broker may run meanwhile.

    path                     directories that hold commitlog/, on every machine that reads
    commitLog                the folders of the log, separated by commas, where it is not below the one path
    brokerName               of all stores or, separated by commas, of each; else their directories' names
    subscribe (or topic), subscribePattern, assign    all topics of applications, unless one of these is given
    startingOffsets, endingOffsets, startingTimestamp, endingTimestamp, startingOffsetsByTimestamp,
    endingOffsetsByTimestamp, tags, includeProperties    as with format("rocketmq"); timestamps are store times
    startingOffsetsByTimestampStrategy    latest: a queue without a message that young has no rows; or error
    bytesPerPartition        67108864: bytes of the log per task
    mode                     FAILFAST: bytes that should be records and are none end the read; PERMISSIVE: they are
                             logged and left out, and shown in the column _corrupt of a schema that names it
    checkCrc                 true: bodies are compared with their checksums
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq-store"

    def schema(self) -> StructType:
        return spark_schema(include_properties=StoreOptions.of(self.options).include_properties)

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = FilteringStoreReader if filters_are_pushed() else RocketMQStoreReader
        return kind(StoreOptions.of(self.options), schema)


class RocketMQStoreReader(DataSourceReader):
    """One batch read: where the logs end is settled when it is planned."""

    def __init__(self, options: StoreOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema_with_damage(schema)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in parts(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # what Spark makes of a read without partitions
            return iter(())
        begin_task()
        part: StorePart = partition.value
        return read(part, self._options, self._schema)


class FilteringStoreReader(RocketMQStoreReader):
    """The same, leaving out what the query's conditions leave out."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Rows of damages have nulls where a message has its topic or offset: Spark has to test these itself."""
        narrowing, left = narrowed(filters)
        self._options = self._options.narrowed_to(narrowing)
        return filters if CORRUPT in self._schema.names else left
