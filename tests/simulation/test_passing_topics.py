"""A topic that was deleted stays deleted: the power fails right after that, whatever checkpoint was
being made.
"""

from __future__ import annotations

from typing import Final

import pytest

from roquet.broker.config.store import FlushDisk
from tests.simulation.cluster import Cluster
from tests.simulation.disk import DriveSpeed
from tests.simulation.passing_topics import PassingTopics
from tests.simulation.troubles import some_brokers

ROUNDS: Final = 4
SLOW: Final = DriveSpeed((0.02, 0.3))
"""Checkpoints take a while: deletions come amid them."""


@pytest.mark.shares_histories(50, 60)
def test_deleted_topics_stay_deleted_after_a_crash(seed: int) -> None:
    with Cluster(seed, *some_brokers(seed), flush=FlushDisk.SYNC_FLUSH) as cluster:
        topics = PassingTopics(cluster)
        for _ in range(ROUNDS):
            master = cluster.master.name
            cluster.host(master).drive.speed = SLOW
            topics.come_and_go()
            cluster.send(20)
            cluster.run_for_up_to(20)
            topics.end()
            cluster.run_for_up_to(0.5)
            cluster.chance.choice((cluster.kill, cluster.crash))(master)
            cluster.settle()
            topics.check()
        cluster.check_everything()
        assert topics.deletions
