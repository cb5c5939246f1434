"""A slave that ends takes nothing with it, and has everything again soon after it is back."""

from __future__ import annotations

import pytest

from tests.simulation.cluster import Cluster

MASTER, SLAVE, OTHER = "sync-master", "slave", "slave-2"


def test_a_killed_slave_comes_back_and_catches_up(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(60)
        cluster.run_for_up_to(1.5)
        cluster.kill(SLAVE)
        cluster.run_for_up_to(10)
        cluster.restart(SLAVE)
        cluster.send(20)
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped


def test_a_slave_that_lost_power_asks_again_for_what_it_lost(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(60)
        cluster.run_for_up_to(1.5)
        cluster.crash(SLAVE, silently=cluster.chance.random() < 0.5)
        cluster.run_for_up_to(30)
        cluster.restart(SLAVE)
        cluster.send(20)
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped


def test_the_power_of_a_slave_may_fail_at_any_change_to_its_drive(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.lose_power_soon(SLAVE)
        cluster.send(40)
        cluster.run_for(1.5)
        cluster.lose_power_by_now(SLAVE)
        cluster.start(SLAVE)
        cluster.lose_power_soon(SLAVE, changes_max=12)
        cluster.run_for(1.5)
        cluster.lose_power_by_now(SLAVE)
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped


@pytest.mark.also_seeds(6, 17)  # batches that were larger than a log file
def test_with_a_second_slave_sends_go_on_being_acknowledged(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE, OTHER) as cluster:
        cluster.send(40)
        cluster.run_for_up_to(1)
        cluster.kill(cluster.chance.choice((SLAVE, OTHER)))
        cluster.wait_for_answers()
        before = cluster.acknowledged()
        cluster.produce(20)
        assert len(cluster.acknowledged()) == len(before) + 20
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped


@pytest.mark.also_seeds(1)  # the empty slave's report acknowledged a send from before its copy
def test_an_empty_slave_begins_with_the_last_file(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE, OTHER) as cluster:
        cluster.produce(40)
        cluster.wipe(OTHER)
        cluster.send(30)
        cluster.run_for_up_to(1)
        cluster.restart(OTHER)
        cluster.settle()
        cluster.check_everything()
        assert (
            cluster.broker(OTHER).store.log.start % cluster.broker(MASTER).store.log.file_size == 0
        )
