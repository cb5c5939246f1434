"""The column `_corrupt`, and what a read from brokers makes of bodies that cannot be had."""

from __future__ import annotations

import logging
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from roquet.errors import RoquetError
from roquet.spark._arrow.columns import BadBody
from roquet.spark._arrow.schema import arrow_schema
from roquet.spark._arrow.slices import words
from roquet.spark._options.mode import Mode
from roquet.spark._options.values import OptionError

CORRUPT: Final = "_corrupt"
"""The column that says of a row why it is none; only in a schema that names it."""
TOLD_MAX: Final = 10
"""Of what one task leaves out so many are logged, of more only how many they are."""

log = logging.getLogger(__name__)


class CorruptBody(RoquetError):  # noqa: N818
    """A message's body is damaged, or larger than is allowed; see options mode and maxUncompressedBytes."""


def schema_with_damage(wanted: StructType) -> pa.Schema:
    """The Arrow schema of a user's schema, which may name the column `_corrupt`.

    :raises OptionError: it names a column that there is not, or one of another type.
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
                f"schema: beside {CORRUPT} column {column.name} may be null: leave out NOT NULL"
            )
    others = arrow_schema(StructType([column for column in wanted if column.name != CORRUPT]))
    return others.insert(place, pa.field(CORRUPT, pa.string()))


def of_messages(schema: pa.Schema) -> pa.Schema:
    """The columns that a message has."""
    return pa.schema([column for column in schema if column.name != CORRUPT])


def with_corrupt(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Sound messages in the columns of `schema`, which may have `_corrupt`."""
    if CORRUPT not in schema.names:
        return batch
    arrays = list(batch.columns)
    arrays.insert(schema.names.index(CORRUPT), pa.nulls(batch.num_rows, pa.string()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class LeftOut:
    """Logs what one task leaves out: the first ones, and in the end how many they were."""

    def __init__(self) -> None:
        self._count = 0

    def tell(self, text: str) -> None:
        self._count += 1
        if self._count <= TOLD_MAX:
            log.warning("left out: %s", text)

    def close(self, what: object) -> None:
        """:param what: of what these were left out."""
        if self._count > TOLD_MAX:
            log.warning("left out: %d %s in all", self._count, what)


class BodyReport:
    """Tells of the bad bodies of one range: by an error, or in the log and, where the schema has it, in a row."""

    def __init__(self, mode: Mode, schema: pa.Schema) -> None:
        self._mode = mode
        self._schema = schema
        self._left_out = LeftOut()

    def rows(self, found: pa.RecordBatch | BadBody) -> pa.RecordBatch | None:
        """What Spark gets of it.

        :raises CorruptBody: it is a bad body, and mode is FAILFAST.
        """
        if not isinstance(found, BadBody):
            return with_corrupt(found, self._schema)
        text = f"{found.place}: {found.reason}"
        if self._mode is Mode.FAILFAST:
            raise CorruptBody(
                f"{text}; mode=PERMISSIVE reads the rest, and logs what it leaves out"
            )
        self._left_out.tell(text)
        return (
            found.row(self._schema, {CORRUPT: words([text])})
            if CORRUPT in self._schema.names
            else None
        )

    def close(self, what: object) -> None:
        """:param what: the range."""
        self._left_out.close(f"messages of {what}")
