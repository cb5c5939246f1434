"""`format("rocketmq")`: what Spark asks of a data source, answered by the modules beside this one."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from roquet.admin.access import with_access_file
from roquet.spark.batch_reader import batch_reader
from roquet.spark.options import ReadOptions, include_properties
from roquet.spark.schema import spark_schema
from roquet.spark.sink import RocketMQStreamWriter, RocketMQWriter
from roquet.spark.stream_reader import RocketMQStreamReader
from roquet.spark.write_options import WriteOptions


class RocketMQSource(DataSource):
    """Topics of a RocketMQ 4.x cluster as a table or a stream, a row per message; options: docs/guide/spark.md.

    `spark.read.schema("body binary, tags string")` reads just these columns, which saves making the others.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return spark_schema(include_properties=include_properties(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return batch_reader(ReadOptions.of_batch(with_access_file(self.options)), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RocketMQStreamReader(ReadOptions.of_stream(with_access_file(self.options)), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return RocketMQWriter(WriteOptions.of(with_access_file(self.options)), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return RocketMQStreamWriter(WriteOptions.of(with_access_file(self.options)), schema, overwrite=overwrite)
