"""Checks the columns of a write. The driver does that, so that a wrong column is reported once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from roquet.errors import OptionError
from roquet.spark._arrow.schema import unknown_column
from roquet.spark._options.write import DeliveryGuarantee, WriteOptions

_TEXT_MAP: Final = MapType(StringType(), StringType())

_COLUMNS: Final[Mapping[str, tuple[DataType, ...]]] = {
    "body": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "tags": (StringType(),),
    "keys": (StringType(),),
    "properties": (_TEXT_MAP,),
    "flag": (IntegerType(),),
    "delayLevel": (IntegerType(),),
    "shardingKey": (StringType(),),
    "queueId": (IntegerType(),),
}
"""Column -> its valid types."""


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Check the columns against the options.

    :raises OptionError: a column is missing, unknown, of a wrong type, or excluded by an option.
    """
    for field in schema:
        _check_column(field)
    names = schema.fieldNames()
    if len(set(names)) < len(names):
        raise OptionError(f"columns: a column appears twice: {', '.join(names)}")
    if "body" not in names:
        raise OptionError("columns: body is missing: add the message bodies, binary or string")
    if options.topic is None and "topic" not in names:
        raise OptionError("topic is missing: give the option topic, or a column of that name")
    if options.delivery is DeliveryGuarantee.EFFECTIVELY_ONCE and "delayLevel" in names:
        raise OptionError(
            "columns: delayLevel is not possible with delivery=effectively-once: "
            "a delayed message cannot be found before it is delivered"
        )


def _check_column(field: StructField) -> None:
    allowed = _COLUMNS.get(field.name)
    if allowed is None:
        raise OptionError(f"columns: {unknown_column(field.name, _COLUMNS)}")
    kind = field.dataType
    if isinstance(kind, MapType):
        # Drops valueContainsNull: null values are checked row by row.
        kind = MapType(kind.keyType, kind.valueType)
    if kind not in allowed:
        words = " or ".join(each.simpleString() for each in allowed)
        raise OptionError(
            f"columns: {field.name} is {words}, not {field.dataType.simpleString()}: cast it"
        )
