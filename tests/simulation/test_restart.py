"""An orderly stop is the best there is: the next start finds everything as it was left."""

from __future__ import annotations

from tests.simulation.cluster import Cluster

MASTER, SLAVE = "sync-master", "slave"


def test_brokers_are_restarted_one_after_the_other(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        for name in cluster.chance.choice(((MASTER, SLAVE), (SLAVE, MASTER), (MASTER, MASTER))):
            cluster.send(30)
            cluster.run_for_up_to(1)
            cluster.stop(name)
            cluster.run_for_up_to(10)
            cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped


def test_the_whole_cluster_is_stopped_and_started(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.produce(30)
        cluster.settle()
        names = [MASTER, SLAVE]
        cluster.chance.shuffle(names)
        for name in names:
            cluster.stop(name)
        for name in names:
            cluster.restart(name)
        cluster.settle()
        cluster.check_everything()
