"""Locking queues for ordered consumption.

See docs/protocol/consuming.md#locks.
"""

from __future__ import annotations

from typing import Any

from roquet.broker.config.limits import Limits
from roquet.broker.delivery.queue_locks import LEASE_MS, LeaseTable
from roquet.broker.handlers.locks import LockHandler
from roquet.protocol.bodies.tables import QueueLocks, queue_to_json
from roquet.protocol.json.dialect import dump_bytes, load
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.slices import Slices
from tests.broker.harness import BROKER, TIMEOUT_MS, Client, World
from tests.simulation.simulation import Simulation

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


MANY = frozenset(MessageQueue("T", "broker-a", queue_id) for queue_id in range(40_000))
"""A slice reads the names of 32,000 where the clock stands still."""
ROOM = 4 << 20
"""Bytes, enough for `MANY`."""


def many(code: int, client_id: str, queues: frozenset[MessageQueue] = MANY) -> Command:
    return Command(code, body=dump_bytes(QueueLocks("g", client_id, queues).to_json()))


def lock_request(client_id: str, queues: list[dict[str, Any]]) -> Command:
    wanted = {"clientId": client_id, "consumerGroup": "g", "mqSet": queues}
    return Command(RequestCode.LOCK_BATCH_MQ, body=dump_bytes(wanted))


def answered(client: Client, *requests: Command) -> list[Command]:
    """The answers to requests that are sent by one write."""

    async def answers() -> list[Command]:
        return await (await client.channels.connection(BROKER)).calls.call_all(requests, TIMEOUT_MS)

    return client.host.call(answers)


def test_thousands_of_queues_are_locked_and_unlocked_in_slices_and_a_few_at_once(
    sim: Simulation,
) -> None:
    world = World(sim, jsonBodySizeMax=ROOM)
    client = world.client()
    (answer,) = answered(client, many(RequestCode.LOCK_BATCH_MQ, "c"))
    assert load(answer.body)["lockOKMQSet"] == QueueLocks("g", "c", MANY).to_json()["mqSet"]
    assert world.slices.count == 3, "1,250 steps to read the names, and as many to write them"
    (answer,) = answered(client, many(RequestCode.UNLOCK_BATCH_MQ, "c"))
    assert answer.code == 0
    assert world.slices.count == 5
    assert len(locked(client, "d")) == len(QUEUES)
    assert world.slices.count == 5


def test_of_clients_that_ask_for_the_same_thousands_of_queues_at_once_one_gets_all() -> None:
    """Else each would hold some, and take them from the others only when they let go."""
    requests = LockHandler(LeaseTable(), lambda: 0.0, Slices(), Limits())
    queues = [queue_to_json(queue) for queue in sorted(MANY)[:2000]]
    asked = {"c": queues, "d": queues[::-1]}
    works = {
        client_id: requests.lock(lock_request(client_id, wanted))
        for client_id, wanted in asked.items()
    }
    held: dict[str, int] = {}
    while works:
        for client_id, work in list(works.items()):
            try:
                next(work)
            except StopIteration as end:
                held[client_id] = len(load(end.value.body)["lockOKMQSet"])
                del works[client_id]
    assert held == {"c": len(queues), "d": 0}


def test_an_unlock_behind_a_long_lock_of_the_same_client_comes_after_it(sim: Simulation) -> None:
    world = World(sim, jsonBodySizeMax=ROOM)
    requests = many(RequestCode.LOCK_BATCH_MQ, "c"), many(RequestCode.UNLOCK_BATCH_MQ, "c", QUEUES)
    assert [answer.code for answer in answered(world.client(), *requests)] == [0, 0]
    assert len(locked(world.client("10.0.0.8"), "d")) == len(QUEUES)


def test_one_odd_queue_among_thousands_and_none_is_locked(sim: Simulation) -> None:
    world = World(sim, jsonBodySizeMax=ROOM)
    client, queues = world.client(), [queue_to_json(queue) for queue in sorted(MANY)]
    (answer,) = answered(
        client, lock_request("c", [*queues, {"topic": "T", "brokerName": "broker-a"}])
    )
    assert (answer.code, "JSON" in str(answer.remark)) == (1, True)
    assert len(locked(client, "d")) == len(QUEUES)
