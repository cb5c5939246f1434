"""Records over many pages, and processes that end in the middle of one: what is whole is kept, the rest is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roquet.broker.store_settings import FlushDisk
from tests.simulation.clients import LARGE
from tests.simulation.cluster import Cluster
from tests.simulation.test_chaos import TROUBLES, crash_the_master, go_through
from tests.simulation.torn import leave_torn_records

MASTER, SLAVE = "sync-master", "slave"
ROUNDS = 4
FILE_SIZES = (512 * 1024, 1024 * 1024)
CHUNK_SIZES = (4_096, 32_768, 100_000)


def cluster_of_large_messages(seed: int) -> Cluster:
    """Of one byte to several hundred KiB; some ten fill a file of the log."""
    cluster = Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH)
    chance = cluster.sim.chance("large")
    file_size, chunk_size = chance.choice(FILE_SIZES), chance.choice(CHUNK_SIZES)
    for node in cluster.brokers.values():
        store = replace(node.config.store, mapped_file_size_commit_log=file_size)
        replication = replace(node.config.replication, ha_transfer_batch_size=chunk_size)
        node.config = replace(node.config, store=store, replication=replication)
    cluster.producer.kind = LARGE
    return cluster


@pytest.mark.shares_histories(26, 30)
def test_troubles_with_records_over_many_pages(seed: int) -> None:
    with cluster_of_large_messages(seed) as cluster:
        go_through(cluster, (*TROUBLES, crash_the_master, crash_the_master))
        assert not cluster.wiped


@pytest.mark.shares_histories(18, 30)
def test_processes_end_in_the_middle_of_a_record(seed: int) -> None:
    """Killed, or with the power, while some of its pages are written and others are not."""
    with cluster_of_large_messages(seed) as cluster:
        for _ in range(ROUNDS):
            name, chance = cluster.chance.choice(list(cluster.brokers)), cluster.chance
            host = cluster.host(name)
            host.drive.end_in_a_write(chance.randrange(20), chance.choice((host.kill, host.crash)))
            cluster.send(20)
            cluster.run_for_up_to(3)
            if host.is_running:
                host.kill()
                leave_torn_records(cluster, name)
            cluster.restart(name)
            cluster.send(10)
            cluster.run_for_up_to(10)
            cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped
