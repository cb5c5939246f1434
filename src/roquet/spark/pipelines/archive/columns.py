"""The columns of an archive, in every storage: those of `format("rocketmq")`, and the day."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DateType, StructField, StructType

from roquet.spark._arrow.schema import SPARK_SCHEMA

PARTITIONS: Final = ("topic", "day")
FILE_SCHEMA: Final = StructType(
    [column for column in SPARK_SCHEMA if column.name not in PARTITIONS]
)
ARCHIVE_SCHEMA: Final = StructType(
    [*FILE_SCHEMA, SPARK_SCHEMA["topic"], StructField("day", DateType())]
)
_DAY: Final = "date_from_unix_date(CAST(floor(unix_seconds(storeTimestamp) / 86400) AS INT))"
"""SQL for the day of storeTimestamp in UTC, independent of the session's time zone."""


def with_day(messages: DataFrame) -> DataFrame:
    return messages.withColumn("day", f.expr(_DAY))
