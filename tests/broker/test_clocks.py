"""A whole broker whose wall clock is set: nobody's lease, membership or place in a turn ends for
that.
"""

from __future__ import annotations

import pytest

from roquet.protocol.bodies.tables import Heartbeat, QueueLocks
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from tests.broker.harness import ADDRESS, Client
from tests.broker.served import send, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

QUEUE = MessageQueue("T", "broker-a", 0)
HOUR_MS = 3_600_000
STEPS = pytest.mark.parametrize("step_ms", [-48 * HOUR_MS, 48 * HOUR_MS])


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    return started(sim, ADDRESS)


def has_lock(client: Client, client_id: str) -> bool:
    body = dump_bytes(QueueLocks("g", client_id, frozenset((QUEUE,))).to_json())
    return bool(client.ask(RequestCode.LOCK_BATCH_MQ, body)["lockOKMQSet"])


@STEPS
def test_a_lock_ends_after_a_minute_whatever_the_clock_says(
    sim: Simulation, node: BrokerNode, step_ms: int
) -> None:
    client = Client(sim, sim.host("10.0.0.9"))
    assert has_lock(client, "one")
    node.host.clock_ahead_ms += step_ms
    sim.run_for(59)
    assert not has_lock(client, "another")
    sim.run_for(2)
    assert has_lock(client, "another")


@STEPS
def test_a_member_is_silent_after_two_minutes_whatever_the_clock_says(
    sim: Simulation, node: BrokerNode, step_ms: int
) -> None:
    client = Client(sim, sim.host("10.0.0.9"))
    assert (
        client.call(RequestCode.HEART_BEAT, dump_bytes(Heartbeat("c", ("p",), ()).to_json())).code
        == 0
    )
    node.host.clock_ahead_ms += step_ms
    sim.run_for(110)
    producers = serving(node).parts.tables.producers
    assert producers.channels("p")
    sim.run_for(30)
    assert not producers.channels("p")


@STEPS
def test_messages_are_taken_while_the_clock_is_set(
    sim: Simulation, node: BrokerNode, step_ms: int
) -> None:
    client = Client(sim, sim.host("10.0.0.9"))
    for number in range(4):
        assert send(client, b"%d" % number).code == 0
        node.host.clock_ahead_ms += step_ms * (-1) ** number
    assert serving(node).store.max_offset("T", 0) == 4
