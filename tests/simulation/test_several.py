"""Several masters and several name servers: what ails one of them is no matter of the others."""

from __future__ import annotations

import pytest

from roquet.broker.config.store import FlushDisk
from tests.simulation.cluster import PRODUCER, Cluster
from tests.simulation.routes import check_all_are_found_again, known_addresses
from tests.simulation.troubles import REPLACING, TROUBLES, go_through

MASTER, SLAVE = "sync-master", "slave"
HIDDEN_AFTER_S = 140.0
"""A name server forgets a broker of which it has not heard for 120 s, and looks every 10 s."""


def cluster_of_two(seed: int, flush: FlushDisk = FlushDisk.ASYNC_FLUSH) -> Cluster:
    return Cluster(seed, MASTER, SLAVE, flush=flush, consumers=2, sets=2, name_servers=2)


@pytest.mark.shares_histories(10, 60)
def test_a_master_that_is_down_leaves_all_sends_to_the_other(seed: int) -> None:
    with cluster_of_two(seed) as cluster:
        one, other = cluster.chance.sample(cluster.sets, 2)
        cluster.send(60)
        cluster.run_for_up_to(1.5)
        cluster.kill(one.master.name)
        cluster.wait_for_answers()
        before = len(other.acknowledged)
        cluster.produce(20)
        assert len(other.acknowledged) == before + 20
        assert not cluster.producer.unsure
        cluster.restart(one.master.name)
        cluster.settle()
        check_all_are_found_again(cluster)
        cluster.check_everything()
        assert not cluster.wiped


@pytest.mark.shares_histories(30, 60)
def test_a_name_server_that_comes_back_empty_is_told_of_all_brokers_again(seed: int) -> None:
    with cluster_of_two(seed) as cluster:
        name = cluster.some_name_server()
        cluster.send(60)
        cluster.run_for_up_to(1)
        cluster.crash(name, silently=cluster.chance.random() < 0.5)
        cluster.run_for_up_to(60)
        for consumer in cluster.consumers:
            cluster.kill(consumer)
            cluster.start(consumer)
        cluster.produce(20)
        assert not cluster.producer.unsure
        cluster.wait_until_all_received()
        cluster.restart(name)
        check_all_are_found_again(cluster)
        cluster.settle()
        cluster.check_everything()


@pytest.mark.shares_histories(50, 60)
def test_a_broker_that_one_name_server_does_not_reach_is_found_through_the_other(seed: int) -> None:
    with cluster_of_two(seed) as cluster:
        blind, other = cluster.chance.sample(list(cluster.name_servers), 2)
        hidden = cluster.chance.choice(list(cluster.brokers))
        cluster.partition(hidden, blind)
        cluster.send(40)
        cluster.run_for(HIDDEN_AFTER_S)
        of_hidden = cluster.brokers[hidden].address
        assert of_hidden not in {address for _, _, address in known_addresses(cluster, blind)}
        assert of_hidden in {address for _, _, address in known_addresses(cluster, other)}
        cluster.partition(PRODUCER, blind)
        cluster.produce(20)
        assert not cluster.producer.unsure
        cluster.settle()
        check_all_are_found_again(cluster)
        cluster.check_everything()


@pytest.mark.shares_histories(6, 30)
def test_troubles_of_several_masters_and_name_servers(seed: int) -> None:
    with cluster_of_two(seed) as cluster:
        go_through(cluster, TROUBLES)
        check_all_are_found_again(cluster)
        assert not cluster.wiped


@pytest.mark.shares_histories(8, 30)
def test_masters_of_several_are_replaced_between_and_amid_troubles(seed: int) -> None:
    with cluster_of_two(seed, FlushDisk.SYNC_FLUSH) as cluster:
        go_through(cluster, REPLACING)
        check_all_are_found_again(cluster)
