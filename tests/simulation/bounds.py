"""What servers of a simulated cluster keep for whoever asks, whatever they are asked for."""

from __future__ import annotations

from roquet.broker.server import Broker
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
    assert tables.progress.count <= limits.offset_nums_max


def check_settings(cluster: Cluster) -> None:
    """No name server listens elsewhere when it is started again."""
    for node in cluster.name_servers.values():
        said = dict(line.split("=", 1) for line in node.settings().splitlines() if "=" in line and line[0] != "#")
        assert said.get("listenPort", str(NAME_SERVER_PORT)) == str(NAME_SERVER_PORT)
        assert "bindAddress" not in said
