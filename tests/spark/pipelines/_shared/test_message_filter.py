"""Which messages a job processes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from roquet.spark.pipelines._shared.message_filter import ALL, MessageFilter

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def messages(spark: SparkSession) -> DataFrame:
    """Message 0 to 3 with its keys, stored at its number in milliseconds."""
    rows = [
        (number, keys, datetime.fromtimestamp(number / 1000, UTC))
        for number, keys in enumerate(["a b", "ab", None, "b a.b"])
    ]
    return spark.createDataFrame(rows, "number int, keys string, storeTimestamp timestamp").cache()


def test_all_conditions_that_are_given_must_hold(messages: DataFrame) -> None:
    for wanted, expected in (
        (ALL, [0, 1, 2, 3]),
        (MessageFilter(since_ms=1, until_ms=3), [1, 2]),
        (MessageFilter(since_ms=3, until_ms=3), []),
        (MessageFilter(key="a"), [0]),
        (MessageFilter(key="a|ab"), [0, 1]),
        (MessageFilter(key="a.b"), [3]),
        (MessageFilter(where="keys IS NULL OR number = 3"), [2, 3]),
        (MessageFilter(since_ms=1, key="b", where="number > 0"), [3]),
    ):
        found = wanted.of(messages).select("number").collect()
        assert sorted(row.number for row in found) == expected, wanted


def test_a_condition_that_is_none_is_an_error_of_spark(messages: DataFrame) -> None:
    with pytest.raises(ParseException):
        MessageFilter(where="number >").of(messages)
    with pytest.raises(AnalysisException, match="color"):
        MessageFilter(where="color = 'red'").of(messages)
