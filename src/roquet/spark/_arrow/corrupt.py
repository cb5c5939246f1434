"""The column `_corrupt`, and the handling of damaged bodies in reads from brokers."""

from __future__ import annotations

import logging
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from roquet.errors import OptionError, RoquetError
from roquet.spark._arrow.columns import BadBody
from roquet.spark._arrow.schema import arrow_schema
from roquet.spark._arrow.slices import words
from roquet.spark._options.mode import Mode

CORRUPT: Final = "_corrupt"
"""The column that says why data is damaged. Only schemas that name it have it."""
TOLD_MAX: Final = 10
"""How many damages one task logs; of further ones it logs only the count."""

log = logging.getLogger(__name__)


class CorruptBody(RoquetError):  # noqa: N818
    """A body is damaged or larger than allowed; see the options mode and maxUncompressedBytes."""


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


class LeftOut:
    """Logs the damaged data that one task skips: the first `TOLD_MAX`, and the total at the end."""

    def __init__(self) -> None:
        self._count = 0

    def tell(self, text: str) -> None:
        self._count += 1
        if self._count <= TOLD_MAX:
            log.warning("damaged data skipped: error=%s", text)

    def close(self, where: object) -> None:
        """Log the total, if there was more than was logged.

        :param where: the range that the task read.
        """
        if self._count > TOLD_MAX:
            log.warning("damaged data skipped, total: count=%d range=%s", self._count, where)


class BodyReport:
    """Reports the damaged bodies of one range: as an error; or in the log and in `_corrupt`."""

    def __init__(self, mode: Mode, schema: pa.Schema) -> None:
        self._mode = mode
        self._schema = schema
        self._left_out = LeftOut()

    def rows(self, found: pa.RecordBatch | BadBody) -> pa.RecordBatch | None:
        """The rows for Spark; None for a damaged body if the schema does not have `_corrupt`.

        :raises CorruptBody: `found` is a damaged body, and mode is FAILFAST.
        """
        if not isinstance(found, BadBody):
            return with_corrupt(found, self._schema)
        text = f"{found.place}: {found.reason}"
        if self._mode is Mode.FAILFAST:
            raise CorruptBody(f"{text}; mode=PERMISSIVE reads the rest, and logs what it skips")
        self._left_out.tell(text)
        return (
            found.row(self._schema, {CORRUPT: words([text])})
            if CORRUPT in self._schema.names
            else None
        )

    def close(self, where: object) -> None:
        """Log the total of damaged bodies in the range `where`."""
        self._left_out.close(where)
