"""The readers that Spark calls for `spark.read.format("rocketmq-store")`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from roquet.spark._arrow.corrupt import CORRUPT, schema_with_damage
from roquet.spark._options.pushed_filters import narrowed
from roquet.spark._options.store import StoreOptions
from roquet.spark._storefiles.chunks import StorePart
from roquet.spark._storefiles.plan import plan_parts
from roquet.spark._storefiles.read import read
from roquet.spark._worker import begin_task, filters_are_pushed


def store_reader(options: StoreOptions, schema: StructType) -> DataSourceReader:
    """A reader, with filter pushdown if Spark's settings enable it."""
    kind = FilteringStoreReader if filters_are_pushed() else RocketMQStoreReader
    return kind(options, schema)


class RocketMQStoreReader(DataSourceReader):
    """One batch read. `partitions` finds the ends of the logs, so later messages are not read."""

    def __init__(self, options: StoreOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema_with_damage(schema)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in plan_parts(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark passes None if the read has no partitions
            return iter(())
        begin_task()
        part: StorePart = partition.value
        return read(part, self._options, self._schema)


class FilteringStoreReader(RocketMQStoreReader):
    """A batch read that does not read messages which the filters of the query exclude."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters from Spark, and return those that Spark must test itself.

        With the column `_corrupt` these are all: rows for damage have null as topic or offset.
        """
        narrowing, left = narrowed(filters)
        self._options = self._options.narrowed_to(narrowing)
        return filters if CORRUPT in self._schema.names else left
