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

    docs/guide/spark.md lists the options.
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
