"""The group gets every message at least once, whoever of it comes and goes."""

from __future__ import annotations

import pytest

from roquet.broker.config.store import FlushDisk
from tests.simulation.cluster import CONSUMER, Cluster

MASTER, SLAVE = "sync-master", "slave"
AT_ONCE_S = 1.5
"""More than the longest delays of drive and network together, less than the broker's next look at
held pulls.
"""


@pytest.mark.parametrize("flush", FlushDisk)
def test_a_waiting_consumer_gets_a_message_at_once(seed: int, flush: FlushDisk) -> None:
    with Cluster(seed, MASTER, SLAVE, flush=flush) as cluster:
        before = cluster.acknowledged()
        cluster.produce(60)
        cluster.settle()
        acknowledged_s, received_s = (
            cluster.producer.acknowledged_s,
            cluster.consumers[CONSUMER].received_s,
        )
        assert (
            max(received_s[key] - acknowledged_s[key] for key in cluster.acknowledged() - before)
            < AT_ONCE_S
        )


def test_a_killed_consumer_goes_on_where_it_was(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(60)
        cluster.run_for_up_to(1.5)
        cluster.kill(CONSUMER)
        cluster.run_for_up_to(10)
        cluster.start(CONSUMER)
        cluster.settle()
        cluster.check_everything()


def test_members_share_what_a_killed_one_leaves(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE, consumers=3) as cluster:
        cluster.send(60)
        cluster.run_for_up_to(1.5)
        name = cluster.chance.choice(list(cluster.consumers))
        cluster.kill(name)
        cluster.wait_for_answers()
        cluster.wait_until_all_received()
        cluster.start(name)
        cluster.send(20)
        cluster.settle()
        cluster.check_everything()


def test_consumers_go_on_at_the_slave_while_the_master_is_down(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE, consumers=2) as cluster:
        cluster.send(60)
        cluster.run_for_up_to(1.5)
        cluster.kill(MASTER)
        cluster.kill(CONSUMER)
        cluster.start(CONSUMER)
        cluster.wait_for_answers()
        cluster.wait_until_all_received()
        cluster.restart(MASTER)
        cluster.send(20)
        cluster.settle()
        cluster.check_everything()
