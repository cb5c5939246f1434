"""The data source `format("rocketmq-store")`: a reader of broker store files for Spark.

Methods import the modules that they need when they are called, as in `roquet.spark.source`.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType


class RocketMQStoreSource(DataSource):
    """The messages in store directories of RocketMQ 4.x brokers as a table, one row per message.

    Use `spark.read.format("rocketmq-store").load("/data/store")`. `load` takes one directory,
    several separated by commas, or a list; wildcards are allowed. The read writes no file and takes
    no lock, so the broker may keep running.

    path: store directories, which contain commitlog/. Every machine that reads must have them.
    commitLog: folders of the commit log, separated by commas, if it is not below the one path.
    brokerName: one name for all stores, or one for each, separated by commas. Default: the
        directories' names.
    subscribe (or topic), subscribePattern, assign: default: all topics of applications.
    startingOffsets, endingOffsets, startingTimestamp, endingTimestamp, startingOffsetsByTimestamp,
        endingOffsetsByTimestamp, tags, includeProperties: as in format("rocketmq"). Times are store
        times.
    startingOffsetsByTimestampStrategy: for a queue whose messages are all older than the time.
        latest (default): the queue has no rows; error: the read fails.
    bytesPerPartition: bytes of the log per task. Default: 67108864.
    mode: FAILFAST (default): bytes that are no valid record fail the read. PERMISSIVE: they are
        logged and skipped; a schema with the column _corrupt has a row for each damaged range.
    maxUncompressedBytes: a body that decompresses to more bytes is damaged. Default: 67108864.
    checkCrc: whether bodies are compared with their checksums. Default: true.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq-store"

    def schema(self) -> StructType:
        from roquet.spark._arrow.schema import spark_schema
        from roquet.spark._options.store import StoreOptions

        return spark_schema(include_properties=StoreOptions.of(self.options).include_properties)

    def reader(self, schema: StructType) -> DataSourceReader:
        from roquet.spark._options.store import StoreOptions
        from roquet.spark._storefiles.batch import store_reader

        return store_reader(StoreOptions.of(self.options), schema)
