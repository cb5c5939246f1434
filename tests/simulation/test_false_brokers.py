"""Anybody may register as a master: the name server believes whoever came last, and that is soon
the true one again.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.cluster import Cluster
from tests.simulation.false_brokers import FalseBrokers
from tests.simulation.routes import check_all_are_found_again

MASTER, SLAVE = "sync-master", "slave"
ROUNDS: Final = 3
STAYS_S_MAX: Final = 60.0


@pytest.mark.shares_histories(20, 60)
def test_a_master_takes_its_place_back_from_false_ones(seed: int) -> None:
    with Cluster(seed, MASTER, SLAVE) as cluster:
        false_brokers = FalseBrokers(cluster)
        for _ in range(ROUNDS):
            cluster.send(30)
            cluster.run_for_up_to(1)
            is_away = cluster.chance.random() < 0.3
            if is_away:
                cluster.kill(MASTER)
            false_brokers.come(STAYS_S_MAX)
            cluster.run_for_up_to(20)
            if is_away:
                cluster.restart(MASTER)
            cluster.settle()
        check_all_are_found_again(cluster)
        cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped
