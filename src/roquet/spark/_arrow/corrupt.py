"""The column `_corrupt`, and the report of damaged data."""

from __future__ import annotations

import logging
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from roquet.errors import OptionError, RoquetError
from roquet.spark._arrow.schema import arrow_schema
from roquet.spark._arrow.slices import words
from roquet.spark._options.values import Mode

CORRUPT: Final = "_corrupt"
"""The column that says why data is damaged. Only schemas that name it have it."""
TOLD_MAX: Final = 10
"""How many damages one task logs; of further ones it logs only the count."""

log = logging.getLogger(__name__)


def schema_with_damage(wanted: StructType) -> pa.Schema:
    """The Arrow schema of a user's schema, which may name the column `_corrupt`.

    :raises OptionError: a column does not exist, has a wrong type or must be nullable.
    """
    if CORRUPT not in wanted.fieldNames():
        return arrow_schema(wanted)
    place = wanted.fieldNames().index(CORRUPT)
    if not isinstance(wanted[CORRUPT].dataType, StringType):
        raise OptionError(
            f"schema: column {CORRUPT} is string, not {wanted[CORRUPT].dataType.simpleString()}"
        )
    for column in wanted:
        if not column.nullable:
            raise OptionError(
                f"schema: with {CORRUPT} column {column.name} may be null: leave out NOT NULL"
            )
    others = arrow_schema(StructType([column for column in wanted if column.name != CORRUPT]))
    return others.insert(place, pa.field(CORRUPT, pa.string()))


def of_messages(schema: pa.Schema) -> pa.Schema:
    """The columns of `schema` without `_corrupt`."""
    return pa.schema([column for column in schema if column.name != CORRUPT])


def with_corrupt(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of valid messages in the columns of `schema`; `_corrupt`, if it is there, is null."""
    if CORRUPT not in schema.names:
        return batch
    arrays = list(batch.columns)
    arrays.insert(schema.names.index(CORRUPT), pa.nulls(batch.num_rows, pa.string()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class DamageReport:
    """Reports the damaged data of one task: as an error; or in the log, and in `_corrupt`.

    The log has the first `TOLD_MAX`, and the total at the end.
    """

    def __init__(self, mode: Mode, schema: pa.Schema, error: type[RoquetError]) -> None:
        self._mode = mode
        self._is_row = CORRUPT in schema.names
        self._error = error
        self._count = 0

    def skip(self, text: str) -> pa.Array | None:
        """Log damaged data.

        :param text: where it is, and what is wrong.
        :returns: `_corrupt` in the row for it; None if there is no such row, since the schema does
            not have the column.
        :raises RoquetError: mode is FAILFAST.
        """
        if self._mode is Mode.FAILFAST:
            raise self._error(f"{text}; mode=PERMISSIVE reads the rest, and logs what it skips")
        self._count += 1
        if self._count <= TOLD_MAX:
            log.warning("damaged data skipped: error=%s", text)
        return words([text]) if self._is_row else None

    def close(self, where: object) -> None:
        """Log the total, if there was more than was logged.

        :param where: the range that the task read.
        """
        if self._count > TOLD_MAX:
            log.warning("damaged data skipped, total: count=%d range=%s", self._count, where)
