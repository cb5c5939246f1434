"""The power fails while old files go: of what is kept, no message is without its place in a queue."""

from __future__ import annotations

import pytest

from roquet.broker.store_settings import FlushDisk
from tests.simulation.cluster import Cluster
from tests.simulation.retention import PASS_S, keep_for

MASTER = "async-master"
CRASHES = 3


@pytest.mark.shares_histories(45, 60)
def test_the_power_fails_while_old_files_go(seed: int) -> None:
    cluster = Cluster(seed, MASTER, flush=FlushDisk.SYNC_FLUSH)
    keep_for(cluster.brokers.values(), cluster.sim.chance("retention"), hours=0)
    with cluster:
        for _ in range(CRASHES):
            cluster.run_for(cluster.chance.uniform(0, PASS_S))
            cluster.send(150)
            cluster.run_for_up_to(20)
            cluster.crash(MASTER)
            cluster.settle()
        cluster.run_for(PASS_S)  # each of these lives may have been too short for a second look
        cluster.check_everything()
        assert cluster.sets[0].deleted_to, "files went"
