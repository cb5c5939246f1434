"""A seed is one history of a whole cluster, in this process and in any other: a failure can be
looked at again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.cluster import CONSUMER, NAME_SERVER, Cluster
from tests.simulation.fuzzer import fuzzers_of
from tests.simulation.large import send_large_messages
from tests.simulation.retention import PASS_S, keep_for

ROOT: Final = Path(__file__).parents[2]
TELL_HISTORY: Final = """
import sys, time
ahead_s, clock = float(sys.argv[1]), time.time
time.time = lambda: clock() + ahead_s
time.time_ns = lambda: int(time.time() * 1e9)
from tests.simulation.test_determinism import history, wide_history
print(history(1), wide_history(1))
"""


def history(seed: int) -> str:
    """The digest of a cluster's life, with a bit of everything."""
    with Cluster(seed, "sync-master", "slave", "slave-2", consumers=2) as cluster:
        cluster.send(40)
        cluster.run_for(0.5)
        cluster.kill("sync-master")
        cluster.run_for(5)
        cluster.restart("sync-master")
        cluster.crash("slave")
        cluster.kill(CONSUMER)
        cluster.settle()
        cluster.isolate(NAME_SERVER)
        cluster.send(20)
        cluster.run_for(40)
        cluster.settle()
        cluster.check_everything()
        return cluster.sim.digest()


def wide_history(seed: int) -> str:
    """The same of several masters and name servers, large messages, files that go, and hostile
    clients.
    """
    cluster = Cluster(seed, "sync-master", "slave", sets=2, name_servers=2)
    keep_for(cluster.brokers.values(), cluster.sim.chance("retention"), hours=0)
    send_large_messages(cluster)
    fuzzers = fuzzers_of(cluster)
    with cluster:
        fuzzers.come()
        cluster.send(30)
        cluster.run_for(2)
        cluster.kill(cluster.some_name_server())
        slave = cluster.host("slave-b")
        slave.drive.end_in_a_write(3, slave.kill)
        cluster.send(20)
        cluster.run_for(10)
        fuzzers.come_no_more()
        cluster.run_for(PASS_S)
        cluster.settle()
        cluster.check_everything()
        return cluster.sim.digest()


def told_by_a_process(hash_seed: int, time_zone: str, ahead_s: float) -> str:
    paths = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": paths,
        "TZ": time_zone,
    }
    command = [sys.executable, "-c", TELL_HISTORY, str(ahead_s)]
    told = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return told.stdout.strip()


@pytest.mark.also_seeds(
    51
)  # only the slave that failed while the master was down had the last messages
def test_a_seed_tells_the_same_history_twice_and_another_seed_another(seed: int) -> None:
    assert history(seed) == history(seed) != history(seed + 1)


def test_the_order_of_sets_and_the_time_of_day_in_another_process_change_nothing() -> None:
    here = told_by_a_process(hash_seed=1, time_zone="UTC", ahead_s=0)
    elsewhere = told_by_a_process(hash_seed=2, time_zone="Asia/Kolkata", ahead_s=40_000_000)
    assert here == elsewhere == f"{history(1)} {wide_history(1)}"
