"""A batch of thousands of messages is stored as one, in its connection's order; others are served
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from roquet.broker.server import Broker
from roquet.protocol.records.batch import batch_item
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection
from roquet.transport.slices import STEPS_MAX
from tests.broker.harness import BROKER, Client
from tests.broker.served import SEND, send, serving, started
from tests.simulation.simulation import Simulation
from tests.storage.records import append_one, bodies_in

COUNT: Final = 34_000
"""More than one slice takes where the clock stands still within it."""
ONE_BY_ONE: Final = [b"%d" % (number % 977) for number in range(COUNT)]
LARGE: Final = {
    "mapedFileSizeCommitLog": 1 << 23,
    "mapedFileSizeConsumeQueue": 20 * 10_000,
    "maxIndexNum": 100_000,
}


@pytest.fixture
def broker(sim: Simulation) -> Broker:
    return serving(started(sim, "10.0.0.1", **LARGE))


def batch(bodies: list[bytes], properties: str = "", **fields: object) -> Command:
    named = {**SEND, "b": "T", "e": 0, "i": properties, "m": "true", **fields}
    body = b"".join(batch_item(0, each, b"") for each in bodies)
    return Command(
        RequestCode.SEND_BATCH_MESSAGE, {name: str(value) for name, value in named.items()}, body
    )


def single(body: bytes) -> Command:
    named = {**SEND, "b": "T", "e": 0, "i": ""}
    return Command(
        RequestCode.SEND_MESSAGE_V2, {name: str(value) for name, value in named.items()}, body
    )


class Asked:
    """Requests that one client sends in one write, without waiting; `answers` come in their
    order.
    """

    def __init__(self, sim: Simulation, address: str, requests: list[Command]) -> None:
        self.answers: list[Command] = []
        self.client = Client(sim, sim.host(address))
        self._requests = requests
        self.task: asyncio.Task[Any] = self.client.host.start(self._ask)

    async def _ask(self) -> None:
        connection = await self.client.channels.connection(BROKER)
        waiting = connection.calls.begin(self._requests)
        for each in waiting:
            each.add_done_callback(
                lambda done: (
                    None if done.cancelled() or done.exception() else self._came(done.result())
                )
            )
        await asyncio.wait(waiting)

    def _came(self, answer: Command) -> None:
        self.answers.append(answer)


def peers(broker: Broker) -> list[Connection]:
    return [peer for peer in broker.parts.peers.connections if isinstance(peer, Connection)]


def under_way(sim: Simulation, broker: Broker, before: int) -> None:
    """Let a batch get as far as its second slice."""
    sim.run_until(lambda: broker.parts.slices.count > before, 10)


def test_others_are_served_between_its_parts_and_it_is_stored_as_one(
    sim: Simulation, broker: Broker
) -> None:
    before, count = broker.parts.slices.count, broker.store.writer.stored
    large = Asked(sim, "10.0.0.9", [batch(ONE_BY_ONE)])
    under_way(sim, broker, before)
    assert (broker.store.writer.stored, large.answers) == (count, []), (
        "nothing of it is stored before all of it is packed"
    )
    append_one(broker.store, broker.store.queue("T", 0), b"meanwhile")
    assert not any(peer.is_reading for peer in peers(broker))
    sim.run_until(lambda: bool(large.answers), 60)
    assert large.answers[0].code == ResponseCode.SUCCESS
    assert bodies_in(broker.store, "T") == [b"meanwhile", *ONE_BY_ONE]
    assert all(peer.is_reading for peer in peers(broker))
    assert broker.parts.slices.count - before > COUNT // 32 // STEPS_MAX


def test_what_a_client_sends_after_it_is_stored_and_answered_after_it(
    sim: Simulation, broker: Broker
) -> None:
    after = [single(b"1"), batch([b"2", b"3"]), single(b"4"), single(b"5")]
    before = broker.parts.slices.count
    asked = Asked(sim, "10.0.0.9", [single(b"0"), batch(ONE_BY_ONE), *after])
    under_way(sim, broker, before)
    asked.client.host.start(lambda: asked.client.channels.call(BROKER, single(b"6"), 60_000))
    sim.run_until(lambda: len(asked.answers) == 6 and broker.store.writer.stored == COUNT + 7, 60)
    assert [answer.code for answer in asked.answers] == [0] * 6
    offsets = [int(answer.fields["queueOffset"]) for answer in asked.answers]
    assert offsets == [0, 1, COUNT + 1, COUNT + 2, COUNT + 4, COUNT + 5]
    assert bodies_in(broker.store, "T") == [
        b"0",
        *ONE_BY_ONE,
        *(b"%d" % number for number in range(1, 7)),
    ]


def deleted(broker: Broker) -> None:
    broker.parts.tables.topics.delete("T")


def full(broker: Broker) -> None:
    broker.parts.write_gate.close("the drive is full")


def held_up(broker: Broker) -> None:
    broker.store.dispatch.is_held_up = True


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (deleted, ResponseCode.TOPIC_NOT_EXIST),
        (full, ResponseCode.SERVICE_NOT_AVAILABLE),
        (held_up, ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
def test_what_changes_while_it_is_packed_counts(
    sim: Simulation, change: Callable[[Broker], None], code: ResponseCode
) -> None:
    broker = serving(started(sim, "10.0.0.1", autoCreateTopicEnable="false", **LARGE))
    client = Client(sim, sim.host("10.0.0.7"))
    fields = {
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicSysFlag": 0,
    }
    fields |= {"topic": "T", "topicFilterType": "SINGLE_TAG", "order": "false"}
    assert client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields).code == 0
    before, end = broker.parts.slices.count, broker.store.log.end
    large = Asked(sim, "10.0.0.9", [batch(ONE_BY_ONE), single(b"after it")])

    def is_changed() -> bool:
        """Change it between two slices, on the loop: the changed table is saved."""
        is_packing = broker.parts.slices.count > before
        if is_packing:
            change(broker)
        return is_packing

    sim.run_until(is_changed, 10)
    sim.run_until(lambda: len(large.answers) == 2, 60)
    assert [answer.code for answer in large.answers] == [code] * 2
    assert broker.store.log.end == end


def test_of_a_client_that_leaves_nothing_is_stored(sim: Simulation, broker: Broker) -> None:
    end = broker.store.log.end
    left = Asked(sim, "10.0.0.9", [batch(ONE_BY_ONE), single(b"after it")])
    sim.run_until(lambda: any(peer.unanswered for peer in peers(broker)), 10)
    for peer in peers(broker):
        peer.abort()
    sim.run_for(5)
    assert left.answers == []
    assert broker.store.log.end == end
    assert send(Client(sim, sim.host("10.0.0.8")), b"of another").code == 0
    assert bodies_in(broker.store, "T") == [b"of another"]


def test_records_that_take_much_more_than_the_body_are_refused(
    sim: Simulation, broker: Broker
) -> None:
    """Each has the properties of the whole batch: 100 KB could become gigabytes."""
    client, end = Client(sim, sim.host("10.0.0.9")), broker.store.log.end
    for bodies, properties in (([b"x"] * 50_000, ""), ([b"x"] * 200, "p\x01" + "v" * 30_000)):
        request = batch(bodies, properties)
        answer = client.call(request.code, request.body, **request.fields)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark is not None
        assert "(maxMessageSize + 65536)" in answer.remark
        assert answer.remark.endswith("send it as several batches")
    assert broker.store.log.end == end


def test_the_same_limit_holds_for_batches_whose_form_is_learnt(
    sim: Simulation, broker: Broker
) -> None:
    client = Client(sim, sim.host("10.0.0.9"))

    def alike(count: int) -> int:
        body = b"".join(
            batch_item(0, b"body", b"UNIQ_KEY\x01%032X" % number) for number in range(count)
        )
        return client.call(RequestCode.SEND_BATCH_MESSAGE, body, **batch([]).fields).code

    fitting = (4 * 1024 * 1024 + 65536) // (91 + 1 + 4 + 41 + 1 + len("CLUSTER\x01DefaultCluster"))
    answers = [alike(count) for count in (3, fitting, fitting + 1, fitting)]
    assert answers == [0, 0, ResponseCode.MESSAGE_ILLEGAL, 0]
    assert broker.store.max_offset("T", 0) == 3 + 2 * fitting
