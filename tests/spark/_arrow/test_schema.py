"""Schemas: Arrow's and Spark's agree, and a user's own is a projection."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType

from roquet.errors import OptionError
from roquet.spark._arrow.schema import ARROW_SCHEMA, SPARK_SCHEMA, arrow_schema, spark_schema


def test_spark_makes_of_its_schema_just_our_arrow_schema() -> None:
    assert to_arrow_schema(SPARK_SCHEMA, timezone="UTC") == ARROW_SCHEMA
    assert arrow_schema(SPARK_SCHEMA) == ARROW_SCHEMA


def test_properties_can_be_left_out() -> None:
    names = spark_schema(include_properties=False).fieldNames()
    assert names == [name for name in ARROW_SCHEMA.names if name != "properties"]


def test_a_projection_keeps_the_users_order_and_nullability() -> None:
    wanted = StructType(
        [StructField("body", BinaryType(), nullable=False), StructField("queueOffset", LongType())]
    )
    assert arrow_schema(wanted) == to_arrow_schema(wanted, timezone="UTC")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (StructField("Body", BinaryType()), "no column 'Body': did you mean body"),
        (StructField("messageId", StringType()), "no column 'messageId': did you mean"),
        (StructField("zzz", StringType()), "the columns are topic, brokerName"),
        (StructField("body", StringType()), "column body is binary, not string"),
        (StructField("queueId", LongType()), "column queueId is int, not bigint"),
        (
            StructField("properties", MapType(StringType(), StringType(), valueContainsNull=False)),
            "properties is map<string,string>",
        ),
        (StructField("tags", StringType(), nullable=False), "leave out NOT NULL"),
    ],
)
def test_a_column_that_is_none_of_ours_is_explained(field: StructField, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        arrow_schema(StructType([field]))
