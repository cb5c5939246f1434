"""An executor's JVM killed with -9, on a standalone cluster: the job's result has each message
once.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from roquet.spark.pipelines.archive.folder import STATES, ArchiveFolder
from tests.interop.processes import Program, wait_until
from tests.interop.roquet_cluster import ON_ANY_DRIVE, RoquetBroker, RoquetNameServer, create_topic
from tests.spark.pipelines.conftest import send
from tests.spark.standalone.killed_job import ROWS_SENT
from tests.spark.standalone.spark_cluster import SparkCluster
from tests.spark.written import numbers, stored

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.long]

COUNT = 1_000
QUEUES = 4
SECONDS = 300


@pytest.fixture
def name_server() -> Iterator[str]:
    """With a broker that holds numbers, and a topic that is to have some."""
    with ExitStack() as stack:
        names = stack.enter_context(RoquetNameServer())
        broker = stack.enter_context(RoquetBroker(names.address, properties=ON_ANY_DRIVE))
        for topic in ("Killed", "Killed-sent"):
            create_topic(broker, topic, QUEUES)
        send(names.address, "Killed", range(COUNT))
        yield names.address


def test_each_message_is_there_once_although_executors_were_killed(
    name_server: str, tmp_path: Path
) -> None:
    def written() -> int:
        return len(list((tmp_path / STATES).glob("staged-*/_temporary/0/task_*")))

    def sent() -> int:
        return len(stored(name_server, "Killed-sent"))

    with SparkCluster() as cluster, Program("killed-job") as job:
        words = [
            "-m",
            "tests.spark.standalone.killed_job",
            cluster.url,
            name_server,
            "Killed",
            str(tmp_path),
        ]
        job.launch([sys.executable, *words], {"PYTHONPATH": os.pathsep.join(sys.path)})
        job.wait_ready(lambda: written() > QUEUES, "some tasks of the archive to be done", SECONDS)
        cluster.kill_executor()
        wait_until(lambda: cluster.executors_killed == 1, "the first executor to be missed")
        job.wait_ready(lambda: sent() > ROWS_SENT // 10, "some rows to be sent", SECONDS)
        cluster.kill_executor()
        assert job.wait_end(SECONDS) == 0, job.log()[-4000:]
        assert cluster.executors_killed == 2

    folder = ArchiveFolder(tmp_path)
    bodies = [
        body
        for name in folder.state().files
        for body in pq.read_table(folder.path / name)["body"].to_pylist()
    ]
    assert Counter(map(int, bodies)) == Counter(range(COUNT))
    assert Counter(numbers(stored(name_server, "Killed-sent"))) == Counter(range(ROWS_SENT))
