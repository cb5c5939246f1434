"""Hostile requests of every code against a broker with a slave, which is killed meanwhile: nobody
else loses anything.

Each round has a seed of its own, which a failure names: `--fuzz-seed N --fuzz-seconds 6` repeats
that round.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.fuzz.broker.beside import HostileClients
from tests.fuzz.broker.witness import QUEUES, Witness, missing
from tests.interop.couples import has_same_log
from tests.interop.processes import wait_until
from tests.interop.roquet_cluster import RoquetBroker, RoquetCluster

pytestmark = pytest.mark.process

ROUND_S: Final = 6.0
TOPIC: Final = "Witnessed"
WITHIN_S: Final = 60.0
MEMORY_MAX: Final = 96 << 20
"""Bytes of memory of its own that a broker may have more after a round, for the tables that hostile
requests filled.
"""
PROPERTIES: Final[dict[str, str | int]] = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "enablePropertyFilter": "true",
    "flushConsumeQueueThoroughInterval": 2_000,
}

SOCKETS_MORE: Final = 4
"""Connections between the brokers may have come to be since they were counted first."""

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="memory and descriptors are read from /proc"
)


@dataclass
class Report:
    """What all rounds came to."""

    requests: int = 0
    waited_s: list[float] = field(default_factory=list)

    def waited_ms(self, share: float) -> float:
        ordered = sorted(self.waited_s)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def __str__(self) -> str:
        times = ", ".join(f"{name} {self.waited_ms(share):.1f}" for name, share in SHARES)
        return f"{self.requests} hostile requests; others waited, in ms: {times} ({len(self.waited_s)} questions)"


SHARES: Final = (("median", 0.5), ("99 %", 0.99), ("99.9 %", 0.999), ("most", 1.0))


@linux_only
def test_hostile_clients_cost_nobody_a_message_or_an_answer(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    seconds: float = request.config.getoption("--fuzz-seconds")
    first_seed: int = request.config.getoption("--fuzz-seed")
    within_ms: float | None = request.config.getoption("--answered-within-ms")
    acknowledged: dict[tuple[int, int], bytes] = {}
    report = Report()
    with RoquetCluster(properties=PROPERTIES) as cluster:
        cluster.create_topic(TOPIC, QUEUES)
        for seed in range(first_seed, first_seed + max(1, round(seconds / ROUND_S))):
            play(cluster, seed, acknowledged, report)
        sys.stderr.write(f"\n{report}, {len(acknowledged)} acknowledged messages\n")
    assert acknowledged
    if within_ms is not None:
        assert report.waited_ms(0.99) <= within_ms


def play(
    cluster: RoquetCluster, seed: int, acknowledged: dict[tuple[int, int], bytes], report: Report
) -> None:
    """One round: hostile clients, one of the two brokers killed among them, and then everything is
    as it should be.
    """
    chance = random.Random(seed)
    victim = chance.choice((cluster.master, cluster.slave))
    before = {broker.name: (sockets(broker), own_memory(broker)) for broker in cluster.brokers}
    address = cluster.master.address
    with (
        HostileClients(cluster, seed, ROUND_S) as hostile,
        Witness(address, TOPIC, acknowledged) as witness,
    ):
        hostile.start()
        time.sleep(
            chance.uniform(0.3, 0.8) * ROUND_S
        )  # the victim dies at any moment while they ask
        victim.kill()
        victim.start()
        report.requests += hostile.sent(WITHIN_S)
    report.waited_s += witness.waited_s
    assert not witness.unanswered, (
        f"seed {seed}: {witness.unanswered} honest questions were not answered"
    )
    cluster.wait_replicated()
    wait_until(
        lambda: has_same_log(cluster.master, cluster.slave),
        f"equal logs after seed {seed}",
        WITHIN_S,
    )
    for broker in cluster.brokers:
        assert_kept(broker, seed, acknowledged)
        if broker is not victim:
            assert_given_back(broker, seed, *before[broker.name])


def assert_kept(
    broker: RoquetBroker, seed: int, acknowledged: dict[tuple[int, int], bytes]
) -> None:
    """It runs, and gives every message that was acknowledged."""
    assert broker.alive, f"seed {seed}: {broker.name} ended:\n{broker.log()[-4000:]}"
    wrong = missing(broker.address, TOPIC, acknowledged)
    assert not wrong, (
        f"seed {seed}: acknowledged, and not at {broker.name}: {wrong[:5]}, {len(wrong)} in all"
    )
    assert "Traceback" not in broker.errors(), f"seed {seed}:\n{broker.errors()[-4000:]}"


def assert_given_back(broker: RoquetBroker, seed: int, had_sockets: int, had_memory: int) -> None:
    """The connections of hostile clients are gone, and what they took of its memory."""
    wait_until(
        lambda: sockets(broker) <= had_sockets + SOCKETS_MORE,
        f"{broker.name} to close sockets",
        WITHIN_S,
    )
    grown = own_memory(broker) - had_memory
    assert grown <= MEMORY_MAX, f"seed {seed}: {broker.name} has {grown >> 20} MiB more"


def sockets(broker: RoquetBroker) -> int:
    """How many connections and listening sockets the process has."""
    found = 0
    for descriptor in Path(f"/proc/{broker.pid}/fd").iterdir():
        try:
            found += str(descriptor.readlink()).startswith("socket:")
        except OSError:
            continue  # closed since it was listed
    return found


def own_memory(broker: RoquetBroker) -> int:
    """Bytes that are the process's own, without pages of files."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024
