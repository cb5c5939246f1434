"""What is said of bytes that are no record, and what a read makes of it."""

from __future__ import annotations

import logging
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from roquet.errors import RoquetError
from roquet.inspect.files import Series
from roquet.inspect.log_walk import Damage
from roquet.spark.option_values import OptionError
from roquet.spark.schema import arrow_schema
from roquet.spark.slices import numbers, words
from roquet.spark.store_options import Mode

CORRUPT: Final = "_corrupt"
"""The column that says of a row why it is none; only in a schema that names it."""


class CorruptStore(RoquetError):  # noqa: N818
    """A store has bytes that should be records and are none; see option mode."""


def schema_with_damage(wanted: StructType) -> pa.Schema:
    """The Arrow schema of a user's schema, which may name the column `_corrupt`.

    :raises OptionError: it names a column that there is not, or one of another type.
    """
    if CORRUPT not in wanted.fieldNames():
        return arrow_schema(wanted)
    place = wanted.fieldNames().index(CORRUPT)
    if not isinstance(wanted[CORRUPT].dataType, StringType):
        raise OptionError(f"schema: column {CORRUPT} is string, not {wanted[CORRUPT].dataType.simpleString()}")
    for column in wanted:
        if not column.nullable:
            raise OptionError(f"schema: beside {CORRUPT} column {column.name} may be null: leave out NOT NULL")
    others = arrow_schema(StructType([column for column in wanted if column.name != CORRUPT]))
    return others.insert(place, pa.field(CORRUPT, pa.string()))


def spark_field() -> StructField:
    """The column `_corrupt`, for a schema made in Python."""
    return StructField(CORRUPT, StringType())


def in_words(log: Series, damage: Damage) -> str:
    """File, bytes in it, and what is wrong with them."""
    path, start = log.place(damage.start)
    where = f"{path}, bytes {start} to {start + damage.end - damage.start - 1} ({damage.end - damage.start} bytes)"
    if not path.exists():
        return f"{where}: there is no such file: it was deleted meanwhile, or this machine does not have it"
    return f"{where}: {damage.reason}"


class DamageReport:
    """Tells of damages in one part of a store: by an error, or in the log and, where the schema has it, in a row."""

    def __init__(self, log: Series, mode: Mode, schema: pa.Schema, broker_name: str) -> None:
        self._log = log
        self._mode = mode
        self._schema = schema
        self._broker_name = broker_name

    def of(self, damage: Damage) -> pa.RecordBatch | None:
        """The row of a damage, if the schema has a place for it.

        :raises CorruptStore: mode is FAILFAST.
        """
        text = in_words(self._log, damage)
        if self._mode is Mode.FAILFAST:
            raise CorruptStore(f"{text}; mode=PERMISSIVE reads the rest, and logs what it leaves out")
        logging.getLogger(__name__).warning("left out: %s", text)
        if CORRUPT not in self._schema.names:
            return None
        known = {
            CORRUPT: words([text]),
            "brokerName": words([self._broker_name]),
            "commitLogOffset": numbers(np.array([damage.start], np.int64), pa.int64()),
        }
        arrays = [known.get(column.name, pa.nulls(1, column.type)) for column in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
