"""Locking queues for ordered consumption.

See docs/protocol/consuming.md#locks.
"""

from __future__ import annotations

from typing import Any

from roquet.broker.queue_locks import LEASE_MS
from roquet.protocol.bodies import QueueLocks
from roquet.protocol.codes import RequestCode
from roquet.protocol.json_dialect import dump_bytes
from roquet.protocol.message import MessageQueue
from tests.broker.harness import Client, World

QUEUES = frozenset(MessageQueue("T", "broker-a", queue_id) for queue_id in range(2))


def body(client_id: str) -> bytes:
    return dump_bytes(QueueLocks("g", client_id, QUEUES).to_json())


def locked(client: Client, client_id: str) -> list[Any]:
    held = client.ask(RequestCode.LOCK_BATCH_MQ, body(client_id))["lockOKMQSet"]
    assert isinstance(held, list)
    return held


def test_queues_are_locked_until_they_are_unlocked_or_the_lease_ends(world: World) -> None:
    client = world.client()
    assert locked(client, "c") == [
        {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
        {"brokerName": "broker-a", "queueId": 1, "topic": "T"},
    ]
    assert locked(client, "d") == []
    assert client.call(RequestCode.UNLOCK_BATCH_MQ, body("d")).code == 0
    assert locked(client, "d") == []
    assert client.call(RequestCode.UNLOCK_BATCH_MQ, body("c")).code == 0
    assert len(locked(client, "d")) == 2
    world.sim.run_for(LEASE_MS / 1000 + 1)
    assert len(locked(client, "c")) == 2
