"""Jobs of `roquet.spark.pipelines` on Apache's 4.9.7 brokers: a pair of them audited, archived, and
watched.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet.spark.pipelines.archive.job import Archive, archive, read_archive
from roquet.spark.pipelines.archive.sources import StoredTopics, Topics
from roquet.spark.pipelines.audit.job import Audit, Brokers, audit
from roquet.spark.pipelines.lag import Lag, lag
from tests.interop.apache import ApacheNameServer, require_java
from tests.interop.couples import SEND_OK, Couple, Maker
from tests.spark.conftest import spark

__all__ = ["spark"]

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.long]

MESSAGES = 120


def test_jobs_read_apache_s_master_and_slave(spark: SparkSession, tmp_path: Path) -> None:
    require_java()
    with (
        ApacheNameServer() as names,
        Couple(names.address, Maker.APACHE, Maker.APACHE, "SYNC_MASTER") as couple,
    ):
        couple.master.start()
        couple.slave.start()
        couple.await_follower()
        assert couple.send("Copied", MESSAGES) == {SEND_OK}
        couple.await_same()
        couple.await_topic_at_slave("Copied")

        report = audit(
            spark,
            Audit(Brokers(names.address, "master"), Brokers(names.address, "slave"), ("Copied",)),
        )
        live = Archive(Topics(names.address, ("Copied",)), str(tmp_path / "archive"))
        done = archive(spark, live)
        sampled = lag(spark, Lag(names.address, str(tmp_path / "lag"), for_s=0.1))

        assert report.is_same, report.to_json()
        assert sum(queue.right_rows for queue in report.queues) == done.rows == MESSAGES
        assert read_archive(spark, str(tmp_path / "archive")).count() == MESSAGES
        assert (sampled.samples, sampled.failed) == (1, 0)

        files = StoredTopics((str(couple.slave.store_dir),), (couple.name,), ("Copied",))
        stored = replace(live, source=files)
        assert archive(spark, stored).rows == 0, "the slave's files have what its master told"
        assert couple.send("Copied", MESSAGES) == {SEND_OK}
        couple.await_same()
        assert archive(spark, stored).rows == MESSAGES
        assert archive(spark, live).rows == 0, "the master has no more"
