"""Topics to Parquet: each message once, whatever happened to the runs before."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from roquet.dev import Cluster
from roquet.errors import OptionError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import DataLoss
from roquet.spark.pipelines.archive.backend import ARCHIVE_SCHEMA, Archived
from roquet.spark.pipelines.archive.folder import STATES, ArchiveFolder
from roquet.spark.pipelines.archive.job import Archive, Compaction, archive, compact, read_archive
from roquet.spark.pipelines.archive.sources import StoredTopics, Topics
from roquet.spark.pipelines.archive.state import ArchiveError
from tests.spark.pipelines.conftest import numbers_in, send, store_of
from tests.storetool.stores import Broker, filled

pytestmark = [pytest.mark.spark, pytest.mark.long]


def job(cluster: Cluster, folder: Path, **options: str) -> Archive:
    return Archive(Topics(cluster.name_server, ("orders",), options=options), str(folder))


def stored_job(store: Path, folder: Path, **options: str) -> Archive:
    """Of the broker that `cluster` runs, whoever's the store is."""
    return Archive(StoredTopics((str(store),), ("dev",), ("orders",), options=options), str(folder))


def plain_numbers(spark: SparkSession, folder: Path) -> list[int]:
    """What a reader sees that knows nothing of archives."""
    return numbers_in(spark.read.parquet(str(folder)))


def test_each_run_adds_what_is_new_and_small_files_are_put_together(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    runs: list[Archived] = []
    for numbers in (range(300), range(300, 450)):
        send(cluster.name_server, "orders", numbers)
        runs.append(archive(spark, job(cluster, tmp_path)))
        assert numbers_in(read_archive(spark, str(tmp_path))) == list(range(numbers.stop))
    assert [(run.rows, run.version, run.rows_in_all) for run in runs] == [
        (300, 1, 300),
        (150, 2, 450),
    ]
    assert archive(spark, job(cluster, tmp_path)) == Archived(0, 0, 0, 2, 450)

    done = compact(spark, Compaction(str(tmp_path)))

    today = datetime.now(UTC).date()
    files = list(tmp_path.glob("topic=orders/day=*/*.parquet"))
    assert (done.days, done.files_before, done.files_after) == (1, runs[0].files + runs[1].files, 1)
    assert [file.parent.name for file in files] == [f"day={today}"]
    assert (
        numbers_in(read_archive(spark, str(tmp_path)))
        == plain_numbers(spark, tmp_path)
        == list(range(450))
    )
    stored = read_archive(spark, str(tmp_path))
    assert set(stored.columns) == set(ARCHIVE_SCHEMA.names)
    row = stored.where("keys = 'k7' AND tags = 'T1'").first()
    assert row is not None
    assert (row.topic, row.day, row.properties["KEYS"]) == ("orders", today, "k7")
    assert compact(spark, Compaction(str(tmp_path))).days == 0


def test_a_day_counts_once_however_many_files_it_is_merged_into(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    for numbers in (range(100), range(100, 200)):
        send(cluster.name_server, "orders", numbers)
        archive(spark, job(cluster, tmp_path))
    sizes = [file.stat().st_size for file in tmp_path.glob("topic=orders/day=*/*.parquet")]
    count = len(sizes)
    assert count >= 4

    done = compact(spark, Compaction(str(tmp_path), size_wanted=max(sizes) * 5 // 2))

    assert (done.days, done.files_before, done.files_after) == (1, count // 2 * 2, count // 2)
    assert numbers_in(read_archive(spark, str(tmp_path))) == list(range(200))


def test_a_run_that_ended_before_its_state_was_written_leaves_nothing(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(cluster.name_server, "orders", range(100))
    monkeypatch.setattr(ArchiveFolder, "commit", killed)
    with pytest.raises(Killed):
        archive(spark, job(cluster, tmp_path))
    monkeypatch.undo()
    assert list(tmp_path.rglob("*.parquet")), "the files were written"
    assert not list(tmp_path.glob("topic=*")), "and nobody sees them"

    assert archive(spark, job(cluster, tmp_path)).rows_in_all == 100

    assert plain_numbers(spark, tmp_path) == list(range(100))
    assert sorted(os.listdir(tmp_path / STATES)) == ["00000001.json", "lock"]


@pytest.mark.parametrize("moves", [0, 1])
def test_a_run_that_ended_after_its_state_was_written_is_completed_by_who_comes_next(
    spark: SparkSession,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moves: int,
) -> None:
    send(cluster.name_server, "orders", range(100))
    die_after(monkeypatch, moves)
    with pytest.raises(Killed):
        archive(spark, job(cluster, tmp_path))
    monkeypatch.undo()
    assert len(list(tmp_path.glob("topic=*/*/*.parquet"))) == moves

    assert numbers_in(read_archive(spark, str(tmp_path))) == list(range(100))

    assert archive(spark, job(cluster, tmp_path)).rows == 0
    assert plain_numbers(spark, tmp_path) == list(range(100))


def test_rows_are_there_once_while_files_are_put_together(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for numbers in (range(60), range(60, 120)):
        send(cluster.name_server, "orders", numbers)
        archive(spark, job(cluster, tmp_path))
    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(Killed):
        compact(spark, Compaction(str(tmp_path)))
    monkeypatch.undo()

    assert numbers_in(read_archive(spark, str(tmp_path))) == list(range(120))
    assert plain_numbers(spark, tmp_path) == list(range(120))


def test_messages_that_were_never_archived_and_are_gone_are_told(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    send(cluster.name_server, "orders", range(10))
    archive(spark, job(cluster, tmp_path))
    folder = ArchiveFolder(tmp_path)
    with folder.changing() as state:
        staging = folder.staging(state)
        staging.mkdir()
        folder.commit(state.with_rows({MessageQueue("orders", "dev", 0): 1_000_000}, {}), staging)

    with pytest.raises(DataLoss, match="orders@dev:0: wanted offset 1000000, min 0, max"):
        archive(spark, job(cluster, tmp_path))


def test_store_files_and_brokers_take_turns(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Each run adds what is new, be it from a store's copy, the store itself beside its broker, or
    the broker.
    """
    store, copied, folder = store_of(cluster), tmp_path / "copied", tmp_path / "archive"
    live = job(cluster, folder)
    send(cluster.name_server, "orders", range(100))
    shutil.copytree(store, copied)
    assert archive(spark, stored_job(copied, folder)).rows == 100
    assert archive(spark, stored_job(copied, folder)).rows == 0
    assert archive(spark, live).rows == 0, "the broker has no more"

    send(cluster.name_server, "orders", range(100, 150))
    assert archive(spark, live).rows == 50
    assert archive(spark, stored_job(copied, folder)).rows == 0, "an older copy has nothing new"
    send(cluster.name_server, "orders", range(150, 180))
    assert archive(spark, stored_job(store, folder)).rows == 30
    assert archive(spark, live).rows == 0

    from_brokers = tmp_path / "from-brokers"
    assert archive(spark, job(cluster, from_brokers)).rows == 180
    archived, expected = (rows_of(spark, each) for each in (folder, from_brokers))
    assert archived == expected
    assert plain_numbers(spark, folder) == list(range(180))


def rows_of(spark: SparkSession, folder: Path) -> list[Row]:
    return (
        read_archive(spark, str(folder)).orderBy("brokerName", "queueId", "queueOffset").collect()
    )


def test_a_store_that_begins_behind_the_archive_s_end_is_refused(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, folder = tmp_path / "store", tmp_path / "archive"
    broker = Broker(store)
    broker.fill(20, "orders")
    assert archive(spark, stored_job(store, folder)).rows == 20
    broker.fill(180, "orders")
    broker.stop()
    for expired in sorted((store / "commitlog").iterdir())[:2]:
        expired.unlink()

    with pytest.raises(
        DataLoss,
        match=r"orders@dev:0: \d+ of the next messages, offsets 10 to 99, are not in the log",
    ):
        archive(spark, stored_job(store, folder))

    added = archive(spark, stored_job(store, folder, mode="PERMISSIVE"))
    assert 100 < added.rows < 180
    assert "queue=orders@dev:1 " in caplog.text
    assert archive(spark, stored_job(store, folder)).rows == 0


def test_two_copies_of_a_store_are_not_archived_twice(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("one", "other"):
        filled(tmp_path / name, 20)
    with pytest.raises(DataLoss, match="T@dev:0: 20 messages have the offsets 0 to 9"):
        archive(
            spark,
            Archive(
                StoredTopics((str(tmp_path / "o*"),), ("dev",), ("T",)), str(tmp_path / "archive")
            ),
        )


@pytest.mark.parametrize(
    ("paths", "brokers", "words"),
    [
        (("a", "b"), ("broker-a",), "2 store directories and 1 broker names"),
        (("a",), (), "1 store directories and 0 broker names"),
        (
            ("a", "b"),
            ("broker-a", "broker-a"),
            "two stores of one broker would add each message twice",
        ),
    ],
)
def test_whose_a_store_is_has_to_be_said(
    paths: tuple[str, ...], brokers: tuple[str, ...], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        StoredTopics(paths, brokers, ("orders",))


def test_a_folder_with_other_things_is_left_alone(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "there.txt").write_text("mine")
    with pytest.raises(ArchiveError, match=r"is no archive and not empty \(there.txt\)"):
        archive(spark, job(cluster, tmp_path))


def test_what_an_archive_settles_by_itself_is_no_option(
    cluster: Cluster, tmp_path: Path, spark: SparkSession
) -> None:
    with pytest.raises(OptionError, match="startingOffsets: the job sets this option itself"):
        archive(spark, job(cluster, tmp_path, startingOffsets="earliest"))
    with pytest.raises(ArchiveError, match="not a URL"):
        archive(spark, Archive(Topics(cluster.name_server, ("orders",)), "s3a://bucket/archive"))
    with pytest.raises(ArchiveError, match="is no archive"):
        read_archive(spark, str(tmp_path / "nowhere"))


class Killed(BaseException):
    """Stands for the end of the process: nobody handles it."""


def killed(*_: object, **__: object) -> None:
    raise Killed


def die_after(monkeypatch: pytest.MonkeyPatch, moves: int) -> None:
    """End the run once so many files have come to their places."""
    left = [moves]
    replace = Path.replace

    def moving(self: Path, target: Path) -> Path:
        if self.suffix == ".parquet":
            if not left[0]:
                raise Killed
            left[0] -= 1
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", moving)
