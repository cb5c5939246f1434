"""A reply reaches the client that asked, and is kept where that is wanted.

See docs/protocol/producing.md#request-and-reply.
"""

from __future__ import annotations

import pytest

from roquet.protocol.bodies.tables import Heartbeat
from roquet.protocol.headers.replies import PushReplyHeader
from roquet.protocol.headers.send import SendHeader, SendHeaderV2
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import join_properties, split_properties
from roquet.protocol.records.record import decode
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import BINARY, Command
from roquet.transport.connection import Connection, Handler
from roquet.transport.handling import Answer
from tests.broker.harness import Client
from tests.broker.served import serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

ADDRESS = "10.0.0.1"
TOPIC = "DefaultCluster_REPLY_TOPIC"


class Asker(Client):
    """A producer that waits for replies; `code` is what it answers when it gets one."""

    def __init__(self, sim: Simulation, node: BrokerNode) -> None:
        handlers: dict[int, Handler] = {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._pushed}
        super().__init__(sim, sim.host("10.0.0.9"), node.address, handlers)
        self.pushed: list[Command] = []
        self.code: int | None = 0
        body = dump_bytes(Heartbeat("asker", ("P",), ()).to_json())
        assert self.call(RequestCode.HEART_BEAT, body).code == 0

    def _pushed(self, request: Command, connection: Connection) -> Answer:
        self.pushed.append(request)
        return None if self.code is None else request.answer(self.code)


class Replier(Client):
    def reply(
        self,
        to: str | None = "asker",
        topic: str = TOPIC,
        code: int = RequestCode.SEND_REPLY_MESSAGE_V2,
        header_type: int = 0,
    ) -> Command:
        pairs = {
            "MSG_TYPE": "reply",
            "CORRELATION_ID": "7",
            **({"REPLY_TO_CLIENT": to} if to else {}),
        }
        kind = SendHeader if code == RequestCode.SEND_REPLY_MESSAGE else SendHeaderV2
        header = kind("R", topic, 0, 0, self.host.now_ms(), 3, properties=join_properties(pairs))
        request = Command(code, header.write(), b"reply", header_type=header_type)
        return self.host.call(lambda: self.channels.call(self.broker, request, 20_000))


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    return started(sim, ADDRESS)


@pytest.fixture
def asker(sim: Simulation, node: BrokerNode) -> Asker:
    return Asker(sim, node)


@pytest.fixture
def replier(sim: Simulation, node: BrokerNode) -> Replier:
    return Replier(sim, sim.host("10.0.0.8"), node.address)


def stored(node: BrokerNode) -> list[bytes]:
    store = serving(node).store
    return [
        decode(store.log.record_at(at) or b"").body
        for at, *_ in store.queue(TOPIC, 0).entries(0, 100)
    ]


@pytest.mark.parametrize(
    "code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2]
)
def test_a_reply_is_handed_to_who_asked_and_stored(
    node: BrokerNode, asker: Asker, replier: Replier, code: int
) -> None:
    answer = replier.reply(code=code)
    assert (answer.code, answer.fields["queueId"], answer.fields["queueOffset"]) == (0, "0", "0")
    (pushed,) = asker.pushed
    header = PushReplyHeader.read(pushed.fields)
    assert (header.topic, header.queue_id, header.flag, pushed.body) == (TOPIC, 0, 3, b"reply")
    assert (header.born_host.split(":")[0], header.store_host) == ("10.0.0.8", f"{ADDRESS}:10911")
    pairs = split_properties(header.properties)
    assert (pairs["CORRELATION_ID"], pairs["PUSH_REPLY_TIME"]) == ("7", str(header.store_timestamp))
    assert stored(node) == [b"reply"]


@pytest.mark.parametrize("header_type", [0, BINARY])
def test_a_reply_that_is_not_to_be_stored_is_not(sim: Simulation, header_type: int) -> None:
    node = started(sim, ADDRESS, storeReplyMessageEnable="false")
    asker, replier = Asker(sim, node), Replier(sim, sim.host("10.0.0.8"), node.address)
    answer = replier.reply(header_type=header_type)
    fields = {name: answer.fields[name] for name in ("msgId", "queueId", "queueOffset")}
    assert (answer.code, fields) == (0, {"msgId": "0", "queueId": "0", "queueOffset": "0"})
    assert (len(asker.pushed), stored(node)) == (1, [])


@pytest.mark.parametrize(
    ("to", "code", "remark"),
    [
        ("somebody", 0, "channel of <somebody> not found"),
        (None, 0, "properties[REPLY_TO_CLIENT] is null"),
        ("asker", 1, "push reply message to asker fail"),
        ("asker", None, "did not answer"),
    ],
)
def test_the_sender_is_told_that_nobody_got_its_reply_which_is_stored_nevertheless(
    node: BrokerNode, asker: Asker, replier: Replier, to: str | None, code: int | None, remark: str
) -> None:
    asker.code = code
    answer = replier.reply(to)
    assert (answer.code, remark in (answer.remark or "")) == (1, True), answer.remark
    assert stored(node) == [b"reply"]


def test_a_reply_to_a_topic_of_the_brokers_own_is_refused_and_goes_nowhere(
    asker: Asker, replier: Replier
) -> None:
    assert replier.reply(topic="SELF_TEST_TOPIC").code == 16
    assert asker.pushed == []


def test_a_reply_that_has_to_be_on_disk_is_answered_when_it_is(sim: Simulation) -> None:
    node = started(sim, ADDRESS, flushDiskType="SYNC_FLUSH")
    Asker(sim, node)
    replier = Replier(sim, sim.host("10.0.0.8"), node.address)
    assert replier.reply().code == 0
    log = serving(node).store.log
    assert log.flushed_to == log.end
