"""Producers of the group P, and what brokers got from them."""

from __future__ import annotations

from typing import Any

from roquet.client.producer import Producer
from tests.client.cluster import CLIENT, NAME_SERVER, FakeBroker, FakeCluster


def producer(cluster: FakeCluster, name_server: str = NAME_SERVER, **options: Any) -> Producer:
    runtime = cluster.client.runtime() if cluster.client.is_running else None
    return Producer(name_server, "P", client_id=f"{CLIENT}@test", runtime=runtime, **options)


def bodies(broker: FakeBroker, topic: str = "T") -> list[bytes]:
    return [
        record.body
        for key in sorted(broker.log.queues)
        if key[0] == topic
        for record in broker.log.queues[key]
    ]
