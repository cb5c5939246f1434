"""Slow, full and failing drives hold up answers; they do not make them wrong."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from roquet.broker.config.store import FlushDisk, SyncFailureAction
from tests.simulation.cluster import Cluster
from tests.simulation.disk import DriveSpeed

MASTER, SLAVE = "sync-master", "slave"
CHECKPOINT_MS = 300
TROUBLES = (errno.ENOSPC, errno.EIO)


def test_a_slow_drive_delays_answers_or_has_them_say_so(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH) as cluster:
        name = cluster.chance.choice((MASTER, SLAVE))
        cluster.host(name).drive.speed = DriveSpeed((0.5, 8.0))
        cluster.send(40)
        cluster.run_for_up_to(20)
        cluster.crash(name)
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped


def test_a_drive_that_fails_for_a_while(seed: int) -> None:
    """What it did not take is gone with the power, however often it was asked for a sync since."""
    with Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH) as cluster:
        cluster.send(80)
        cluster.run_for_up_to(0.5)
        name = cluster.chance.choice((MASTER, SLAVE))
        cluster.break_drive(name, cluster.chance.choice(TROUBLES))
        cluster.run_for_up_to(20)
        cluster.heal()
        cluster.send(20)
        cluster.run_for_up_to(20)
        if cluster.host(name).is_running:
            cluster.crash(name)
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped


def test_a_sync_that_fails_while_another_one_goes_well(seed: int) -> None:
    """That other one makes nothing durable of what the first was to bring, and nobody is shown what
    the drive lacks.
    """
    cluster = Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH)
    action = cluster.chance.choice((SyncFailureAction.READ_ONLY, SyncFailureAction.STOP))
    node = cluster.master
    settings = replace(
        node.config.store,
        flush_consume_queue_thorough_interval=CHECKPOINT_MS,
        sync_failure_action=action,
    )
    node.config = replace(node.config, store=settings)
    with cluster:
        drive = node.host.drive
        drive.speed = DriveSpeed((0.02, 0.2))
        drive.fails_beside_another = True
        while drive.fails_beside_another:
            cluster.produce(10)
        cluster.run_for_up_to(10)
        if node.host.is_running:
            cluster.crash(MASTER)
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped


@pytest.mark.shares_histories(5, 30)
def test_a_broker_starts_on_a_drive_that_is_full(seed: int) -> None:
    """What it has is served, what it lacks room for is made up for when there is some."""
    with Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH) as cluster:
        cluster.send(60)
        cluster.run_for_up_to(2)
        name = cluster.chance.choice((MASTER, SLAVE))
        cluster.chance.choice((cluster.kill, cluster.crash))(name)
        cluster.break_drive(name, errno.ENOSPC)
        cluster.restart(name)
        cluster.run_for_up_to(20)
        cluster.readable_from(name)
        cluster.settle()
        cluster.wait_until_dispatched()
        cluster.check_everything()
        assert not cluster.wiped
