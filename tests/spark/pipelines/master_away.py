"""An archive while a master dies, its slave lags, and the master comes back; its drivers are killed
as they write.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from roquet import PullConsumer
from roquet.spark._options.ranges import MasterAway
from roquet.spark.pipelines.archive.backend import Archived
from roquet.spark.pipelines.archive.job import Archive, archive, read_archive
from roquet.spark.pipelines.archive.sources import Topics
from tests.interop.couples import Couple, Maker
from tests.interop.processes import Program
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer
from tests.spark.pipelines.conftest import send

SECONDS: Final = 300
Place = tuple[str, str, int, int, str]
"""Topic, broker, queue, offset, and the MD5 of the body."""


@dataclass(frozen=True)
class Job:
    """An archive of one format; `options` of each run are given to it."""

    spark: SparkSession
    name_server: str
    folder: Path
    file_format: str

    def run(self, *topics: str, **options: str) -> Archived:
        source = Topics(
            self.name_server, topics, options={"noProgressTimeoutMs": "2000", **options}
        )
        return archive(self.spark, Archive(source, str(self.folder), self.file_format))

    def killed(self, moment: str, *topics: str) -> None:
        """A run that ends with kill -9 at that moment."""
        words = [self.name_server, str(self.folder), self.file_format, moment, *topics]
        with Program("killed-archive") as driver:
            command = [
                "setsid",
                sys.executable,
                "-m",
                "tests.spark.pipelines.killed_archive",
                *words,
            ]
            driver.launch(command, {"PYTHONPATH": os.pathsep.join(sys.path)})
            assert driver.wait_end(SECONDS) == -signal.SIGKILL, driver.log()[-4000:]

    def places(self) -> Counter[Place]:
        if not any(self.folder.rglob("*.json")):
            return Counter()  # no run has come to its commit
        rows = read_archive(self.spark, str(self.folder)).select(
            "topic", "brokerName", "queueId", "queueOffset", f.md5("body")
        )
        return Counter(tuple(row) for row in rows.collect())


def places_of(name_server: str, topics: Sequence[str]) -> Counter[Place]:
    """Of all that the masters have, read with the plain client."""

    async def reading() -> Counter[Place]:
        found: Counter[Place] = Counter()
        async with PullConsumer(name_server, read_from="master") as consumer:
            for topic in topics:
                for queue in await consumer.queues(topic):
                    at, end = (
                        max(await consumer.min_offset(queue), 0),
                        await consumer.max_offset(queue),
                    )
                    while at < end:
                        pulled = await consumer.pull(queue, at)
                        for message in pulled.messages:
                            md5 = hashlib.md5(message.body).hexdigest()
                            found[
                                topic, queue.broker_name, queue.queue_id, message.queue_offset, md5
                            ] += 1
                        at = pulled.next_offset
        return found

    return asyncio.run(reading())


def the_master_dies_and_comes_back(spark: SparkSession, folder: Path, file_format: str) -> None:
    with (
        RoquetNameServer() as names,
        Couple(names.address, Maker.OURS, Maker.OURS, "ASYNC_MASTER") as couple,
    ):
        job = Job(spark, names.address, folder, file_format)
        couple.master.start()
        for topic in ("orders", "late"):
            couple.create_topic(topic, 4)
        couple.slave.start()
        for topic in ("orders", "late"):
            couple.await_topic_at_slave(topic)
        send(names.address, "orders", range(1000))
        send(names.address, "late", range(300))
        couple.await_same()
        lag_behind(couple)
        send(names.address, "orders", range(1000, 2000))
        for moment in ("written", "before-state", "within"):
            job.killed(moment, "orders")
            assert max(job.places().values(), default=1) == 1
        assert job.run("orders").rows_in_all == 2000

        couple.master.kill()
        for _ in range(2):
            assert job.run("orders", failOnDataLoss="false").rows_in_all == 2000, (
                "the slave is not believed"
            )
        with pytest.raises(MasterAway, match="only a slave answered, which may lag"):
            job.run("orders")
        job.killed("within", "orders", "late")
        assert job.run("orders", "late", failOnDataLoss="false").rows_in_all == 2300, (
            "what the slave has is added"
        )

        follow_again(couple)
        send(names.address, "late", range(300, 400))
        assert job.run("orders", "late").rows_in_all == 2400
        assert job.places() == places_of(names.address, ("orders", "late"))


def lag_behind(couple: Couple) -> None:
    """The slave serves what it has, and gets no more."""
    assert isinstance(couple.slave, RoquetBroker)
    couple.slave.stop()
    couple.slave.properties["haMasterAddress"] = "127.0.0.1:1"
    couple.slave.start()


def follow_again(couple: Couple) -> None:
    """Both run, and the slave has all that its master has."""
    assert isinstance(couple.slave, RoquetBroker)
    couple.slave.stop()
    del couple.slave.properties["haMasterAddress"]
    couple.master.start()
    couple.slave.start()
    couple.await_same()
