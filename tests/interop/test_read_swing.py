"""Who reads far behind is sent to the slave, and comes back to the master when it has caught up.

With accessMessageInMemoryMaxRatio=0 every message that is found counts as far behind, for ours and
Apache's alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import pytest

from roquet.client.consumer import Consumer
from tests.golden.frames import Exchange, exchanges
from tests.golden.proxy import RecordingProxy
from tests.interop import wire
from tests.interop.apache import JavaClients, free_port, wait_until
from tests.interop.couples import SEND_OK, Couple, Maker
from tests.interop.processes import SECONDS
from tests.interop.roquet_cluster import RoquetNameServer
from tests.interop.stored import FOUND, PULL_MESSAGE, records

pytestmark = pytest.mark.interop

OURS, APACHE, _ = Maker
CLIENT = "4.9.7-json"
LINGER = ("--linger", 500)
"""The driver counts a message before its consumer does, which stores its progress when it ends."""
BACKLOG = 60
QUERY_PROGRESS, STORE_PROGRESS = 14, 15
COMMITS = 1
PULLED = {0, 19, 20, 21}
"""The codes of answers that say where to pull next."""
PROPERTIES: dict[str, str | int] = {
    "slaveReadEnable": "true",
    "accessMessageInMemoryMaxRatio": 0,
    "longPollingEnable": "false",
}
"""Without long polling a broker keeps a pull that finds nothing for one second."""
MASTER, SLAVE = 0, 1


@dataclass(frozen=True)
class Pull:
    """One pull of a queue, and what the broker with this id answered."""

    broker_id: int
    at_ms: float
    offset: int
    commits: bool
    code: int
    suggested: int
    given: tuple[int, ...]


class Watched:
    """A couple whose clients come through doors that see what they ask; the name server behind its
    door names those.
    """

    def __init__(self, couple: Couple) -> None:
        self.couple = couple
        brokers = (couple.master, couple.slave)
        self.doors = [RecordingProxy(broker.address, free_port()) for broker in brokers]
        named = {
            broker.address.encode(): door.address.encode()
            for broker, door in zip(brokers, self.doors, strict=True)
        }
        self.name_server = RecordingProxy(couple.namesrv, free_port(), replaced=named)

    def asked(self, broker_id: int, code: int, group: str) -> list[tuple[float, Exchange]]:
        """What members of the group asked of the broker, and when."""
        return [
            (connection.opened * 1000 + each.request.at_ms, each)
            for connection in list(self.doors[broker_id].connections)
            for each in exchanges(connection)
            if each.request.code == code and each.request.fields.get("consumerGroup") == group
        ]

    def pulls(self, group: str, topic: str, queue_id: int) -> list[Pull]:
        """Those that were answered, in their order."""
        found = [
            _pull(broker_id, at_ms, each)
            for broker_id in (MASTER, SLAVE)
            for at_ms, each in self.asked(broker_id, PULL_MESSAGE, group)
            if (each.request.fields["topic"], each.request.fields["queueId"])
            == (topic, str(queue_id))
            and each.answer is not None
            and each.answer.code in PULLED
        ]
        return sorted(found, key=lambda pull: pull.at_ms)


def _pull(broker_id: int, at_ms: float, each: Exchange) -> Pull:
    asked, answer = each.request.fields, each.answer
    assert answer is not None
    given = (
        tuple(record.queue_offset for record in records(answer.body))
        if answer.code == FOUND
        else ()
    )
    commits = bool(int(asked["sysFlag"]) & COMMITS)
    suggested = int(answer.fields["suggestWhichBrokerId"])
    return Pull(broker_id, at_ms, int(asked["queueOffset"]), commits, answer.code, suggested, given)


@pytest.fixture(scope="module", params=[OURS, APACHE], ids=lambda maker: maker.value)
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    """Both brokers are of one maker and know the topics, and the slave has all of the log."""
    maker = request.param
    with (
        RoquetNameServer() as names,
        Couple(
            names.address, maker, maker, "SYNC_MASTER", known=True, properties=PROPERTIES
        ) as couple,
    ):
        couple.master.start()
        for topic in ("JavaReads", "WeRead"):
            couple.create_topic(topic)
        couple.slave.start()
        couple.await_follower()
        couple.await_topic_at_slave("WeRead")
        with (watched := Watched(couple)).name_server, watched.doors[0], watched.doors[1]:
            yield watched


def test_apache_s_client_swings(watched: Watched, clients: JavaClients) -> None:
    couple, client, group = watched.couple, clients[CLIENT], "G-java"
    fill(couple, "JavaReads", BACKLOG)
    client.begin(
        "consume", watched.name_server.address, "JavaReads", group, BACKLOG + 1, SECONDS, *LINGER
    )
    client.wait_lines(BACKLOG)
    await_back_at_the_master(watched, group, "JavaReads")
    fill(couple, "JavaReads", 1)
    assert len(client.finish().check()) == BACKLOG + 1
    assert_swung(watched, group, "JavaReads")


async def test_our_client_swings(watched: Watched) -> None:
    couple, group = watched.couple, "G-ours"
    fill(couple, "WeRead", BACKLOG)
    async with (
        Consumer(watched.name_server.address, group, "WeRead", "earliest") as consumer,
        asyncio.timeout(SECONDS),
    ):
        got = await take(consumer, BACKLOG)
        await asyncio.to_thread(await_back_at_the_master, watched, group, "WeRead")
        fill(couple, "WeRead", 1)
        got += await take(consumer, 1)
    assert got == list(range(BACKLOG + 1))
    assert_swung(watched, group, "WeRead")


async def take(consumer: Consumer, count: int) -> list[int]:
    """The offsets of the next so many messages, which are acknowledged."""
    offsets: list[int] = []
    async for message in consumer:
        offsets.append(message.queue_offset)
        message.ack()
        if len(offsets) == count:
            break
    return offsets


def fill(couple: Couple, topic: str, count: int) -> None:
    """Its first queue only."""
    assert couple.send(topic, count, queues=1) == {SEND_OK}


def await_back_at_the_master(watched: Watched, group: str, topic: str) -> None:
    def is_back() -> bool:
        return any(
            pull.offset == BACKLOG and pull.broker_id == MASTER
            for pull in watched.pulls(group, topic, 0)
        )

    wait_until(is_back, f"{group} at the master", SECONDS)


def assert_swung(watched: Watched, group: str, topic: str) -> None:
    """Each pull of a queue goes where the answer before it said, for that queue alone; progress
    goes to the master.
    """
    pulls, idle = watched.pulls(group, topic, 0), watched.pulls(group, topic, 1)
    assert [pull.broker_id for pull in pulls[1:]] == [pull.suggested for pull in pulls[:-1]]
    assert [broker_id for broker_id, _ in groupby(pull.broker_id for pull in pulls)][:3] == [
        MASTER,
        SLAVE,
        MASTER,
    ]
    assert idle
    assert {(pull.broker_id, pull.code, pull.suggested) for pull in idle} == {(MASTER, 19, MASTER)}

    found = [pull for pull in pulls if pull.code == FOUND]
    assert [offset for pull in found for offset in pull.given] == list(range(BACKLOG + 1))
    assert [pull.offset for pull in found if pull.broker_id == MASTER] == [0, BACKLOG]
    assert {pull.suggested for pull in found} == {SLAVE}
    assert {pull.suggested for pull in pulls if pull.code != FOUND} == {MASTER}

    assert not any(pull.commits for pull in pulls if pull.broker_id == SLAVE)
    assert watched.asked(SLAVE, STORE_PROGRESS, group) == []
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    stored = wire.ask(watched.couple.master.address, QUERY_PROGRESS, fields).header["extFields"]
    assert int(stored["offset"]) == BACKLOG + 1
