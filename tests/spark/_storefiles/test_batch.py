"""The readers of store files, called as Spark calls them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from roquet.spark._arrow.corrupt import CORRUPT
from roquet.spark._arrow.schema import SPARK_SCHEMA
from roquet.spark._storefiles.batch import (
    FilteringStoreReader,
    RocketMQStoreReader,
    store_reader,
)
from tests.spark.store_rows import COUNT, TINY, messages, options
from tests.storetool.stores import filled

BODY = StructType([SPARK_SCHEMA["body"]])
OFFSET = GreaterThan(("queueOffset",), 9)
FLAG = EqualTo(("flag",), 7)


def bodies(reader: RocketMQStoreReader) -> list[bytes]:
    """The rows of all tasks, each of which has a copy of the reader."""
    return [
        row["body"]
        for partition in reader.partitions()
        for batch in pickle.loads(pickle.dumps(reader)).read(partition)
        for row in batch.to_pylist()
    ]


def test_the_parts_of_the_log_are_the_partitions(tmp_path: Path, places: list[int]) -> None:
    reader = RocketMQStoreReader(options(tmp_path, bytesPerPartition=TINY), BODY)

    assert len(reader.partitions()) > 5
    assert bodies(reader) == messages()


def test_what_comes_after_the_plan_is_not_read(tmp_path: Path) -> None:
    filled(tmp_path, 5)
    reader = RocketMQStoreReader(options(tmp_path), BODY)
    planned = reader.partitions()
    filled(tmp_path, 3)

    assert sum(batch.num_rows for part in planned for batch in reader.read(part)) == 5
    assert len(bodies(reader)) == 8


def test_a_read_without_partitions_has_no_rows(tmp_path: Path) -> None:
    reader = RocketMQStoreReader(options(tmp_path), BODY)

    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.parametrize("has_corrupt", [False, True])
def test_filters_are_taken_and_what_spark_must_test_is_given_back(
    tmp_path: Path, places: list[int], has_corrupt: bool
) -> None:
    column = [StructField(CORRUPT, StringType())] if has_corrupt else []
    reader = FilteringStoreReader(options(tmp_path), StructType([*BODY, *column]))
    filters: list[Filter] = [OFFSET, FLAG]

    left = list(reader.pushFilters(filters))

    assert left == (filters if has_corrupt else [FLAG])
    assert bodies(reader) == messages()[20:COUNT]


def test_without_pushed_filters_spark_gets_a_reader_that_takes_none(tmp_path: Path) -> None:
    reader = store_reader(options(tmp_path), BODY)

    assert type(reader) is RocketMQStoreReader
