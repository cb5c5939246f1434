"""One trouble after the other, each of any kind, the next as soon as the cluster has recovered from
the last.
"""

from __future__ import annotations

import pytest

from roquet.broker.config.store import FlushDisk
from tests.simulation.cluster import Cluster
from tests.simulation.troubles import (
    MASTER,
    REPLACING,
    SLAVE,
    TROUBLES,
    crash_the_master,
    go_through,
    some_brokers,
)


@pytest.mark.also_seeds(
    964
)  # an index file made after the clock was set back had a name in front of the one before
@pytest.mark.shares_histories(0, 4)
def test_troubles_that_lose_no_bytes_of_the_master(seed: int) -> None:
    with Cluster(seed, *some_brokers(seed)) as cluster:
        go_through(cluster, TROUBLES)
        assert not cluster.wiped


@pytest.mark.also_seeds(
    1325
)  # the simulated network itself: what came behind a reset that was lost, came
@pytest.mark.shares_histories(1, 4)
def test_troubles_of_all_kinds_with_every_send_synced(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH) as cluster:
        go_through(cluster, (*TROUBLES, crash_the_master, crash_the_master))
        assert not cluster.wiped


@pytest.mark.shares_histories(2, 4)
@pytest.mark.also_seeds(
    20
)  # a consumer got what only the former master had, and passed its place at the new one
@pytest.mark.also_seeds(
    414
)  # the simulated drive itself: a sync that ended late brought an older page
def test_masters_are_replaced_between_and_amid_troubles_with_every_send_synced(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH) as cluster:
        go_through(cluster, REPLACING)


@pytest.mark.shares_histories(3, 4)
def test_masters_are_replaced_between_and_amid_troubles_with_nothing_synced(seed: int) -> None:
    """What was acknowledged is in the memory of the slave that takes over."""
    with Cluster(seed, *some_brokers(seed)) as cluster:
        go_through(cluster, REPLACING)
