"""Masters that never come back as such: a slave takes over, nothing acknowledged is lost, the
former one follows it.
"""

from __future__ import annotations

from typing import Final

import pytest

from roquet.broker.config.store import FlushDisk
from tests.simulation.cluster import CONSUMER, NAME_SERVER, PRODUCER, Cluster

MASTER, SLAVE, OTHER = "sync-master", "slave", "slave-2"
TURNS: Final = 3


# 19: the group had seen what the new master lacks, and missed what came to stand there
# 35: the group's progress, said again to the new master after the old one had not answered, was no
# longer true
@pytest.mark.also_seeds(19, 35)
@pytest.mark.parametrize("flush", FlushDisk)
def test_master_and_slave_change_places_again_and_again(seed: int, flush: FlushDisk) -> None:
    with Cluster(seed, MASTER, SLAVE, flush=flush) as cluster:
        for _ in range(TURNS):
            before = cluster.master.name
            cluster.send(40)
            cluster.run_for_up_to(1.5)
            cluster.end_the_master()
            cluster.run_for_up_to(20)
            name = cluster.take_over()
            assert cluster.acknowledged() <= cluster.readable_from(name)
            cluster.send(20)
            cluster.run_for_up_to(20)
            cluster.settle()
            assert cluster.master.name == name != before
        cluster.check_everything()


def test_of_two_slaves_one_takes_over_and_the_other_follows_it(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE, OTHER, consumers=2) as cluster:
        for _ in range(TURNS):
            cluster.send(40)
            cluster.run_for_up_to(1.5)
            cluster.end_the_master()
            cluster.run_for_up_to(20)
            cluster.take_over()
            cluster.send(20)
            cluster.run_for_up_to(20)
            cluster.settle()
        cluster.check_everything()


@pytest.mark.also_seeds(8)  # a consumer told the new master that it was further than the queue
def test_a_master_that_lives_behind_a_partition_is_passed_over_only_when_it_is_said_to_be_fenced(
    seed: int,
) -> None:
    """It goes on to take messages there, and acknowledges none of them."""
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(40)
        cluster.run_for_up_to(1)
        for name in (SLAVE, NAME_SERVER, CONSUMER):
            cluster.partition(MASTER, name)
        cluster.run_for_up_to(30)
        assert "may live on elsewhere" in cluster.promote(SLAVE)
        assert cluster.master.name == MASTER
        cluster.isolate(MASTER)
        assert not cluster.promote(SLAVE, fenced=True, forced=True)
        cluster.send(40)
        cluster.run_for_up_to(30)
        cluster.settle()
        assert cluster.master.name == SLAVE
        cluster.check_everything()


def test_a_living_master_is_never_passed_over(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(40)
        cluster.run_for_up_to(1)
        cluster.isolate(cluster.chance.choice((NAME_SERVER, PRODUCER)))
        cluster.run_for_up_to(30)
        assert f"the master at {cluster.master.address} answers" in cluster.promote(
            SLAVE, fenced=True, forced=True
        )
        cluster.settle()
        cluster.check_everything()


def test_the_power_may_fail_at_any_change_to_the_drive_while_a_former_master_rejoins(
    seed: int,
) -> None:
    """It has messages that nobody else has, and that no consumer got."""
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(40)
        cluster.run_for_up_to(1)
        for name in (SLAVE, CONSUMER):
            cluster.partition(MASTER, name)
        cluster.run_for_up_to(1)
        cluster.kill(MASTER)
        cluster.heal()
        cluster.take_over()
        cluster.produce(20)
        cluster.rejoin_with_a_power_failure(MASTER)
        cluster.settle()
        cluster.check_everything()


@pytest.mark.also_seeds(1)  # nobody could say that there was another slave
def test_a_slave_that_lacks_what_another_has_acknowledged_is_not_promoted(seed: int) -> None:
    """Unless it is forced; where it cannot find out about the others, it says so."""
    with Cluster(seed, MASTER, SLAVE, OTHER) as cluster:
        cluster.send(40)
        cluster.run_for_up_to(1)
        cluster.partition(MASTER, SLAVE)
        cluster.run_for_up_to(2)
        cluster.kill(MASTER)
        if cluster.chance.random() < 0.5:
            cluster.kill(NAME_SERVER)
        if cluster.chance.random() < 0.5:
            cluster.partition(SLAVE, OTHER)
        if not cluster.promote(SLAVE, fenced=True):
            assert cluster.acknowledged() <= cluster.readable_from(SLAVE)
