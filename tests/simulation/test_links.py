"""Whatever happens between the hosts, nothing acknowledged is lost, and all is well soon after the
network is.
"""

from __future__ import annotations

from itertools import combinations

from tests.simulation.cluster import CONSUMER, NAME_SERVER, PRODUCER, Cluster
from tests.simulation.network import LinkQuality

MASTER, SLAVE = "sync-master", "slave"


def some_link(cluster: Cluster) -> tuple[str, str]:
    """Two hosts that talk to each other."""
    clients = [PRODUCER, CONSUMER]
    talking = [pair for pair in combinations(cluster.names, 2) if not set(pair) <= set(clients)]
    pair = list(cluster.chance.choice(talking))
    cluster.chance.shuffle(pair)
    return pair[0], pair[1]


def check_after_healing(cluster: Cluster) -> None:
    cluster.settle()
    cluster.check_everything()
    assert not cluster.wiped


def test_connections_are_reset_again_and_again(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(80)
        for _ in range(10):
            cluster.run_for_up_to(0.4)
            cluster.cut(*some_link(cluster))
        check_after_healing(cluster)


def test_connections_are_half_open(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(60)
        for _ in range(2):
            cluster.run_for_up_to(0.5)
            cluster.half_open(*some_link(cluster))
        cluster.run_for_up_to(30)
        check_after_healing(cluster)


def test_hosts_do_not_reach_each_other_for_a_while(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(60)
        cluster.run_for_up_to(1)
        cluster.partition(*some_link(cluster), one_way=cluster.chance.random() < 0.5)
        cluster.run_for_up_to(60)
        check_after_healing(cluster)


def test_a_host_is_reached_by_nobody_for_a_while(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(60)
        cluster.run_for_up_to(1)
        cluster.isolate(cluster.chance.choice((MASTER, SLAVE, NAME_SERVER, CONSUMER)))
        cluster.run_for_up_to(60)
        check_after_healing(cluster)


def test_packets_are_slow_small_and_few(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.slow_down(LinkQuality((0.01, 0.5), 0.1, (0.5, 4.0), split_chance=0.9, window=4_096))
        cluster.send(40)
        cluster.run_for_up_to(20)
        check_after_healing(cluster)
