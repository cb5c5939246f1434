"""Without a name server everything goes on that knows its way; with a new one, everything else
does, too.
"""

from __future__ import annotations

from tests.simulation.cluster import NAME_SERVER, Cluster

MASTER, SLAVE = "sync-master", "slave"


def test_sends_are_acknowledged_while_the_name_server_is_down(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(30)
        cluster.run_for_up_to(0.5)
        cluster.kill(NAME_SERVER)
        cluster.run_for_up_to(40)
        before = cluster.acknowledged()
        cluster.produce(20)
        assert len(cluster.acknowledged()) >= len(before) + 20
        cluster.settle()
        cluster.check_everything()


def test_a_master_that_came_back_without_name_server_is_found_once_there_is_one(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(30)
        cluster.run_for_up_to(0.5)
        cluster.kill(NAME_SERVER)
        cluster.kill(MASTER)
        cluster.run_for_up_to(10)
        cluster.restart(MASTER)
        cluster.run_for_up_to(10)
        cluster.settle()
        cluster.produce(10)
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped
