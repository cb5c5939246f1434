"""Store directories read without Spark, as its tasks read them: parts planned, and the batches of
each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from roquet.spark._arrow.corrupt import CORRUPT, schema_with_damage
from roquet.spark._arrow.schema import SPARK_SCHEMA
from roquet.spark._options.store import StoreOptions
from roquet.spark._storefiles.chunks import StorePart
from roquet.spark._storefiles.plan import plan_parts
from roquet.spark._storefiles.read import read

ALL = schema_with_damage(SPARK_SCHEMA)
WITH_CORRUPT = schema_with_damage(StructType([*SPARK_SCHEMA, StructField(CORRUPT, StringType())]))
Row = dict[str, Any]
COUNT = 100
"""Messages of the usual store."""
TINY = "500"
"""Bytes per partition: a few records each."""


def messages(count: int = COUNT) -> list[bytes]:
    """The bodies of a store that was filled."""
    return [b"message %d" % number for number in range(count)]


def options(*roots: Path, **given: str) -> StoreOptions:
    return StoreOptions.of({"path": ",".join(map(str, roots))} | given)


def planned(*roots: Path, **given: str) -> list[StorePart]:
    return plan_parts(options(*roots, **given))


def batches(*roots: Path, schema: pa.Schema = ALL, **given: str) -> list[pa.RecordBatch]:
    """What all tasks of a read give, one after the other."""
    wanted = options(*roots, **given)
    return [batch for part in plan_parts(wanted) for batch in read(part, wanted, schema)]


def rows(*roots: Path, schema: pa.Schema = ALL, **given: str) -> list[Row]:
    return [row for batch in batches(*roots, schema=schema, **given) for row in batch.to_pylist()]


def bodies(*roots: Path, **given: str) -> list[bytes]:
    return [row["body"] for row in rows(*roots, **given)]
