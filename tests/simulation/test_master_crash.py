"""A master that ends while it is written to loses nothing that it acknowledged, and neither does
its slave.
"""

from __future__ import annotations

from roquet.broker.config.store import FlushDisk
from tests.simulation import checks
from tests.simulation.cluster import Cluster
from tests.simulation.disk import DriveSpeed

MASTER, SLAVE = "sync-master", "slave"


def make_syncs_slow(cluster: Cluster, name: str) -> None:
    """The slower a drive, the more there is that it does not have yet when the power fails."""
    cluster.host(name).drive.speed = DriveSpeed((0.0002, cluster.chance.choice((0.004, 0.05, 0.3))))


def test_a_killed_master_comes_back_with_everything(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(60)
        cluster.run_for_up_to(1.5)
        cluster.kill(MASTER)
        cluster.run_for_up_to(10)
        assert cluster.acknowledged() <= cluster.readable_from(SLAVE)
        cluster.restart(MASTER)
        cluster.send(20)
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped


def test_a_master_that_syncs_comes_back_from_a_power_failure_with_what_it_acknowledged(
    seed: int,
) -> None:
    with Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH) as cluster:
        make_syncs_slow(cluster, MASTER)
        cluster.send(60)
        cluster.run_for_up_to(1.5)
        cluster.crash(MASTER, silently=cluster.chance.random() < 0.5)
        cluster.run_for_up_to(30)
        assert cluster.acknowledged() <= cluster.readable_from(SLAVE)
        cluster.restart(MASTER)
        assert cluster.acknowledged() <= cluster.readable_from(MASTER)
        cluster.send(20)
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped


def test_a_master_that_syncs_needs_no_slave_for_that(seed: int) -> None:
    with Cluster(seed, "async-master", flush=FlushDisk.SYNC_FLUSH) as cluster:
        for _ in range(2):
            make_syncs_slow(cluster, "async-master")
            cluster.send(40)
            cluster.run_for_up_to(1)
            cluster.crash("async-master")
            cluster.settle()
        cluster.check_everything()


def test_the_power_may_fail_at_any_change_to_the_drive_also_while_recovering(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH) as cluster:
        make_syncs_slow(cluster, MASTER)
        cluster.lose_power_soon(MASTER)
        cluster.send(40)
        cluster.run_for(1.5)
        cluster.lose_power_by_now(MASTER)
        cluster.start(MASTER)
        cluster.lose_power_soon(MASTER, changes_max=12)
        cluster.run_for(1.5)
        cluster.lose_power_by_now(MASTER)
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped


def test_a_master_that_never_comes_back_leaves_everything_to_its_slave(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        cluster.send(60)
        cluster.run_for_up_to(1.5)
        cluster.crash(MASTER, silently=cluster.chance.random() < 0.5)
        cluster.wait_for_answers()
        assert cluster.acknowledged() <= cluster.readable_from(SLAVE)
        cluster.wait_until_all_received()


def test_a_slave_does_not_go_on_from_what_its_master_has_lost(seed: int) -> None:
    """Without SYNC_FLUSH a master may lose what it acknowledged; its slave has it, and must keep it
    apart.
    """
    holds_then_too = (checks.logs_agree_where_they_overlap, checks.queues_agree_with_the_log)
    with Cluster(seed, MASTER, SLAVE, always=holds_then_too) as cluster:
        cluster.send(40)
        cluster.run_for_up_to(1)
        cluster.crash(MASTER)
        cluster.run_for_up_to(5)
        before = cluster.acknowledged()
        cluster.restart(MASTER)
        cluster.send(80)
        cluster.run_for(40)
        assert before <= cluster.readable_from(SLAVE)
