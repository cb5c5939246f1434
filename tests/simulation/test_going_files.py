"""The power fails while old files go: of what is kept, no message is without its place in a
queue.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from roquet.broker.config.store import FlushDisk
from tests.simulation.cluster import Cluster
from tests.simulation.retention import PASS_S, keep_for

MASTER = "async-master"
CRASHES = 3
CHECKPOINT_MS = 30_000
"""Files are looked for several times between two checkpoints."""
QUEUE_FILE_SIZE = 20 * 10
"""A crash may take all entries of several files of a queue."""


@pytest.mark.shares_histories(45, 60)
def test_the_power_fails_while_old_files_go(seed: int) -> None:
    cluster = Cluster(seed, MASTER, flush=FlushDisk.SYNC_FLUSH)
    keep_for(cluster.brokers.values(), cluster.sim.chance("retention"), hours=0)
    node = cluster.brokers[MASTER]
    store = replace(
        node.config.store,
        flush_consume_queue_thorough_interval=CHECKPOINT_MS,
        mapped_file_size_consume_queue=QUEUE_FILE_SIZE,
    )
    node.config = replace(node.config, store=store)
    with cluster:
        for _ in range(CRASHES):
            cluster.run_for(cluster.chance.uniform(0, PASS_S))
            cluster.send(150)
            cluster.run_for_up_to(CHECKPOINT_MS / 1000)
            cluster.crash(MASTER)
            cluster.settle()
        cluster.run_for(PASS_S)  # each of these lives may have been too short for a second look
        cluster.check_everything()
        assert cluster.sets[0].deleted_to, "files went"
