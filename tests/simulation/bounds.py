"""What servers of a simulated cluster keep for whoever asks, whatever they are asked for."""

from __future__ import annotations

from typing import Final

from roquet.broker.server import Broker
from roquet.transport.connection import Connection
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import NAME_SERVER_PORT


def keep_within_bounds(cluster: Cluster) -> None:
    """From now on, after every event: no table is larger than its limit."""
    nodes = list(cluster.brokers.values())

    def check() -> None:
        for node in nodes:
            if node.broker is not None:
                _check_tables(node.broker)

    cluster.sim.check_always(check)


def _check_tables(broker: Broker) -> None:
    limits, tables = broker.config.limits, broker.parts.tables
    topics = tables.topics.topics
    assert len(topics) <= limits.topic_nums_max
    for topic in topics.values():
        queues = max(topic.read_queues, topic.write_queues)
        assert queues <= limits.topic_queue_nums_max, f"topic {topic.name!r} has {queues} queues"
    assert len(tables.groups.groups) <= limits.group_nums_max
    assert tables.offsets.count <= limits.offset_nums_max


def keep_what_peers_hold_within_bounds(cluster: Cluster, strangers: str, answer_max: int) -> None:
    """From now on, after every event: nobody gets brokers to hold more than they may, for a peer or for all.

    :param strangers: address of a host of which one connection may hold no more than what is allowed to each, a part
        of as much that is made before that is looked at, and an answer of `answer_max` bytes.
    """
    cluster.sim.check_always(_HeldForPeers(cluster, strangers, answer_max).check)


_LOOKS: Final = 16
"""All together may hold so many parts of their limit, and one more, before it is looked at."""


class _HeldForPeers:
    """Invariant: `_seen` is what each broker was told then of what is held; it is told of whatever
    makes that more.
    """

    def __init__(self, cluster: Cluster, strangers: str, answer_max: int) -> None:
        self._nodes = list(cluster.brokers.values())
        self._strangers = strangers
        self._answer_max = answer_max
        self._seen: dict[str, int] = {}

    def check(self) -> None:
        for node in self._nodes:
            if node.broker is not None:
                until_look = node.broker.parts.peers._until_look
                if self._seen.get(node.name) != until_look:
                    self._seen[node.name] = until_look
                    self._check_peers(node.broker)

    def _check_peers(self, broker: Broker) -> None:
        peers = broker.parts.peers
        limits, answers, requests = peers.limits, 0, 0
        of_each = limits.answer_bytes_per_connection_max
        for peer in peers.connections:
            assert isinstance(peer, Connection)
            unread = peer.unread
            answers += unread
            requests += (
                peer.unanswered if peer.is_open else 0
            )  # one that was aborted goes with the next event
            is_strange = unread > of_each and peer.peer_host_name == self._strangers
            assert not is_strange or unread <= of_each * 5 // 4 + self._answer_max, (
                f"{unread} bytes for one peer"
            )
        assert answers <= limits.answer_bytes_max * (_LOOKS + 1) // _LOOKS, (
            f"{answers} bytes of answers"
        )
        assert requests <= limits.request_bytes_max * (_LOOKS + 1) // _LOOKS, (
            f"{requests} bytes of requests"
        )


def check_settings(cluster: Cluster) -> None:
    """No name server listens elsewhere when it is started again."""
    for node in cluster.name_servers.values():
        said = dict(
            line.split("=", 1)
            for line in node.settings().splitlines()
            if "=" in line and line[0] != "#"
        )
        assert said.get("listenPort", str(NAME_SERVER_PORT)) == str(NAME_SERVER_PORT)
        assert "bindAddress" not in said
