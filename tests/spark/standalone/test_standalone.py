"""The same jobs on a standalone Spark cluster of several processes: nothing is copied there but
what pip installs.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import roquet
from tests.interop.processes import SEND_MS_MAX
from tests.interop.roquet_cluster import ON_ANY_DRIVE, RoquetBroker, RoquetNameServer
from tests.spark.standalone.spark_cluster import WORKERS, SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.long]

COUNT = 1_000
JOB_S_MAX = 600


NUMBERS = {"count": COUNT, "total": sum(range(COUNT))}


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    """With a broker that holds numbers."""
    with ExitStack() as stack:
        names = stack.enter_context(RoquetNameServer())
        stack.enter_context(RoquetBroker(names.address, properties=ON_ANY_DRIVE))
        asyncio.run(fill(names.address))
        yield names.address


async def fill(name_server: str) -> None:
    async with roquet.Producer(name_server, "group", timeout_ms=SEND_MS_MAX) as producer:
        for topic in ("Cluster", "Connect"):
            for number in range(COUNT):
                await producer.send(topic, b"%d" % number)


def job(*words: str) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.spark.standalone.job", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=JOB_S_MAX, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


async def stored(name_server: str, topic: str) -> int:
    async with roquet.PullConsumer(name_server, group="group") as consumer:
        return sum([await consumer.max_offset(queue) for queue in await consumer.queues(topic)])


def test_a_cluster_of_two_workers_reads_batches_and_streams_and_writes(name_server: str) -> None:
    with SparkCluster() as cluster:
        assert job(cluster.url, name_server, "Cluster") == {"read": NUMBERS, "executors": WORKERS}
    assert asyncio.run(stored(name_server, "Cluster-copied")) == COUNT


def test_so_does_a_server_of_spark_connect(name_server: str) -> None:
    assert job("connect", name_server, "Connect") == {"read": NUMBERS}
    assert asyncio.run(stored(name_server, "Connect-copied")) == COUNT
