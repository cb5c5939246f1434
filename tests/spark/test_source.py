"""`format("rocketmq")` as a Spark user meets it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from roquet.cli.pipeline.session import line_of
from roquet.protocol.records.layout import checksum
from roquet.spark._arrow.schema import SPARK_SCHEMA
from tests.spark.stand_in import Broker, StandIn, cluster, record

pytestmark = pytest.mark.spark

SIZES = (120, 0, 7)


@pytest.fixture(scope="module")
def stand_in() -> Iterator[StandIn]:
    held = {
        ("orders", index): [
            record(index, offset, f"{index}-{offset}".encode()) for offset in range(10, 10 + size)
        ]
        for index, size in enumerate(SIZES)
    }
    poison = [
        record(0, offset, b"no zlib", topic="poison", sys_flag=int(offset == 3))
        for offset in range(5)
    ]
    others = {("empty", 0): [], ("poison", 0): poison}
    with cluster(Broker(0, held | others)) as running:
        yield running


def load(
    spark: SparkSession, stand_in: StandIn, *, schema: str | None = None, **options: str
) -> DataFrame:
    given = {"nameServer": stand_in.name_server, "subscribe": "orders"} | options
    reader = spark.read.format("rocketmq").options(**given)
    return (reader.schema(schema) if schema else reader).load()


def test_one_message_that_cannot_be_opened_ends_a_read_that_says_which_or_is_a_row_of_its_own(
    spark: SparkSession, stand_in: StandIn
) -> None:
    place = "poison@broker-a:0, queue offset 3: the compressed body is damaged"
    with pytest.raises(PySparkException) as failure:
        load(spark, stand_in, subscribe="poison").count()
    line = line_of(failure.value)
    assert line is not None
    assert line.startswith(place)
    assert line.endswith("and logs what it skips (while reading poison@broker-a:0[0, 5))")

    rest = load(spark, stand_in, subscribe="poison", mode="PERMISSIVE")
    assert sorted(row.queueOffset for row in rest.collect()) == [0, 1, 2, 4]
    columns = "topic string, queueOffset long, body binary, _corrupt string"
    told = load(spark, stand_in, schema=columns, subscribe="poison", mode="PERMISSIVE").where(
        "_corrupt IS NOT NULL"
    )
    (row,) = told.collect()
    assert (row.topic, row.queueOffset, row.body) == ("poison", 3, None)
    assert row._corrupt.startswith(place)


def test_every_message_is_read_once(spark: SparkSession, stand_in: StandIn) -> None:
    frame = load(spark, stand_in)
    assert frame.schema == SPARK_SCHEMA
    bodies = [bytes(row.body).decode() for row in frame.select("body").collect()]
    assert sorted(bodies) == sorted(
        f"{index}-{offset}" for index in (0, 2) for offset in range(10, 10 + SIZES[index])
    )


def test_a_row_has_every_column_of_its_message(spark: SparkSession, stand_in: StandIn) -> None:
    rows = load(spark, stand_in).where("queueId = 2 AND queueOffset = 11")
    times = rows.selectExpr(
        "unix_millis(bornTimestamp) AS born", "unix_millis(storeTimestamp) AS stored"
    ).first()
    assert times is not None
    assert (times.born, times.stored) == (1_700_000_000_123, 1_700_000_000_456)
    row = rows.drop("bornTimestamp", "storeTimestamp").first()
    assert row is not None
    assert row.asDict() == {
        "topic": "orders",
        "brokerName": "broker-a",
        "queueId": 2,
        "queueOffset": 11,
        "msgId": "U2-11",
        "keys": "k11",
        "tags": "T2",
        "body": bytearray(b"2-11"),
        "properties": {"TAGS": "T2", "KEYS": "k11", "UNIQ_KEY": "U2-11"},
        "flag": 0,
        "sysFlag": 0,
        "bornHost": "10.0.0.9:50000",
        "storeHost": "10.0.0.1:10911",
        "reconsumeTimes": 0,
        "commitLogOffset": 11000,
        "bodyCRC": checksum(b"2-11"),
    }


def test_a_schema_of_ones_own_is_a_projection(spark: SparkSession, stand_in: StandIn) -> None:
    frame = load(spark, stand_in, schema="queueOffset bigint, tags string")
    assert frame.columns == ["queueOffset", "tags"]
    assert frame.where("tags = 'T1'").count() == sum(
        1 for size in SIZES for offset in range(10, 10 + size) if offset % 3 == 1
    )


def test_offsets_bound_the_read_and_partitions_split_it(
    spark: SparkSession, stand_in: StandIn
) -> None:
    frame = load(
        spark,
        stand_in,
        startingOffsets='{"orders":{"broker-a":{"0":20}}}',
        endingOffsets='{"orders":{"broker-a":{"0":50,"2":-1}}}',
        maxRecordsPerPartition="10",
        tags="T0 || T1",
    )
    assert frame.rdd.getNumPartitions() == 4
    found = {
        (row.queueId, row.queueOffset) for row in frame.select("queueId", "queueOffset").collect()
    }
    wanted = [(0, offset) for offset in range(20, 50)] + [(2, offset) for offset in range(10, 17)]
    assert found == {(queue_id, offset) for queue_id, offset in wanted if offset % 3 != 2}


def test_a_topic_without_messages_has_no_rows(spark: SparkSession, stand_in: StandIn) -> None:
    assert load(spark, stand_in, subscribe="empty").count() == 0


def test_properties_can_be_left_out(spark: SparkSession, stand_in: StandIn) -> None:
    assert "properties" not in load(spark, stand_in, includeProperties="false").columns


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({"startingOfsets": "earliest"}, None, "did you mean startingOffsets?"),
        ({"startingOffsets": "latest"}, None, "'latest' is not possible for a batch read"),
        ({"subscribe": "nothing"}, None, "no broker has topic nothing"),
        (
            {"startingOffsets": '{"orders":{"broker-a":{"0":5}}}'},
            None,
            "wanted offset 5, min 10, max 130",
        ),
        ({}, "Body binary", "did you mean body?"),
        ({}, "body string", "column body is binary, not string"),
    ],
)
def test_what_is_wrong_is_said(
    spark: SparkSession, stand_in: StandIn, options: dict[str, str], schema: str | None, words: str
) -> None:
    with pytest.raises(PySparkException) as error:
        load(spark, stand_in, schema=schema, **options).collect()
    assert words in str(error.value)


def test_a_master_that_dies_in_the_middle_is_survived(spark: SparkSession) -> None:
    held = {("orders", 0): [record(0, offset, b"x") for offset in range(1000)]}
    master, slave = Broker(0, held), Broker(1, held)
    master.dies_after_pulls = 10
    with cluster(master, slave) as stand_in:
        frame = load(
            spark, stand_in, schema="queueOffset bigint, bodyCRC int, storeTimestamp timestamp"
        )
        assert [row.queueOffset for row in frame.select("queueOffset").collect()] == list(
            range(1000)
        )
    assert slave.pulls > 0


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("queueOffset IN (10, 11) AND tags = 'T1' AND topic = 'orders'", ["0-10", "2-10"]),
        ("brokerName = 'broker-b' OR queueOffset = 12 AND queueId = 0", ["0-12"]),
        (
            "queueId = 2 AND storeTimestamp = timestamp_millis(1700000000456) AND queueOffset < 12",
            ["2-10", "2-11"],
        ),
    ],
)
def test_conditions_give_the_same_rows_whether_spark_or_the_read_sees_to_them(
    pushing: SparkSession, stand_in: StandIn, condition: str, expected: list[str]
) -> None:
    for pushed in ("true", "false"):
        pushing.conf.set(PUSHDOWN, pushed)
        frame = load(pushing, stand_in).where(condition)
        assert (
            sorted(bytes(row.body).decode() for row in frame.select("body").collect()) == expected
        )


def test_conditions_that_are_pushed_down_save_pulls(
    pushing: SparkSession, stand_in: StandIn
) -> None:
    before = stand_in.brokers[0].pulls
    assert load(pushing, stand_in).where("queueId = 0 AND queueOffset = 20").count() == 1
    assert stand_in.brokers[0].pulls == before + 1
