"""The columns of a message, as an Arrow schema and as a Spark schema.

Invariant: both schemas have the same columns and types. Spark rejects a batch with another Arrow
schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from roquet.errors import OptionError

_TYPES: Final[dict[str, tuple[pa.DataType, DataType]]] = {
    "string": (pa.string(), StringType()),
    "int": (pa.int32(), IntegerType()),
    "long": (pa.int64(), LongType()),
    "binary": (pa.binary(), BinaryType()),
    "timestamp": (pa.timestamp("us", tz="UTC"), TimestampType()),
    "map": (pa.map_(pa.string(), pa.string()), MapType(StringType(), StringType())),
}

_COLUMNS: Final[dict[str, str]] = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "long",
    "msgId": "string",
    "keys": "string",
    "tags": "string",
    "body": "binary",
    "properties": "map",
    "flag": "int",
    "sysFlag": "int",
    "bornTimestamp": "timestamp",
    "bornHost": "string",
    "storeTimestamp": "timestamp",
    "storeHost": "string",
    "reconsumeTimes": "int",
    "commitLogOffset": "long",
    "bodyCRC": "int",
}

_NULLABLE: Final = frozenset({"keys", "tags"})
"""The columns that may be null; every other column has a value in every row."""

ARROW_SCHEMA: Final = pa.schema([(name, _TYPES[kind][0]) for name, kind in _COLUMNS.items()])
SPARK_SCHEMA: Final = StructType(
    [StructField(name, _TYPES[kind][1]) for name, kind in _COLUMNS.items()]
)


def spark_schema(*, include_properties: bool) -> StructType:
    """The schema of a read for which the user gives no schema."""
    return StructType(
        [field for field in SPARK_SCHEMA if include_properties or field.name != "properties"]
    )


def arrow_schema(wanted: StructType) -> pa.Schema:
    """The Arrow schema for a user's schema, in its order.

    :raises OptionError: a column does not exist, or has a wrong type.
    """
    return pa.schema([_arrow_field(field) for field in wanted])


def unknown_column(name: str, columns: Iterable[str]) -> str:
    """The error text for a column that does not exist."""
    by_lower_case = {column.lower(): column for column in columns}
    close = get_close_matches(name.lower(), by_lower_case, n=1)
    if close:
        return f"no column {name!r}: did you mean {by_lower_case[close[0]]}?"
    return f"no column {name!r}: the columns are {', '.join(by_lower_case.values())}"


def _arrow_field(wanted: StructField) -> pa.Field:
    name = wanted.name
    if name not in _COLUMNS:
        raise OptionError(f"schema: {unknown_column(name, _COLUMNS)}")
    arrow_type, spark_type = _TYPES[_COLUMNS[name]]
    if wanted.dataType != spark_type:
        raise OptionError(
            f"schema: column {name} is {spark_type.simpleString()}, "
            f"not {wanted.dataType.simpleString()}: read it as it is and cast it"
        )
    if not wanted.nullable and name in _NULLABLE:
        raise OptionError(
            f"schema: column {name} is null for messages without {name}: leave out NOT NULL"
        )
    return pa.field(name, arrow_type, nullable=wanted.nullable)
