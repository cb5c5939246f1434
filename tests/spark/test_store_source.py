"""`format("rocketmq-store")` as a Spark user meets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from roquet.spark._arrow.schema import SPARK_SCHEMA
from tests.storetool.stores import LOG_FILE, Broker, filled, flip

pytestmark = pytest.mark.spark

COUNT = 100


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stores") / "broker-a"
    filled(root, COUNT)
    return root


def test_a_path_is_all_that_is_needed(spark: SparkSession, store: Path) -> None:
    frame = spark.read.format("rocketmq-store").option("bytesPerPartition", 2000).load(str(store))

    assert frame.schema == SPARK_SCHEMA
    assert frame.rdd.getNumPartitions() > 3
    bodies = [bytes(row.body).decode() for row in frame.select("body").collect()]
    assert bodies == [f"message {number}" for number in range(COUNT)]


def test_several_paths_are_several_stores(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    filled(tmp_path / "with, comma", 7)

    frame = spark.read.format("rocketmq-store").load([str(store), str(tmp_path / "with, comma")])

    counts = {row.brokerName: row["count"] for row in frame.groupBy("brokerName").count().collect()}
    assert counts == {"broker-a": COUNT, "with, comma": 7}


def test_a_running_broker_is_read_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.fill(50)
    reader = spark.read.format("rocketmq-store").schema("queueOffset bigint")

    assert reader.load(str(tmp_path)).count() == 50
    broker.fill(20)
    assert reader.load(str(tmp_path)).count() == 70
    broker.stop()
    assert reader.load(str(tmp_path)).count() == 70


def test_damage_is_shown_to_who_asks_for_it(spark: SparkSession, tmp_path: Path) -> None:
    places = filled(tmp_path, COUNT)
    flip(tmp_path / "commitlog" / f"{0:020d}", places[3] + 90)
    assert places[3] < LOG_FILE

    reader = spark.read.format("rocketmq-store").option("mode", "PERMISSIVE")
    frame = reader.schema("body binary, _corrupt string, commitLogOffset bigint").load(
        str(tmp_path)
    )

    assert [row.commitLogOffset for row in frame.where("_corrupt IS NOT NULL").collect()] == [
        places[3]
    ]
    assert frame.count() == COUNT
    assert reader.schema("body binary").load(str(tmp_path)).count() == COUNT - 1


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", True)
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize(
    "condition",
    [
        "topic = 'T' AND queueId = 1 AND queueOffset >= 40",
        "tags = 'b' AND storeTimestamp < TIMESTAMP '2023-11-14 22:13:20.031 UTC'",
        "brokerName = 'other'",
    ],
)
def test_conditions_give_the_same_rows_whether_spark_or_the_read_sees_to_them(
    pushing: SparkSession, store: Path, condition: str
) -> None:
    def rows() -> list[int]:
        frame = (
            pushing.read.format("rocketmq-store").option("bytesPerPartition", 2000).load(str(store))
        )
        return sorted(
            row.commitLogOffset
            for row in frame.where(condition).select("commitLogOffset").collect()
        )

    pushed = rows()
    pushing.conf.set("spark.sql.python.filterPushdown.enabled", False)
    assert pushed == rows()
    assert len(pushed) == (0 if "other" in condition else 10 if "topic" in condition else 15)


def test_a_condition_hides_no_damage_that_is_asked_for(
    pushing: SparkSession, tmp_path: Path
) -> None:
    places = filled(tmp_path, COUNT)
    flip(tmp_path / "commitlog" / f"{0:020d}", places[3] + 90)
    reader = pushing.read.format("rocketmq-store").option("mode", "PERMISSIVE")
    frame = reader.schema("topic string, queueId int, brokerName string, _corrupt string").load(
        str(tmp_path)
    )

    assert frame.where("queueId = 1").count() == COUNT // 2 - 1
    assert frame.where("_corrupt IS NOT NULL OR queueId = 1").count() == COUNT // 2
    assert frame.where("topic = 'T'").count() == COUNT - 1


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({"topc": "T"}, None, "did you mean topic?"),
        ({"path": "/nowhere"}, None, "/nowhere is no directory on this machine"),
        ({}, "_corrupt int", "column _corrupt is string, not int"),
        ({}, "_corrupt string, queueId int NOT NULL", "leave out NOT NULL"),
        ({}, "bodi binary", "did you mean body?"),
    ],
)
def test_what_is_wrong_is_said(
    spark: SparkSession, store: Path, options: dict[str, str], schema: str | None, words: str
) -> None:
    reader = spark.read.format("rocketmq-store").options(**{"path": str(store)} | options)
    with pytest.raises(PySparkException) as error:
        (reader.schema(schema) if schema else reader).load().collect()
    assert words in str(error.value)
