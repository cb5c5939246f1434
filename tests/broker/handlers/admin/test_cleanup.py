"""What an administrator lets a broker delete, and what it keeps all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from roquet.protocol.records.message import HALF_OP_TOPIC, SCHEDULE_TOPIC
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.filled import COUNT, LOG, QUEUE, FilledBroker
from tests.broker.served import send, serving
from tests.simulation.simulation import Simulation
from tests.storage.records import append_one

QUEUES: Final = Path("/store/consumequeue")


@pytest.fixture
def served(sim: Simulation) -> FilledBroker:
    return FilledBroker(sim)


def put(served: FilledBroker, *topics: str) -> None:
    """Store a message in queue 0 of each topic, whether or not clients may send to it."""

    async def append() -> None:
        store = serving(served.node).store
        for topic in topics:
            append_one(store, store.queue(topic, 0), b"body")
        store.end_turn()

    served.host.call(append)


def test_an_admin_lets_what_has_expired_go_at_any_hour(sim: Simulation) -> None:
    served = FilledBroker(sim, fileReservedTime=0)
    sim.run_for(120)
    assert served.names(LOG) == served.files
    assert served.client.call(RequestCode.DELETE_EXPIRED_COMMITLOG).code == ResponseCode.SUCCESS
    sim.run_for(15)
    assert served.names(LOG) == served.files[-1:]


def test_queues_whose_messages_are_all_gone_go_when_asked(served: FilledBroker) -> None:
    """The topic `T` has entries left, `U` has none; the next message there is its first."""
    client = served.client
    client.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    assert served.range() == (0, COUNT)
    old = send(client, b"old", "U")
    for number in range(COUNT, 2 * COUNT):
        served.send(number)
    served.host.drive.used_ratio = 0.86
    served.sim.run_for(90)
    first, end = served.range()
    assert client.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == ResponseCode.SUCCESS
    assert served.names(Path("/store/consumequeue/U/0")) == []
    assert served.range() == (first, end)
    assert 0 < first < end
    new = send(client, b"new", "U")
    assert (old.fields["queueOffset"], new.fields["queueOffset"]) == ("0", "0")


def test_queues_of_topics_that_are_no_more_go_when_asked(served: FilledBroker) -> None:
    client = served.client
    client.call(RequestCode.CLEAN_UNUSED_TOPIC)
    assert served.range() == (0, COUNT)

    async def delete_topic() -> None:
        serving(served.node).parts.tables.topics.delete("T")

    served.host.call(delete_topic)
    assert client.call(RequestCode.CLEAN_UNUSED_TOPIC).code == ResponseCode.SUCCESS
    assert served.names(QUEUE) == []


def test_the_schedule_queues_stay_though_their_messages_are_gone(served: FilledBroker) -> None:
    """Their queue offsets are in the table of delay levels, so they cannot begin at 0 again."""
    put(served, SCHEDULE_TOPIC, "U")
    for number in range(COUNT, 2 * COUNT):
        served.send(number)
    served.host.drive.used_ratio = 0.86
    served.sim.run_for(90)

    assert served.client.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == ResponseCode.SUCCESS

    assert served.names(QUEUES / "U" / "0") == []
    assert served.names(QUEUES / SCHEDULE_TOPIC / "0")


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, HALF_OP_TOPIC])
def test_topics_of_the_broker_itself_are_never_unused(served: FilledBroker, topic: str) -> None:
    put(served, topic)

    async def forget() -> None:
        serving(served.node).parts.tables.topics.delete(topic)

    served.host.call(forget)

    assert served.client.call(RequestCode.CLEAN_UNUSED_TOPIC).code == ResponseCode.SUCCESS

    assert served.names(QUEUES / topic / "0")
