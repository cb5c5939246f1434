"""Two copies compared: what is wrong with the one is told by queue, and what is not wrong is
not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from roquet.errors import OptionError
from roquet.protocol.records.layout import checksum
from roquet.spark.pipelines.audit.job import READ_SCHEMA, Audit, Brokers, Stored, audit, compare
from tests.interop.roquet_cluster import RoquetCluster
from tests.spark.pipelines.conftest import send

Row = dict[str, Any]
WRONG = [
    f"{what}_{side}" for what in ("missing", "doubled", "corrupt") for side in ("left", "right")
] + ["different"]


def row(offset: int, **other: Any) -> Row:
    body = b"body-%d" % offset
    return {
        "topic": "orders",
        "brokerName": "broker-a",
        "queueId": 3,
        "queueOffset": offset,
        "msgId": f"M{offset}",
        "commitLogOffset": 100 * offset,
        "bodyCRC": checksum(body),
        "sysFlag": 0,
        "body": bytearray(body),
    } | other


def table(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(
        [tuple(each[name] for name in READ_SCHEMA.names) for each in rows], READ_SCHEMA
    )


def doubled(rows: list[Row]) -> None:
    rows.append(dict(rows[4]))


def cut(rows: list[Row]) -> None:
    del rows[7:]


def holed(rows: list[Row]) -> None:
    del rows[2]


def another_id(rows: list[Row]) -> None:
    rows[5] |= {"msgId": "other"}


def another_crc(rows: list[Row]) -> None:
    rows[6] |= {"bodyCRC": 1, "sysFlag": 1}


def another_place(rows: list[Row]) -> None:
    rows[0] |= {"commitLogOffset": 7}


def damaged(rows: list[Row]) -> None:
    rows[9] |= {"body": bytearray(b"body-X")}


def unpacked(rows: list[Row]) -> None:
    rows[9] |= {"body": bytearray(b"body-X"), "sysFlag": 1}


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "counts", "first", "kind"),
    [
        (unpacked, {}, None, None),
        (cut, {"missing_right": 3}, 7, "missing right"),
        (holed, {"missing_right": 1}, 2, "missing right"),
        (doubled, {"doubled_right": 1}, 4, "doubled right"),
        (another_id, {"different": 1}, 5, "different"),
        (another_crc, {"different": 1}, 6, "different"),
        (another_place, {"different": 1}, 0, "different"),
        (damaged, {"corrupt_right": 1}, 9, "corrupt right"),
    ],
)
def test_each_kind_of_difference_is_counted_at_its_offset(
    spark: SparkSession,
    change: Callable[[list[Row]], None],
    counts: dict[str, int],
    first: int | None,
    kind: str | None,
) -> None:
    good, bad = [row(offset) for offset in range(10)], [row(offset) for offset in range(10)]
    change(bad)

    (found,) = compare(table(spark, good), table(spark, bad))

    assert {name: getattr(found, name) for name in WRONG if getattr(found, name)} == counts
    assert (found.first_difference, found.first_is) == (first, kind)
    assert (found.left_rows, found.right_rows, found.left_end) == (10, len(bad), 10)
    if change is cut:
        (mirrored,) = compare(table(spark, bad), table(spark, good))
        assert (mirrored.missing_left, mirrored.missing_right, mirrored.left_end) == (3, 0, 7)


# reports


def test_a_store_against_brokers_needs_the_broker_s_name() -> None:
    with pytest.raises(OptionError, match="the broker name is missing"):
        Audit(Brokers("127.0.0.1:1", "master"), Stored("/store"), ("orders",)).check()
    Audit(Stored("/a"), Stored("/b")).check()


def test_a_side_reads_nobody_else_than_it_says() -> None:
    assert Brokers("127.0.0.1:1", "slave").reads()["readFrom"] == "slave-only"
    assert (
        Brokers("127.0.0.1:1", "slave", {"noprogresstimeoutms": "9"}).reads()["noprogresstimeoutms"]
        == "9"
    )
    with pytest.raises(OptionError, match="the sides of an audit set this option"):
        Brokers("127.0.0.1:1", "slave", {"READFROM": "any"}).reads()


# a real pair


@pytest.fixture
def pair() -> Iterator[RoquetCluster]:
    with RoquetCluster() as running:
        yield running


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.long
def test_a_slave_is_the_same_as_its_master_until_its_disk_changes_a_byte(
    spark: SparkSession, pair: RoquetCluster
) -> None:
    pair.create_topic("orders", 2)
    send(pair.namesrv, "orders", range(200))
    master, slave = (
        Brokers(pair.namesrv, side, {"noProgressTimeoutMs": "20000"})
        for side in ("master", "slave")
    )
    job = Audit(master, slave, ("orders",))

    same = audit(spark, job)

    assert same.is_same, same.to_json()
    assert [queue.left_rows + queue.right_rows for queue in same.queues] == [200, 200]

    log = next((pair.slave.store_dir / "commitlog").iterdir())
    at = log.read_bytes().index(b"123")
    with log.open("r+b") as file:
        file.seek(at)
        file.write(b"9")
    found = audit(spark, job)
    assert [queue.corrupt_right for queue in found.queues if not queue.is_same] == [1]
    assert sum(queue.corrupt_left + queue.different for queue in found.queues) == 0

    left, right = (Stored(str(broker.store_dir)) for broker in pair.brokers)
    for other in (Audit(left, right), Audit(master, right, ("orders",), broker_name="roquet-a")):
        (queue,) = (queue for queue in audit(spark, other).queues if not queue.is_same)
        wrong = {name: getattr(queue, name) for name in WRONG if getattr(queue, name)}
        assert (queue.topic, wrong) == ("orders", {"corrupt_right": 1})
        assert queue.left_rows == queue.right_rows == 100

    pair.slave.kill()
    impatient = {"noProgressTimeoutMs": "1000"}
    with pytest.raises(PySparkException, match="no answer for offset 0 in 1 s"):
        audit(spark, replace(job, right=Brokers(pair.namesrv, "slave", impatient)))
