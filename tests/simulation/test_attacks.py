"""What once stopped a broker, or cost it messages, comes again and again in all its variants, amid
troubles.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from roquet.broker.config.filter import FilterSettings
from roquet.broker.config.store import FlushDisk
from tests.fuzz.broker.hostile import Hostility
from tests.simulation.bounds import check_settings, keep_within_bounds
from tests.simulation.cluster import Cluster
from tests.simulation.fuzzer import fuzzers_of
from tests.simulation.heavy import HeavyRequests
from tests.simulation.troubles import crash_the_master, cut_a_link, kill_somebody, stop_a_broker

MASTER, SLAVE = "sync-master", "slave"
TROUBLES = (cut_a_link, kill_somebody, stop_a_broker, crash_the_master)
ROUNDS = 3
SECONDS_MAX = 10.0


class Attacks(Hostility):
    """No other requests than these: half messages most of all, which are read again at each
    start.
    """

    def frame(self) -> bytes:
        return self._chance.choice((self.half, self.half, self.attack, self.settings))()


@pytest.mark.shares_histories(40, 60)
def test_attacks_amid_troubles_cost_nobody_a_message(seed: int) -> None:
    cluster = Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH)
    fuzzers = fuzzers_of(cluster, Attacks)
    with cluster:
        keep_within_bounds(cluster)
        for _ in range(ROUNDS):
            fuzzers.come()
            cluster.send(30)
            cluster.run_for_up_to(SECONDS_MAX)
            cluster.chance.choice(TROUBLES)(cluster)
            cluster.send(10)
            cluster.run_for_up_to(SECONDS_MAX)
            fuzzers.come_no_more()
            check_settings(cluster)
            cluster.settle()
        cluster.check_everything()
        assert not cluster.wiped


@pytest.mark.shares_histories(10, 60)
def test_what_would_take_a_broker_long_is_refused(seed: int) -> None:
    cluster = Cluster(seed, MASTER, SLAVE, flush=FlushDisk.SYNC_FLUSH)
    for node in cluster.brokers.values():
        node.config = replace(node.config, filters=FilterSettings(enable_property_filter=True))
    heavy = HeavyRequests(cluster)
    with cluster:
        heavy.come()
        for _ in range(ROUNDS):
            cluster.send(20)
            cluster.run_for_up_to(SECONDS_MAX)
            cluster.chance.choice(TROUBLES)(cluster)
            cluster.settle()
        heavy.come_no_more()
        cluster.check_everything()
        assert heavy.refused > ROUNDS
