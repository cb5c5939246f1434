"""Which columns a write may have."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, MapType, StringType, StructField, StructType

from roquet.errors import OptionError
from roquet.spark._options.write import DeliveryGuarantee, WriteOptions
from roquet.spark._write.columns import check_columns

OPTIONS = WriteOptions("ns:1", "orders")


def schema(**columns: str) -> StructType:
    kinds = {
        "string": StringType(),
        "int": IntegerType(),
        "map": MapType(StringType(), StringType()),
    }
    return StructType([StructField(name, kinds[kind]) for name, kind in columns.items()])


def test_all_columns_together_are_fine() -> None:
    check_columns(
        schema(
            body="string",
            topic="string",
            tags="string",
            keys="string",
            properties="map",
            delayLevel="int",
            shardingKey="string",
            queueId="int",
        ),
        OPTIONS,
    )


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (schema(tags="string"), OPTIONS, "body is missing"),
        (schema(body="string"), WriteOptions("ns:1"), "topic is missing"),
        (
            schema(body="string", shardingkey="string"),
            OPTIONS,
            "no column 'shardingkey': did you mean shardingKey?",
        ),
        (schema(body="int"), OPTIONS, "body is binary or string, not int: cast it"),
        (
            schema(body="string", properties="string"),
            OPTIONS,
            "properties is map<string,string>, not string",
        ),
        (
            schema(body="string", delayLevel="int"),
            WriteOptions("ns:1", "orders", delivery=DeliveryGuarantee.EFFECTIVELY_ONCE),
            "delayLevel is not possible with delivery=effectively-once",
        ),
    ],
)
def test_what_is_wrong_is_said(columns: StructType, options: WriteOptions, words: str) -> None:
    with pytest.raises(OptionError) as error:
        check_columns(columns, options)
    assert words in str(error.value)
