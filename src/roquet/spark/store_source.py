"""`format("rocketmq-store")`: what Spark asks of a data source, answered by the modules beside this one.

They are imported when they are asked, as in `roquet.spark.source`.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType


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
    maxUncompressedBytes     67108864: a compressed body with more counts as damaged
    checkCrc                 true: bodies are compared with their checksums
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
