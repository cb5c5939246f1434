"""An archive that is kept up batch by batch, and what is left of it when its driver is killed again
and again.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from roquet.dev import Cluster
from roquet.spark.pipelines.archive.folder import STATES
from roquet.spark.pipelines.archive.job import Archive, archive, read_archive
from roquet.spark.pipelines.archive.sources import Topics
from roquet.spark.pipelines.archive.stream import ArchiveTrigger, archive_stream
from tests.interop.processes import Program
from tests.spark.pipelines.conftest import numbers_in, send

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROWS_A_LIFE: Final = 300
ROWS_A_BATCH: Final = 100
SECONDS: Final = 300


def job(cluster: Cluster, folder: Path) -> Archive:
    return Archive(Topics(cluster.name_server, ("orders",)), str(folder))


def test_batches_of_a_bounded_size_follow_each_other_to_where_the_queues_ended_in_the_beginning(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    send(cluster.name_server, "orders", range(100))
    batches = archive_stream(
        spark, job(cluster, tmp_path), ArchiveTrigger(rows_max=40, available_now=True)
    )
    first = next(batches)
    send(cluster.name_server, "orders", range(100, 200))
    others = list(batches)

    assert [first.rows, *(each.rows for each in others)] == [40, 40, 20]
    assert numbers_in(read_archive(spark, str(tmp_path))) == list(range(100))


def test_a_stream_waits_for_what_comes_and_goes_on_where_the_archive_ends(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    send(cluster.name_server, "orders", range(50))
    for life in (1, 2):
        batches = archive_stream(spark, job(cluster, tmp_path), ArchiveTrigger())
        if life == 1:
            assert next(batches).rows == 50
        send(cluster.name_server, "orders", range(life * 50, life * 50 + 50))
        assert next(batches).rows == 50
        batches.close()

    assert numbers_in(read_archive(spark, str(tmp_path))) == list(range(150))


def newest(folder: Path) -> int:
    """The archive's version."""
    return max((int(path.stem) for path in (folder / STATES).glob("[0-9]*.json")), default=0)


def is_writing(folder: Path, _: int) -> bool:
    """A batch's files are on their way in."""
    return any((folder / STATES).glob("staged-*/_temporary/0/_temporary/*"))


def has_added(folder: Path, version: int) -> bool:
    """A batch's state is there, perhaps not all of its files."""
    return newest(folder) > version


@pytest.mark.process
def test_each_message_is_there_once_although_the_stream_s_driver_was_killed(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    folder, sent = tmp_path / "archive", 0
    for moment in (is_writing, has_added):
        send(cluster.name_server, "orders", range(sent, sent + ROWS_A_LIFE))
        sent += ROWS_A_LIFE
        with Program("archive-stream") as stream:
            stream.launch(
                ["setsid", *command(cluster, folder)], {"PYTHONPATH": os.pathsep.join(sys.path)}
            )
            try:
                stream.wait_ready(partial(moment, folder, newest(folder)), moment.__name__, SECONDS)
            finally:
                os.killpg(stream.pid, signal.SIGKILL)
    assert newest(folder), "a batch was added"

    assert archive(spark, job(cluster, folder)).rows_in_all == sent

    assert numbers_in(read_archive(spark, str(folder))) == list(range(sent))
    assert numbers_in(spark.read.parquet(str(folder))) == list(range(sent))


def command(cluster: Cluster, folder: Path) -> list[str]:
    """A stream in small batches, in a driver of its own."""
    at = ["-n", cluster.name_server, "--master", "local[2]", "--conf", "spark.driver.memory=1g"]
    program = [
        sys.executable,
        "-m",
        "roquet.cli.main",
        "pipeline",
        "archive",
        str(folder),
        "-t",
        "orders",
        *at,
    ]
    return [*program, "--stream", "--trigger", "0.1s", "--max-rows", str(ROWS_A_BATCH)]
