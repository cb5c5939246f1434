"""The places of pulls that wait are shared: no client keeps all others from waiting for
messages.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import pytest

from roquet.broker.server import Broker
from roquet.errors import ConnectionClosed
from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.fetch import Fetched
from roquet.transport.connection import Connection
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

PLACES = 12
FOUND, NOT_FOUND, BUSY = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.SYSTEM_BUSY
EARLY = "waiting pull answered early"


class Puller(Client):
    """`answers` are the codes and remarks of the answers to its pulls so far."""

    def __init__(self, sim: Simulation, node: BrokerNode, address: str) -> None:
        super().__init__(sim, sim.host(address), node.address)
        self.answers: list[tuple[int, str | None]] = []

    def pull(self, count: int = 1) -> None:
        """Wait for the next message of the topic, so many times."""
        header = PullHeader("g", "T", 0, 1, 32, 2 | 4, 0, 15_000, "*", 1, "TAG")

        async def pull() -> None:
            request = Command(RequestCode.PULL_MESSAGE, header.write())
            with suppress(ConnectionClosed):
                answer = await self.channels.call(self.broker, request, 60_000)
                self.answers.append((answer.code, answer.remark))

        for _ in range(count):
            self.host.start(pull)
        self.sim.run_for(1)

    @property
    def codes(self) -> list[int]:
        return [code for code, _ in self.answers]

    def connection(self) -> Connection:
        async def connection() -> Connection:
            return await self.channels.connection(self.broker)

        return self.host.call(connection)


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    node = started(
        sim, "10.0.0.1", pullThreadPoolQueueCapacity=PLACES, answerBytesPerConnectionMax=4096
    )
    assert send(Client(sim, sim.host("10.0.0.99"), node.address), b"first").code == 0
    return node


@pytest.fixture
def broker(node: BrokerNode) -> Broker:
    return serving(node)


@pytest.fixture
def crowd(sim: Simulation, node: BrokerNode) -> Puller:
    """A client that has all places."""
    crowd = Puller(sim, node, "10.0.0.9")
    crowd.pull(PLACES)
    assert crowd.codes == []
    return crowd


def waiting(broker: Broker) -> int:
    return broker.parts.long_polls.count


def test_a_pull_from_another_address_waits_in_the_place_of_one_of_the_crowd(
    sim: Simulation, node: BrokerNode, broker: Broker, crowd: Puller
) -> None:
    other = Puller(sim, node, "10.0.0.10")
    other.pull()
    assert (crowd.codes, other.codes) == ([NOT_FOUND], [])
    assert waiting(broker) == PLACES
    assert send(Client(sim, sim.host("10.0.0.99"), node.address), b"second").code == 0
    sim.run_for(1)
    assert other.codes == [FOUND]
    assert crowd.codes == [NOT_FOUND] + [FOUND] * (PLACES - 1)
    assert waiting(broker) == 0
    assert {each.held(sim.now_s)[1] for each in broker.parts.peers.connections} == {0}, (
        "each was answered once"
    )


@pytest.mark.parametrize("end", ["message", "time", "close"])
def test_a_queue_is_watched_only_while_a_pull_waits_there(
    sim: Simulation, node: BrokerNode, broker: Broker, crowd: Puller, end: str
) -> None:
    (watched,) = broker.parts.long_polls.queues
    assert (watched.topic, watched.queue_id) == ("T", 0)
    match end:
        case "message":
            assert send(Client(sim, sim.host("10.0.0.99"), node.address), b"second").code == 0
        case "close":
            crowd.close()
    sim.run_for(40)
    assert (broker.parts.long_polls.queues, waiting(broker)) == ({}, 0)


def test_a_crowd_that_pulls_again_is_refused_as_long_as_others_have_fewer(
    sim: Simulation, node: BrokerNode, broker: Broker, crowd: Puller
) -> None:
    other = Puller(sim, node, "10.0.0.10")
    other.pull()
    crowd.pull(3)
    remark = f"[OVERLOAD]{PLACES} pulls wait for messages already (pullThreadPoolQueueCapacity)"
    assert crowd.answers[1:] == [(BUSY, remark)] * 3
    assert (other.codes, waiting(broker)) == ([], PLACES)


def test_places_are_shared_until_both_have_as_many(
    sim: Simulation, node: BrokerNode, broker: Broker, crowd: Puller
) -> None:
    other = Puller(sim, node, "10.0.0.10")
    other.pull(PLACES)
    assert crowd.codes == [NOT_FOUND] * (PLACES // 2)
    assert other.codes == [BUSY] * (PLACES // 2)
    assert waiting(broker) == PLACES


def test_a_connection_at_the_address_of_the_crowd_gets_a_place_of_it(
    sim: Simulation, node: BrokerNode, broker: Broker, crowd: Puller
) -> None:
    neighbour = Puller(sim, node, "10.0.0.9")
    neighbour.pull()
    assert (crowd.codes, neighbour.codes, waiting(broker)) == ([NOT_FOUND], [], PLACES)


def test_many_connections_of_one_address_do_not_push_out_another_address(
    sim: Simulation, node: BrokerNode, broker: Broker
) -> None:
    one = Puller(sim, node, "10.0.0.10")
    one.pull(PLACES // 2)
    many = [Puller(sim, node, "10.0.0.9") for _ in range(PLACES)]
    for each in many:
        each.pull()
    assert one.codes == []
    assert [code for each in many for code in each.codes] == [BUSY] * (PLACES // 2)


def test_pulls_of_a_connection_that_ended_take_no_places(
    sim: Simulation, node: BrokerNode, broker: Broker, crowd: Puller
) -> None:
    crowd.connection().abort()
    sim.run_for(1)
    assert waiting(broker) == 0
    other = Puller(sim, node, "10.0.0.10")
    other.pull(PLACES)
    assert (other.codes, waiting(broker)) == ([], PLACES)


def test_who_does_not_read_cannot_keep_its_places(
    sim: Simulation,
    node: BrokerNode,
    broker: Broker,
    crowd: Puller,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing can be answered to it: its connection ends."""
    (deaf,) = (each for each in broker.parts.peers.connections if each.peer_host_name == "10.0.0.9")
    crowd.connection().pause_reading()
    assert isinstance(deaf, Connection)
    for _ in range(100):
        deaf.calls.notify(
            Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g" * 4000})
        )
    assert not deaf.is_writable
    other = Puller(sim, node, "10.0.0.10")
    other.pull()
    assert (other.codes, waiting(broker), deaf.is_open) == ([], 1, False)
    assert [record for record in caplog.records if "does not read" in record.getMessage()]


def test_what_is_answered_early_is_told_of_once(
    sim: Simulation, node: BrokerNode, crowd: Puller, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    Puller(sim, node, "10.0.0.10").pull(PLACES // 2)
    (line,) = (record.getMessage() for record in caplog.records if EARLY in record.getMessage())
    assert f"pullThreadPoolQueueCapacity={PLACES}" in line
    assert "10.0.0.9" in line


@pytest.mark.parametrize("is_swept", [False, True])
def test_an_error_in_one_pull_is_its_own_answer(
    sim: Simulation,
    node: BrokerNode,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_swept: bool,
) -> None:
    """Others wait beside it and behind it, and it would be looked at again for ever."""
    first, second = Puller(sim, node, "10.0.0.9"), Puller(sim, node, "10.0.0.10")
    first.pull()
    second.pull()
    fetch, errors = broker.store.fetch, [RuntimeError("nobody foresaw it")]

    def failing_once(*values: Any) -> Fetched:
        if errors:
            raise errors.pop()
        return fetch(*values)

    monkeypatch.setattr(broker.store, "fetch", failing_once)
    if is_swept:
        sim.run_for(40)
    else:
        assert send(Client(sim, sim.host("10.0.0.99"), node.address), b"second").code == 0
        sim.run_for(1)
    assert first.answers == [(ResponseCode.SYSTEM_ERROR, "RuntimeError: nobody foresaw it")]
    assert second.codes == [NOT_FOUND if is_swept else FOUND]
    assert waiting(broker) == 0
    assert len([line for line in caplog.messages if "nobody foresaw it" in line]) == 1
