"""Clients that do not read what they are sent: others are told why they get nothing from them, and
nothing piles up.
"""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from roquet.errors import CallTimeout
from roquet.protocol.bodies.tables import ConsumerData, Heartbeat, Subscription
from roquet.protocol.headers.send import SendHeaderV2
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import join_properties
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection, Handler
from roquet.transport.handling import Answer
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

ADDRESS = "10.0.0.1"
TOPIC = "DefaultCluster_REPLY_TOPIC"
KIB = 1024
UNREAD_MAX = 64 * KIB
LARGE = 100 * KIB
"""Bytes of a reply; three fill the kernels on the way."""


class Deaf(Client):
    """A producer, and a member of group `g`, that stops reading when it is told to."""

    def __init__(self, sim: Simulation, node: BrokerNode, address: str = "10.0.0.9") -> None:
        self.heard: list[int] = []
        codes = (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        handlers: dict[int, Handler] = dict.fromkeys(codes, self._hear)
        super().__init__(sim, sim.host(address), node.address, handlers)
        group = ConsumerData("g", subscriptions=(Subscription("T", version=1),))
        self.heartbeat = dump_bytes(Heartbeat(address, ("P",), (group,)).to_json())
        assert self.call(RequestCode.HEART_BEAT, self.heartbeat).code == 0

    def _hear(self, request: Command, connection: Connection) -> Answer:
        self.heard.append(request.code)
        return request.answer(0)

    def stop_reading(self) -> None:
        self._connection().pause_reading()

    def read_again(self) -> None:
        self._connection().resume_reading()

    def _connection(self) -> Connection:
        async def connection() -> Connection:
            return await self.channels.connection(self.broker)

        return self.host.call(connection)


class Replier(Client):
    def reply(self, body: bytes) -> Command:
        pairs = {"MSG_TYPE": "reply", "CORRELATION_ID": "7", "REPLY_TO_CLIENT": "10.0.0.9"}
        header = SendHeaderV2(
            "R", TOPIC, 0, 0, self.host.now_ms(), 3, properties=join_properties(pairs)
        )
        request = Command(RequestCode.SEND_REPLY_MESSAGE_V2, header.write(), body)
        return self.host.call(lambda: self.channels.call(self.broker, request, 20_000))


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    return started(
        sim, ADDRESS, storeReplyMessageEnable="false", answerBytesPerConnectionMax=UNREAD_MAX
    )


@pytest.fixture
def deaf(sim: Simulation, node: BrokerNode) -> Deaf:
    return Deaf(sim, node)


@pytest.fixture
def other(sim: Simulation, node: BrokerNode) -> Replier:
    return Replier(sim, sim.host("10.0.0.8"), node.address)


def fill(deaf: Deaf, other: Replier) -> list[Command]:
    """Reply to a client that does not read; the answers."""
    deaf.stop_reading()
    return [other.reply(bytes(LARGE)) for _ in range(12)]


def answer_bytes(node: BrokerNode) -> int:
    async def look() -> int:
        peers = serving(node).parts.peers
        peers.look()
        return peers.answers.size

    return node.host.call(look)


def test_replies_for_a_client_that_does_not_read_are_refused_and_their_sender_is_told_why(
    node: BrokerNode, deaf: Deaf, other: Replier, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    answers = fill(deaf, other)
    late = [answer for answer in answers if "does not read" in (answer.remark or "")]
    assert len(late) >= 6
    assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_ERROR}
    assert "bytes wait for it" in (late[0].remark or "")
    assert answer_bytes(node) <= UNREAD_MAX + 2 * LARGE
    assert len([line for line in caplog.messages if "reply not delivered" in line]) == 1, (
        "one a minute"
    )


def test_relays_and_resets_for_it_are_refused_as_well(
    node: BrokerNode, deaf: Deaf, other: Replier
) -> None:
    assert send(other, b"one").code == 0
    fill(deaf, other)
    before = answer_bytes(node)
    info = other.call(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="10.0.0.9")
    assert info.code == ResponseCode.SYSTEM_BUSY
    assert "does not read" in (info.remark or "")
    place = {"topic": "T", "queueId": 0}
    assert (
        other.call(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", commitOffset=0, **place
        ).code
        == 0
    )
    asked = {"group": "g", "timestamp": -1, "isForce": "true", **place}
    reset = other.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **asked)
    assert reset.code == ResponseCode.SYSTEM_BUSY
    assert "no consumer is reset" in (reset.remark or "")
    assert answer_bytes(node) == before


def test_the_group_goes_on_without_it_and_nothing_piles_up(
    sim: Simulation, node: BrokerNode, deaf: Deaf
) -> None:
    other = Replier(sim, sim.host("10.0.0.8"), node.address)
    fill(deaf, other)
    before = answer_bytes(node)
    member = Deaf(sim, node, "10.0.0.7")
    for _ in range(20):
        assert (
            member.call(RequestCode.UNREGISTER_CLIENT, clientID="10.0.0.7", consumerGroup="g").code
            == 0
        )
        assert member.call(RequestCode.HEART_BEAT, member.heartbeat).code == 0
    assert answer_bytes(node) == before
    assert member.heard.count(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED) >= 20


def test_once_it_reads_it_is_told_and_replied_to_again(
    sim: Simulation, node: BrokerNode, deaf: Deaf, other: Replier
) -> None:
    fill(deaf, other)
    deaf.read_again()
    sim.run_for(5)
    assert answer_bytes(node) == 0
    assert other.reply(b"again").code == 0


def test_it_is_ended_after_the_idle_time_whatever_is_sent_to_it(
    sim: Simulation, node: BrokerNode, deaf: Deaf, other: Replier
) -> None:
    fill(deaf, other)
    sim.run_for(140)
    assert answer_bytes(node) == 0
    assert "not found" in (other.reply(b"x").remark or "")


def test_the_broker_shows_what_it_holds(node: BrokerNode, deaf: Deaf, other: Replier) -> None:
    fill(deaf, other)
    body = other.call(RequestCode.GET_BROKER_RUNTIME_INFO).body.decode()
    for name in (
        "connections",
        "connectionsPeak",
        "connectionsEnded",
        "answerBytesPeak",
        "requestBytesMax",
    ):
        assert f'"{name}"' in body
    assert '"answerBytes":"0"' not in body.replace(" ", "")


def test_what_held_pulls_keep_is_bounded_for_each_client(node: BrokerNode, other: Replier) -> None:
    assert send(other, b"one").code == 0
    place = {"topic": "T", "queueId": 0, "queueOffset": 1, "commitOffset": 0, "maxMsgNums": 1}
    kinds = {
        "sysFlag": 6,
        "suspendTimeoutMillis": 60_000,
        "consumerGroup": "h",
        "subVersion": 0,
        "expressionType": "TAG",
    }

    def request(text: str, body: bytes = b"") -> Command:
        fields = {**place, **kinds, "subscription": text}
        return Command(
            RequestCode.PULL_MESSAGE, {name: str(value) for name, value in fields.items()}, body
        )

    async def pull_all() -> list[Command | BaseException]:
        calls = [other.channels.call(other.broker, request("a" * 8_000), 8_000) for _ in range(20)]
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = other.host.call(pull_all)
    refused = [answer for answer in answers if isinstance(answer, Command)]
    assert len(answers) - len(refused) == 8, "they wait"
    assert {answer.code for answer in refused} == {ResponseCode.SYSTEM_BUSY}

    async def pull_with_a_body() -> None:
        with pytest.raises(CallTimeout):
            await other.channels.call(other.broker, request("a", bytes(UNREAD_MAX)), 1_000)

    other.host.call(pull_with_a_body)
    gc.collect()
    assert not [
        each
        for each in gc.get_objects()
        if isinstance(each, Command) and len(each.body) == UNREAD_MAX
    ]
    held = [
        peer.held(0.0)
        for peer in serving(node).parts.peers.connections
        if peer.peer_host_name == "10.0.0.8"
    ]
    assert [requests < 1_000 for _, requests in held] == [True], "neither body nor header stay"


def test_a_one_way_sender_waits_for_a_broker_that_does_not_read(
    sim: Simulation, node: BrokerNode
) -> None:
    host = sim.host("10.0.0.6")
    sent = 0

    async def send_on(connection: Connection) -> None:
        nonlocal sent
        while sent < 200:
            await connection.room(2_000)
            connection.calls.notify(Command(9999, body=bytes(LARGE)))
            sent += 1

    async def send_until_it_is_too_much() -> None:
        connection = await Channels().connection(node.address)
        with pytest.raises(CallTimeout, match="does not read"):
            await send_on(connection)

    async def stop_reading() -> None:
        for each in serving(node).parts.peers.connections:
            assert isinstance(each, Connection)
            each.pause_reading()

    task = host.start(send_until_it_is_too_much)
    sim.run_until(lambda: sent > 0, 5)
    node.host.call(stop_reading)
    sim.run_until(task.done, 10)
    assert sent * LARGE < 6 * 1024 * KIB
