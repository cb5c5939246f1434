"""A seed is one history of a whole cluster, in this process and in any other: a failure can be looked at again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.simulation.cluster import CONSUMER, NAME_SERVER, Cluster

ROOT: Final = Path(__file__).parents[2]
TELL_HISTORY: Final = "from tests.simulation.test_determinism import history; print(history(1))"


def history(seed: int) -> str:
    """The digest of a cluster's life, with a bit of everything."""
    with Cluster(seed, "sync-master", "slave", "slave-2", consumers=2) as cluster:
        cluster.send(40)
        cluster.run_for(0.5)
        cluster.kill("sync-master")
        cluster.run_for(5)
        cluster.crash("slave")
        cluster.kill(CONSUMER)
        cluster.settle()
        cluster.isolate(NAME_SERVER)
        cluster.send(20)
        cluster.run_for(40)
        cluster.settle()
        cluster.check_everything()
        return cluster.sim.digest()


def told_by_a_process(hash_seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    told = subprocess.run(
        [sys.executable, "-c", TELL_HISTORY], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return told.stdout.strip()


def test_a_seed_tells_the_same_history_twice_and_another_seed_another(seed: int) -> None:
    assert history(seed) == history(seed) != history(seed + 1)


def test_the_order_of_sets_in_another_process_changes_nothing() -> None:
    assert told_by_a_process(hash_seed=1) == told_by_a_process(hash_seed=2) == history(1)
