"""Hostile requests of every code among honest clients and amid troubles: nobody else loses a
message or an answer.
"""

from __future__ import annotations

import pytest

from roquet.broker.config.store import FlushDisk
from tests.simulation.cluster import Cluster
from tests.simulation.fuzzer import Fuzzers, fuzzers_of
from tests.simulation.troubles import (
    NO_DEATHS,
    crash_a_slave,
    crash_the_master,
    kill_somebody,
    stop_a_broker,
)

MASTER, SLAVE = "sync-master", "slave"
SECONDS_MAX = 20.0
ROUNDS = 3


def cluster_with_fuzzers(seed: int) -> tuple[Cluster, Fuzzers]:
    cluster = Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH)
    return cluster, fuzzers_of(cluster)


@pytest.mark.shares_histories(0, 60)
def test_honest_clients_are_answered_beside_hostile_ones(seed: int) -> None:
    cluster, fuzzers = cluster_with_fuzzers(seed)
    with cluster:
        fuzzers.come()
        for _ in range(ROUNDS):
            cluster.send(40)
            cluster.run_for(SECONDS_MAX)
            assert not cluster.producer.pending
        assert not cluster.producer.unsure, "every send was acknowledged"
        fuzzers.come_no_more()
        cluster.settle()
        cluster.check_everything()
        assert fuzzers.sent > 300
        assert fuzzers.answered


@pytest.mark.shares_histories(20, 60)
def test_hostile_clients_come_amid_troubles(seed: int) -> None:
    cluster, fuzzers = cluster_with_fuzzers(seed)
    troubles = (*NO_DEATHS, kill_somebody, stop_a_broker, crash_a_slave, crash_the_master)
    with cluster:
        fuzzers.come()
        for _ in range(ROUNDS):
            cluster.send(30)
            cluster.run_for_up_to(0.5)
            trouble = cluster.chance.choice(troubles)
            cluster.sim.note("trouble", trouble.__name__)
            trouble(cluster)
            cluster.send(10)
            cluster.run_for_up_to(SECONDS_MAX)
            cluster.settle()
        fuzzers.come_no_more()
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped
