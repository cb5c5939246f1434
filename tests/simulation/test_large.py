"""Records over many pages, and processes that end in the middle of one: what is whole is kept, the
rest is cut.
"""

from __future__ import annotations

import pytest

from roquet.broker.config.store import FlushDisk
from tests.simulation.cluster import Cluster
from tests.simulation.large import leave_torn_records, send_large_messages
from tests.simulation.troubles import TROUBLES, crash_the_master, go_through

MASTER, SLAVE = "sync-master", "slave"
ROUNDS = 4
RECOVERY_S = 5.0


def cluster_of_large_messages(seed: int) -> Cluster:
    cluster = Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH)
    send_large_messages(cluster)
    return cluster


@pytest.mark.shares_histories(26, 30)
def test_troubles_with_records_over_many_pages(seed: int) -> None:
    with cluster_of_large_messages(seed) as cluster:
        go_through(cluster, (*TROUBLES, crash_the_master, crash_the_master))
        assert not cluster.wiped


@pytest.mark.also_seeds(618)  # a master ended in a write that was meant for an earlier round
@pytest.mark.shares_histories(18, 30)
def test_processes_end_in_the_middle_of_a_record(seed: int) -> None:
    """Killed, or with the power, while some of its pages are written and others are not; and once
    more while what is left of it is erased.
    """
    with cluster_of_large_messages(seed) as cluster:
        for _ in range(ROUNDS):
            name, chance = cluster.chance.choice(list(cluster.brokers)), cluster.chance
            host = cluster.host(name)
            host.drive.end_in_a_write(chance.randrange(20), chance.choice((host.kill, host.crash)))
            cluster.send(20)
            cluster.run_for_up_to(3)
            host.drive.end_in_a_write(
                None, host.kill
            )  # or it ends in a later round, beside another one
            if host.is_running:
                host.kill()
                leave_torn_records(cluster, name)
            host.drive.end_in_an_erasure(
                chance.randrange(20), chance.choice((host.kill, host.crash))
            )
            cluster.start(name)
            cluster.run_for(RECOVERY_S)
            host.drive.end_in_an_erasure(None, host.kill)
            if (
                not host.is_running
            ):  # it ended while it saved what it cuts, or erased that, or caught up
                cluster.start(name)
            cluster.wait_until_serving(name)
            cluster.send(10)
            cluster.run_for_up_to(10)
            cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped
