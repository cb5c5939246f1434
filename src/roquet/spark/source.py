"""The data source `format("rocketmq")`: readers and writers of topics for Spark.

Methods import the modules that they need when they are called. Spark starts one Python process to
list the data sources and another one to create the source, and neither of them needs the readers.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class RocketMQSource(DataSource):
    """Topics of a RocketMQ 4.x cluster as a table or a stream with one row per message.

    docs/guide/spark.md lists the options. `spark.read.schema("body binary, tags string")` builds
    only these columns.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        from roquet.spark._arrow.schema import spark_schema
        from roquet.spark._options.read import include_properties

        return spark_schema(include_properties=include_properties(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from roquet.spark._options.read import ReadOptions
        from roquet.spark._read.batch import batch_reader

        return batch_reader(ReadOptions.of_batch(self._all_options()), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from roquet.spark._options.read import ReadOptions
        from roquet.spark._read.stream import RocketMQStreamReader

        return RocketMQStreamReader(ReadOptions.of_stream(self._all_options()), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from roquet.spark._options.write import WriteOptions
        from roquet.spark._write.sink import RocketMQWriter

        return RocketMQWriter(WriteOptions.of(self._all_options()), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from roquet.spark._options.write import WriteOptions
        from roquet.spark._write.sink import RocketMQStreamWriter

        return RocketMQStreamWriter(
            WriteOptions.of(self._all_options()), schema, overwrite=overwrite
        )

    def _all_options(self) -> dict[str, str]:
        """The options of the query, with `accessFile` replaced by the options in that file."""
        from roquet.admin.access import with_access_file

        return with_access_file(self.options)
