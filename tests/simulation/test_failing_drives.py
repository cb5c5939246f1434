"""Drives that refuse to delete, rename, make, list or read files at times: answers are late or
refused, never wrong.
"""

from __future__ import annotations

import errno
from typing import Final

import pytest

from roquet.broker.config.store import FlushDisk
from tests.simulation.cluster import Cluster
from tests.simulation.disk import Flaky
from tests.simulation.passing_topics import PassingTopics
from tests.simulation.retention import PASS_S, keep_for
from tests.simulation.troubles import TROUBLES, Trouble, crash_the_master, some_brokers

MASTER, SLAVE = "sync-master", "slave"
ROUNDS: Final = 3
CHANCES: Final = (0.1, 0.5, 1.0)
KINDS: Final = {
    "deletes": (frozenset({"delete"}), (errno.EACCES, errno.EBUSY, errno.EIO, errno.EPERM)),
    "renames": (frozenset({"rename"}), (errno.EACCES, errno.EBUSY, errno.EIO, errno.ENOSPC)),
    "folders": (frozenset({"create", "rename", "delete"}), (errno.ENOSPC, errno.EACCES)),
    "reads": (frozenset({"pread"}), (errno.EIO,)),
    "looks": (frozenset({"read"}), (errno.EIO, errno.EACCES)),
    "anything": (frozenset({"delete", "rename", "create", "pread", "read"}), (errno.EIO,)),
}


def let_a_drive_fail_at_times(cluster: Cluster) -> str:
    """One of the brokers'; its name."""
    name = cluster.chance.choice(list(cluster.brokers))
    kind = cluster.chance.choice(list(KINDS))
    cluster.sim.note("flaky", name, kind)
    cluster.host(name).drive.flaky = Flaky(*KINDS[kind], cluster.chance.choice(CHANCES))
    return name


def live_with_it(cluster: Cluster) -> None:
    """Everything goes on, on a drive that fails."""
    let_a_drive_fail_at_times(cluster)


def end_with_it(cluster: Cluster) -> None:
    """The broker on a drive that fails ends, and starts on it again, if it can."""
    name = let_a_drive_fail_at_times(cluster)
    cluster.run_for_up_to(10)
    if cluster.host(name).is_running:
        cluster.chance.choice((cluster.kill, cluster.crash))(name)
    cluster.run_for_up_to(3)
    if not cluster.host(name).is_running:
        cluster.start(name)


def start_with_it(cluster: Cluster) -> None:
    """A broker that has ended well starts on a drive that fails."""
    name = cluster.chance.choice(list(cluster.brokers))
    cluster.stop(name)
    let_a_drive_fail_at_times(cluster)
    cluster.start(name)


def amid_another_trouble(cluster: Cluster) -> None:
    let_a_drive_fail_at_times(cluster)
    cluster.run_for_up_to(5)
    running = all(cluster.host(name).is_running for name in cluster.brokers)
    if running:
        cluster.chance.choice(
            [trouble for trouble in TROUBLES if trouble.__name__ != "stop_a_broker"]
        )(cluster)


FAILING: Final[tuple[Trouble, ...]] = (
    live_with_it,
    live_with_it,
    end_with_it,
    start_with_it,
    amid_another_trouble,
)


def go_through(cluster: Cluster, troubles: tuple[Trouble, ...], seconds_max: float = 30.0) -> None:
    topics = PassingTopics(cluster)
    for _ in range(ROUNDS):
        topics.come_and_go()
        cluster.send(40)
        cluster.run_for_up_to(seconds_max / 10)
        trouble = cluster.chance.choice(troubles)
        cluster.sim.note("trouble", trouble.__name__)
        trouble(cluster)
        cluster.send(40)
        cluster.run_for_up_to(seconds_max)
        cluster.heal()
        topics.end()
        cluster.settle()
        topics.check(are_trimmed=False)
    cluster.run_for(PASS_S)
    topics.check()
    cluster.check_everything()


@pytest.mark.also_seeds(
    180
)  # a queue that could not be deleted whole went on lower than on the slave
@pytest.mark.also_seeds(760)  # a queue could not be read, and then its folder could not be listed
@pytest.mark.shares_histories(0, 20)
def test_drives_that_fail_at_times_while_topics_come_and_go(seed: int) -> None:
    with Cluster(seed, *some_brokers(seed)) as cluster:
        go_through(cluster, FAILING)


@pytest.mark.also_seeds(1370)  # looked at before the pass that trims a queue that could not be read
@pytest.mark.also_seeds(590)  # a queue that a start could not read, without records, began again
@pytest.mark.also_seeds(1470)  # a slave took no record into such a queue
@pytest.mark.shares_histories(10, 20)
def test_drives_that_fail_at_times_while_old_files_go(seed: int) -> None:
    cluster = Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH)
    keep_for(cluster.brokers.values(), cluster.sim.chance("retention"), hours=0)
    with cluster:
        go_through(cluster, (*FAILING, crash_the_master), PASS_S)
