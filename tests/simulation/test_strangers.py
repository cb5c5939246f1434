"""Peers that do not read, send half, and lie at every port: nobody loses anything by them, and they
end in time.
"""

from __future__ import annotations

from functools import partial

from roquet.transport.limits import PeerLimits
from roquet.transport.peers import Peers
from tests.simulation.bounds import keep_what_peers_hold_within_bounds
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import NAME_SERVER_PORT
from tests.simulation.strangers import ADDRESS, Strangers
from tests.simulation.troubles import NO_DEATHS, kill_somebody

MASTER, SLAVE = "sync-master", "slave"
KIB = 1024
LIMITS = PeerLimits(
    answer_bytes_max=256 * KIB,
    answer_bytes_per_connection_max=64 * KIB,
    request_bytes_max=256 * KIB,
    connections_max=60,
)
"""Small enough to be reached by strangers, not by who belongs here."""
ANSWER_MAX = 32 * KIB
"""More than all messages have that a stranger asks for at once."""
SECONDS_MAX = 20.0
ENDED_S = 180.0
"""Idle time, the time of a slow frame, and a look."""


def beset(cluster: Cluster) -> Strangers:
    for node in cluster.brokers.values():
        node.limit_peers(LIMITS)
    brokers = [node.host.address for node in cluster.brokers.values()]
    ports = [(node.config.listen_port, node.config.ha_port) for node in cluster.brokers.values()]
    clients = [f"{host}:{port}" for host, (port, _) in zip(brokers, ports, strict=True)]
    slaves = [f"{brokers[0]}:{ports[0][1]}"]
    name_server = f"{cluster.name_server.host.address}:{NAME_SERVER_PORT}"
    chance = cluster.sim.chance("strangers")
    keep_what_peers_hold_within_bounds(cluster, ADDRESS, ANSWER_MAX)
    return Strangers(
        cluster.sim.host(ADDRESS), cluster.sim.network, chance, [*clients, name_server], slaves
    )


def check_that_all_are_gone(cluster: Cluster) -> None:
    for name in cluster.brokers:
        parts = cluster.broker(name).parts
        strangers = [
            each.peer_address for each in parts.peers.connections if each.peer_host_name == ADDRESS
        ]
        assert not strangers
        cluster.host(name).call(partial(looked, parts.peers))
        assert parts.peers.answers.size == 0
        assert parts.peers.requests.size <= 512 * parts.long_polls.count, "only pulls are held"
        assert parts.peers.answers.peak <= LIMITS.answer_bytes_max * 1.25
        if parts.ha_server is not None:
            assert not [each for each in parts.ha_server._connections if each.host == ADDRESS]


async def looked(peers: Peers) -> None:
    peers.look()


def test_strangers_at_every_port_disturb_nobody_and_end_in_time(seed: int) -> None:
    cluster = Cluster(seed, MASTER, SLAVE)
    strangers = beset(cluster)
    with cluster:
        strangers.come()
        for _ in range(4):
            cluster.send(40)
            cluster.run_for_up_to(SECONDS_MAX)
        cluster.settle()
        cluster.check_everything()
        assert strangers.came > 10
        strangers.come_no_more()
        cluster.run_for(ENDED_S)
        check_that_all_are_gone(cluster)


def test_strangers_come_amid_troubles(seed: int) -> None:
    cluster = Cluster(seed, MASTER, SLAVE)
    strangers = beset(cluster)
    with cluster:
        strangers.come()
        for _ in range(3):
            cluster.send(30)
            cluster.run_for_up_to(0.5)
            cluster.chance.choice((*NO_DEATHS, kill_somebody))(cluster)
            cluster.run_for_up_to(SECONDS_MAX)
            cluster.settle()
        cluster.check_everything()
