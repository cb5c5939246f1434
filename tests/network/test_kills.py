"""Master and slave at hosts of their own, each killed again and again while Apache's producer
sends.

`make network` takes its time; a failure says its seed, and `make network SEED=n` kills the same
sides again.
"""

from __future__ import annotations

import random
import sys
import time

import pytest

from tests.interop.apache import Version, require_java, run_driver
from tests.interop.stored import log_queues
from tests.network.cluster import PATIENCE_S, TOPIC, FarCluster, Line, assert_gives
from tests.network.link import CUT, GOOD, Quality
from tests.network.namespaces import require_network

pytestmark = [pytest.mark.process, pytest.mark.interop]

ACKNOWLEDGED_PER_ROUND_MIN = 100
ENDLESS = 1_000_000
SEND_TIMEOUT_MS = 2000
"""So long Apache's producer waits for the answer of a master that was killed."""
LINKS = {"good": GOOD, "far": Quality(delay_s=0.03), "lossy": Quality(loss=0.03), "cut": CUT}


class Sends:
    """What Apache's producer was told so far."""

    def __init__(self, cluster: FarCluster) -> None:
        self._client = cluster.client
        self._seen = 0
        self.acknowledged: list[Line] = []
        cluster.begin(
            ENDLESS, "--threads", 4, "--pause", 8, "--poll", 500, "--timeout", SEND_TIMEOUT_MS
        )

    def look(self) -> int:
        """How many are acknowledged."""
        lines = self._client.lines()
        self.acknowledged += [
            line for line in lines[self._seen :] if line.get("sendStatus") == "SEND_OK"
        ]
        self._seen = len(lines)
        return len(self.acknowledged)

    def wait_more(self) -> None:
        """Which takes a master and a slave that follows it."""
        enough = self.look() + ACKNOWLEDGED_PER_ROUND_MIN
        self._client.wait_ready(
            lambda: self.look() >= enough, f"{enough} acknowledged messages", PATIENCE_S
        )

    def end(self) -> list[Line]:
        """What nobody will be told about may still be stored."""
        self._client.kill()
        self.look()
        return self.acknowledged


def kill_one_side(cluster: FarCluster, chance: random.Random) -> str:
    """Or both; over a link that is good, far, lossy or cut, so that the other side need not hear of
    it.
    """
    victims = chance.choice(([cluster.master], [cluster.cluster.slave], cluster.cluster.brokers))
    link = chance.choice(list(LINKS))
    time.sleep(chance.uniform(0, 0.5))
    cluster.links(LINKS[link])
    time.sleep(chance.uniform(0, 0.5))
    for victim in victims:
        victim.kill()
    time.sleep(chance.uniform(0, 1))
    for victim in victims:
        victim.start()
    cluster.links(GOOD)
    return f"{' and '.join(victim.name for victim in victims)} killed, the link {link}"


def test_what_is_acknowledged_is_at_master_and_slave_after_every_kill(
    kill_seed: int, rounds: int
) -> None:
    require_network()
    require_java()
    chance = random.Random(kill_seed)
    with FarCluster("slave", seed=kill_seed) as cluster:
        sends = Sends(cluster)
        for number in range(1, rounds + 1):
            sends.wait_more()
            say(f"{number}: {kill_one_side(cluster, chance)}")
        sends.wait_more()
        acknowledged = sends.end()
        cluster.wait_same()
        stored = sum(
            len(has)
            for (topic, _), has in log_queues(cluster.master.store_dir).items()
            if topic == TOPIC
        )
        say(f"{len(acknowledged)} messages acknowledged, {stored} stored")
        cluster.assert_kept(acknowledged)

        cluster.master.kill()
        assert_gives(cluster.cluster.slave, acknowledged)
        assert_apaches_consumer_gets(cluster, acknowledged, stored)
        cluster.master.start()
        cluster.wait_same()
        cluster.assert_whole()


def assert_apaches_consumer_gets(
    cluster: FarCluster, acknowledged: list[Line], stored: int
) -> None:
    """Everything that is stored once, and with it what was acknowledged, at its place."""
    words = ("consume", cluster.cluster.namesrv, TOPIC, "G", stored, PATIENCE_S, "--linger", 300)
    got = run_driver(Version.V4, *words, timeout_s=2 * PATIENCE_S).check()
    places = {line["msgId"]: (line["queueId"], line["queueOffset"]) for line in got}
    assert len(got) == len(places) == stored
    assert all(
        places[line["msgId"]] == (line["queueId"], line["queueOffset"]) for line in acknowledged
    )


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
