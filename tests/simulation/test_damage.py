"""A slave that was sent a damaged record tells of it once, and goes on behind it as soon as there
is a whole one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.simulation.checks import key_at
from tests.simulation.clients import TOPIC
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import STORE

MASTER, SLAVE = "async-master", "slave"
MAGIC_AT: Final = 4
WAITS_S: Final = 120.0
"""With a line for each of its tries it would tell of it hundreds of times."""


@pytest.mark.shares_histories(25, 60)
def test_a_slave_tells_once_of_a_damaged_record_and_goes_on_behind_it(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Cluster(seed, MASTER, SLAVE, always=()) as cluster:
        cluster.kill(SLAVE)
        cluster.produce(1)
        cluster.wait_until_all_received()
        damaged = damage_the_last_record(cluster)
        cluster.start(SLAVE)
        cluster.wait_until_serving(SLAVE)
        cluster.run_for(WAITS_S)
        slave = cluster.broker(SLAVE).store
        assert slave.dispatch.stopped is not None
        told = [record for record in caplog.records if "damaged" in record.getMessage()]
        assert len(told) == 1, told
        cluster.produce(20)
        cluster.run_for(WAITS_S)
        assert slave.dispatch.stopped is None
        for key in cluster.acknowledged() - {damaged}:
            result = cluster.producer.acknowledged[key]
            entry = slave.queue(TOPIC, result.queue.queue_id).entry(result.queue_offset)
            assert entry is not None
            assert key_at(slave, entry[0]) == key


def damage_the_last_record(cluster: Cluster) -> str:
    """As it stands in the master's memory, where nobody needs it any more; gives the key of its
    message.
    """
    node, log = cluster.brokers[MASTER], cluster.broker(MASTER).store.log
    *_, (at, _) = log.walk(log.start)
    key = key_at(cluster.broker(MASTER).store, at)
    assert key is not None
    start = at - at % log.file_size
    file = node.host.drive.names.files[Path(STORE, "commitlog", f"{start:020d}")]
    file.cached[at - start + MAGIC_AT] ^= 0xFF
    return key
