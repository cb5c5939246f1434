"""An archive as a table of Delta Lake, with the connector's own PySpark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from roquet.cli.main import main
from roquet.dev import Cluster
from roquet.spark.pipelines.archive.delta import DeltaArchive
from roquet.spark.pipelines.archive.job import Archive, Compaction, archive, compact, read_archive
from roquet.spark.pipelines.archive.sources import StoredTopics, Topics
from roquet.spark.pipelines.archive.state import ArchiveError
from roquet.spark.pipelines.archive.stream import ArchiveTrigger, archive_stream
from roquet.spark.pipelines.send.restore_job import Restore, restore
from tests.spark.pipelines.conftest import numbers_in, send, store_of

pytestmark = [pytest.mark.spark, pytest.mark.long]


def job(cluster: Cluster, folder: Path, **options: str) -> Archive:
    return Archive(Topics(cluster.name_server, ("orders",), options=options), str(folder), "delta")


def test_each_run_adds_what_is_new_from_brokers_and_store_files(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    send(cluster.name_server, "orders", range(100))
    first = archive(spark, job(cluster, tmp_path))
    assert (first.rows, first.rows_in_all, first.version) == (100, 100, 0)
    assert first.files
    assert first.size
    send(cluster.name_server, "orders", range(100, 160))
    stored = StoredTopics((str(store_of(cluster)),), ("dev",), ("orders",))

    second = archive(spark, Archive(stored, str(tmp_path)))

    assert (second.rows, second.rows_in_all, second.version) == (60, 160, 1)
    assert archive(spark, job(cluster, tmp_path)).rows == 0
    plain = spark.read.format("delta").load(str(tmp_path))
    assert numbers_in(plain) == numbers_in(read_archive(spark, str(tmp_path))) == list(range(160))
    assert restore(spark, Restore(str(tmp_path), cluster.name_server, to="again")).rows == 160


def test_of_two_runs_at_the_same_time_one_adds_nothing(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    backend = DeltaArchive(str(tmp_path))
    for numbers in (range(50), range(50, 80)):
        send(cluster.name_server, "orders", numbers)
        with backend.changing(spark) as slower:
            archive(spark, job(cluster, tmp_path))
            with pytest.raises(ArchiveError, match="is being changed by another process"):
                slower.add(backend.messages(spark), {}, None)

    assert numbers_in(read_archive(spark, str(tmp_path))) == list(range(80))


def test_files_are_put_together_while_somebody_reads_and_what_was_restored_comes_again(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    send(cluster.name_server, "orders", range(120))
    batches = list(
        archive_stream(
            spark, job(cluster, tmp_path), ArchiveTrigger(rows_max=40, available_now=True)
        )
    )
    assert [each.rows for each in batches] == [40, 40, 40]
    reading = read_archive(spark, str(tmp_path))

    done = compact(spark, Compaction(str(tmp_path)))

    assert done.files_before == sum(each.files for each in batches)
    assert done.files_after < done.files_before
    assert compact(spark, Compaction(str(tmp_path))).files_before == 0
    assert numbers_in(reading) == numbers_in(read_archive(spark, str(tmp_path))) == list(range(120))
    assert archive(spark, job(cluster, tmp_path)).rows == 0, (
        "the newest commit is not the archive's own"
    )

    spark.sql(f"RESTORE TABLE delta.`{tmp_path}` TO VERSION AS OF {batches[0].version}")
    assert archive(spark, job(cluster, tmp_path)).rows == 80
    assert numbers_in(read_archive(spark, str(tmp_path))) == list(range(120))


def test_a_table_of_somebody_else_is_left_alone(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path))
    send(cluster.name_server, "orders", range(1))
    with pytest.raises(ArchiveError, match="is no archive: no commit in its log has the progress"):
        archive(spark, job(cluster, tmp_path))


def test_the_command_says_the_format_once(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    send(cluster.name_server, "orders", range(30))

    def told(*words: str) -> dict[str, int]:
        command = [
            "pipeline",
            "archive",
            str(tmp_path),
            *words,
            "--json",
            "-n",
            cluster.name_server,
        ]
        done = CliRunner().invoke(main, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        answer: dict[str, int] = json.loads(done.stdout)
        return answer

    assert told("-t", "orders", "--format", "delta")["rows"] == 30
    assert (tmp_path / "_delta_log").is_dir()
    send(cluster.name_server, "orders", range(30, 60))
    assert told("-t", "orders")["rows_in_all"] == 60
    assert told("--compact")["files_after"] == 1
