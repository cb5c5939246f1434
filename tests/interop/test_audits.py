"""Store files of Apache's broker and of ours against each other: equal ones are equal, and each
change is found.
"""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet.spark.pipelines.audit.job import Audit, Stored, audit
from roquet.spark.pipelines.audit.report import QueueAudit
from tests.interop import stored
from tests.interop.apache import ApacheNameServer, JavaClients
from tests.interop.couples import LOG_FILE, Couple, Maker
from tests.spark.conftest import spark

__all__ = ["spark"]

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.long]

CLIENT = "4.9.7-json"
TOPICS = {"Audited": 90, "Other": 20}
"""Messages of Apache's producer."""
WRONG = [
    f"{what}_{side}" for what in ("missing", "doubled", "corrupt") for side in ("left", "right")
] + ["different"]


@pytest.fixture(scope="module")
def pair(
    clients: JavaClients, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Path]]:
    """The stores of Apache's master and of the slave of ours that copied it, both stopped."""
    with (
        ApacheNameServer() as names,
        Couple(names.address, Maker.APACHE, Maker.OURS, "SYNC_MASTER") as couple,
    ):
        couple.master.start()
        couple.slave.start()
        couple.await_follower()
        for topic, count in TOPICS.items():
            clients[CLIENT].run("produce", names.address, topic, count, "--timeout", 20_000).check()
        couple.await_same()
        couple.master.stop()
        couple.slave.stop()
        root = tmp_path_factory.mktemp("audited")
        yield (
            Path(shutil.copytree(couple.master.store_dir, root / "apaches")),
            Path(shutil.copytree(couple.slave.store_dir, root / "ours")),
        )


def nth(store_dir: Path, number: int, topic: str = "Audited") -> stored.Stored:
    """The topic's message of this number, in the order of the log."""
    return [each for each in stored.log_records(store_dir) if each.topic == topic][number]


def write(store_dir: Path, at: int, data: bytes) -> None:
    with (store_dir / "commitlog" / f"{at - at % LOG_FILE:020d}").open("r+b") as file:
        file.seek(at % LOG_FILE)
        file.write(data)


def lose_one(store_dir: Path) -> stored.Stored:
    """Its bytes are zeros, as after a write that never came to the drive."""
    found = nth(store_dir, 30)
    write(store_dir, found.at, bytes(len(found.data)))
    return found


def change_a_byte(store_dir: Path) -> stored.Stored:
    found = nth(store_dir, 41)
    write(store_dir, found.at + 88, bytes([found.body[0] ^ 1]))
    return found


def double_one(store_dir: Path) -> stored.Stored:
    """It stands once more behind the last message, as sound as before."""
    found, last = nth(store_dir, 17), list(stored.log_records(store_dir))[-1]
    end = last.at + len(last.data)
    write(store_dir, end, found.data[:28] + struct.pack(">q", end) + found.data[36:])
    return found


def number_one_otherwise(store_dir: Path) -> stored.Stored:
    """It says another checksum, and has another body for it to be right: nothing but a comparison
    can tell.
    """
    found = nth(store_dir, 55)
    other = nth(store_dir, 56)
    write(store_dir, found.at + 8, other.data[8:12])
    write(store_dir, found.at + 88, other.body[: len(found.body)])
    return found


def found_by(spark: SparkSession, left: Path, right: Path, *topics: str) -> list[QueueAudit]:
    return list(audit(spark, Audit(Stored(str(left)), Stored(str(right)), topics)).queues)


@pytest.mark.parametrize("topics", [(), ("Audited",)])
def test_what_ours_copied_from_apache_s_is_the_same(
    spark: SparkSession, pair: tuple[Path, Path], topics: tuple[str, ...]
) -> None:
    apaches, ours = pair

    found = found_by(spark, apaches, ours, *topics)

    assert all(queue.is_same for queue in found), [
        str(queue) for queue in found if not queue.is_same
    ]
    rows = {
        topic: sum(queue.left_rows for queue in found if queue.topic == topic) for topic in TOPICS
    }
    assert rows == {
        topic: count if topic in topics or not topics else 0 for topic, count in TOPICS.items()
    }
    assert [queue.left_rows for queue in found] == [queue.right_rows for queue in found]


CHANGES = {
    "corrupt_right": change_a_byte,
    "doubled_right": double_one,
    "different": number_one_otherwise,
    "missing_right": lose_one,
}
"""The last one leaves a hole, behind which these tests find no record any more."""


@pytest.mark.parametrize("of_ours", [True, False], ids=["ours", "Apache's"])
def test_changes_on_one_side_are_found_there_and_nowhere_else(
    spark: SparkSession, pair: tuple[Path, Path], tmp_path: Path, of_ours: bool
) -> None:
    good, bad = pair if of_ours else pair[::-1]
    bad = Path(shutil.copytree(bad, tmp_path / "changed"))
    made = [(name, change(bad)) for name, change in CHANGES.items()]

    wrong = [queue for queue in found_by(spark, good, bad) if not queue.is_same]

    assert {queue.topic for queue in wrong} == {"Audited"}
    counts = {(queue.queue_id, name): getattr(queue, name) for queue in wrong for name in WRONG}
    assert +Counter(counts) == Counter((changed.queue_id, name) for name, changed in made)
    firsts = {queue.queue_id: (queue.first_difference, queue.first_is) for queue in wrong}
    by_place = sorted(
        (changed.queue_id, -changed.queue_offset, name.replace("_", " ")) for name, changed in made
    )
    assert firsts == {queue_id: (-offset, name) for queue_id, offset, name in by_place}
