"""`df.write` and `df.writeStream` to `format("rocketmq")` as a Spark user meets them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from roquet.protocol.records.message import DELAY, KEYS, TAGS
from roquet.spark._write.rows import ROW_ID
from roquet.spark.deduplication import deduplicated
from tests.interop.ground import Ground
from tests.spark.written import stored

pytestmark = [pytest.mark.spark, pytest.mark.process]


def append(frame: DataFrame, ground: Ground, **options: str) -> None:
    frame.write.format("rocketmq").option("nameServer", ground.namesrv).options(**options).mode(
        "append"
    ).save()


def read(spark: SparkSession, ground: Ground, topic: str) -> DataFrame:
    return (
        spark.read.format("rocketmq")
        .option("nameServer", ground.namesrv)
        .option("subscribe", topic)
        .load()
    )


def test_all_columns_of_a_row_arrive(spark: SparkSession, ground: Ground, topic: str) -> None:
    rows = spark.sql(
        f"""SELECT '{topic}' AS topic, concat('body-', id) AS body, concat('tag', id % 2) AS tags,
            concat('k', id, ' all') AS keys, map('n', cast(id AS string)) AS properties,
            cast(id % 3 AS int) AS queueId FROM range(40)"""
    )
    append(rows, ground)
    found = read(spark, ground, topic).orderBy("body").collect()
    assert {bytes(row.body).decode() for row in found} == {f"body-{number}" for number in range(40)}
    for row in found:
        number = int(bytes(row.body).decode().removeprefix("body-"))
        assert (row.tags, row.keys, row.queueId) == (
            f"tag{number % 2}",
            f"k{number} all",
            number % 3,
        )
        assert row.properties["n"] == str(number)


def test_the_option_topic_goes_before_the_column(
    spark: SparkSession, ground: Ground, topic: str
) -> None:
    append(spark.sql("SELECT 'elsewhere' AS topic, 'x' AS body"), ground, topic=topic)
    assert len(stored(ground.namesrv, topic)) == 1


def test_a_delayed_row_comes_later(spark: SparkSession, ground: Ground, topic: str) -> None:
    append(spark.sql("SELECT 'x' AS body, 1 AS delayLevel, 't' AS tags"), ground, topic=topic)
    while not (found := stored(ground.namesrv, topic)):
        pass
    assert (found[0].properties[DELAY], found[0].properties[TAGS]) == ("1", "t")
    assert found[0].store_time_ms - found[0].born_time_ms >= 1000
    assert KEYS not in found[0].properties


@pytest.mark.parametrize(
    ("query", "options", "words"),
    [
        ("SELECT 'x' AS body", {}, "topic is missing"),
        ("SELECT 'x' AS body", {"topik": "T"}, "did you mean topic?"),
        ("SELECT 'x' AS body, 't' AS tag", {"topic": "T"}, "did you mean tags?"),
        ("SELECT 1 AS body", {"topic": "T"}, "body is binary or string, not int"),
        (
            "SELECT cast(null AS string) AS body",
            {"topic": "T"},
            "row 0 of partition 0: body is null",
        ),
    ],
)
def test_what_is_wrong_is_said(
    spark: SparkSession, ground: Ground, query: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(PySparkException) as error:
        append(spark.sql(query), ground, **options)
    assert words in str(error.value)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, ground: Ground, topic: str) -> None:
    writer = (
        spark.sql("SELECT 'x' AS body")
        .write.format("rocketmq")
        .option("nameServer", ground.namesrv)
    )
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        writer.option("topic", topic).mode("overwrite").save()
    assert stored(ground.namesrv, topic) == []


def test_a_stream_writes_each_row_once_and_goes_on_at_its_checkpoint(
    spark: SparkSession, ground: Ground, topic: str, tmp_path: Path
) -> None:
    def run() -> None:
        rows = (
            spark.readStream.schema("value string")
            .text(str(tmp_path / "in"))
            .selectExpr("value AS body")
        )
        writer = (
            rows.writeStream.format("rocketmq")
            .option("nameServer", ground.namesrv)
            .option("topic", topic)
        )
        writer = writer.option("delivery", "effectively-once").option(
            "checkpointLocation", str(tmp_path / "done")
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    (tmp_path / "in").mkdir()
    for part in range(2):
        lines = "".join(f"{part}-{number}\n" for number in range(50))
        (tmp_path / "in" / f"{part}.txt").write_text(lines)
        run()
    found = Counter(record.body.decode() for record in stored(ground.namesrv, topic))
    assert found == Counter(f"{part}-{number}" for part in range(2) for number in range(50))


def test_a_reader_leaves_out_copies(
    spark: SparkSession, ground: Ground, topic: str, tmp_path: Path
) -> None:
    """Copies as a late answer can make them: the same ids once more; a message without an id has no
    copies.
    """
    append(
        spark.range(30, numPartitions=1).selectExpr("cast(id AS string) AS body"),
        ground,
        topic=topic,
        delivery="effectively-once",
    )
    append(spark.sql("SELECT 'plain' AS body UNION ALL SELECT 'plain'"), ground, topic=topic)
    found = read(spark, ground, topic)
    doubled = found.union(found.where(f"element_at(properties, '{ROW_ID}') IS NOT NULL"))
    assert doubled.count() == 62
    bodies = Counter(
        bytes(row.body).decode() for row in deduplicated(doubled).select("body").collect()
    )
    assert bodies == Counter([*map(str, range(30)), "plain", "plain"])

    doubled.coalesce(1).write.parquet(str(tmp_path / "doubled"))
    stream = spark.readStream.schema(doubled.schema).parquet(str(tmp_path / "doubled"))
    with pytest.raises(ValueError, match="within is missing"):
        deduplicated(stream)
    query = (
        deduplicated(stream, "1 hour")
        .writeStream.format("memory")
        .queryName("single")
        .outputMode("append")
    )
    query.trigger(availableNow=True).start().awaitTermination()
    assert spark.table("single").count() == 32
