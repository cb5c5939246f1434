"""Damaged data is an error, a line in the log, or a row; never nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from roquet.errors import OptionError, RoquetError
from roquet.spark._arrow.corrupt import (
    CORRUPT,
    TOLD_MAX,
    DamageReport,
    of_messages,
    schema_with_damage,
    with_corrupt,
)
from roquet.spark._options.values import Mode

PLAIN = StructType([StructField("topic", StringType()), StructField("queueOffset", LongType())])
DAMAGE = StructField(CORRUPT, StringType())
MIDDLE = StructType([PLAIN[0], DAMAGE, PLAIN[1]])


class DamagedError(RoquetError):
    """What a source raises."""


def test_the_column_stands_where_the_user_put_it() -> None:
    assert schema_with_damage(MIDDLE).names == ["topic", CORRUPT, "queueOffset"]
    assert schema_with_damage(MIDDLE).field(CORRUPT) == pa.field(CORRUPT, pa.string())
    assert schema_with_damage(PLAIN).names == ["topic", "queueOffset"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([StructField(CORRUPT, LongType())], "column _corrupt is string, not bigint"),
        (
            [DAMAGE, StructField("topic", StringType(), nullable=False)],
            "with _corrupt column topic may be null: leave out NOT NULL",
        ),
        (
            [StructField(CORRUPT, StringType(), nullable=False)],
            "with _corrupt column _corrupt may be null",
        ),
        ([DAMAGE, StructField("color", StringType())], "color"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(columns: list[StructField], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        schema_with_damage(StructType(columns))


def test_valid_messages_are_decoded_without_the_column_and_have_null_in_it() -> None:
    schema = schema_with_damage(MIDDLE)
    decoded = of_messages(schema)
    batch = pa.RecordBatch.from_pylist([{"topic": "T", "queueOffset": 5}], decoded)

    whole = with_corrupt(batch, schema)

    assert decoded == schema_with_damage(PLAIN)
    assert whole.schema == schema
    assert whole.to_pylist() == [{"topic": "T", CORRUPT: None, "queueOffset": 5}]
    assert with_corrupt(batch, decoded) is batch


@pytest.mark.parametrize("wanted", [PLAIN, MIDDLE])
def test_the_first_damage_is_an_error_unless_the_mode_says_otherwise(wanted: StructType) -> None:
    report = DamageReport(Mode.FAILFAST, schema_with_damage(wanted), DamagedError)

    with pytest.raises(
        DamagedError, match="byte 5 is wrong; mode=PERMISSIVE reads the rest, and logs"
    ):
        report.skip("byte 5 is wrong")


def test_damage_is_a_row_where_the_schema_has_the_column() -> None:
    row = DamageReport(Mode.PERMISSIVE, schema_with_damage(MIDDLE), DamagedError).skip("byte 5")
    none = DamageReport(Mode.PERMISSIVE, schema_with_damage(PLAIN), DamagedError).skip("byte 5")

    assert row == pa.array(["byte 5"])
    assert none is None


@pytest.mark.parametrize("count", [0, TOLD_MAX, TOLD_MAX + 1])
def test_the_log_has_the_first_damages_and_the_count_of_more(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    report = DamageReport(Mode.PERMISSIVE, schema_with_damage(PLAIN), DamagedError)
    for number in range(count):
        report.skip(f"byte {number}")
    report.close("orders[0, 9)")

    told = [f"damaged data skipped: error=byte {number}" for number in range(min(count, TOLD_MAX))]
    total = f"damaged data skipped, total: count={count} range=orders[0, 9)"
    assert caplog.messages == told + ([total] if count > TOLD_MAX else [])
