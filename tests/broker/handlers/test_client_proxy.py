"""Administrators ask consumers over their broker.

See docs/protocol/administration.md#relays.
"""

from __future__ import annotations

from typing import Any

import pytest

from roquet.broker.handlers.client_proxy import TIMEOUT_MS
from roquet.broker.handlers.member_status import SIZE_MAX
from roquet.errors import ConnectionClosed
from roquet.protocol.bodies.tables import ConsumerData, Heartbeat, Subscription
from roquet.protocol.json.dialect import dump_bytes, load
from roquet.protocol.records.record import decode
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import BINARY, Command
from roquet.transport.connection import Connection
from roquet.transport.handling import Answer
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

ADDRESS = "10.0.0.1"
ASKED = (
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
)


class Consumer(Client):
    """A member of group `g`; `answer` gives its answers, none where it gives None."""

    def __init__(self, sim: Simulation, node: BrokerNode, address: str = "10.0.0.9") -> None:
        super().__init__(sim, sim.host(address), node.address, dict.fromkeys(ASKED, self._asked))
        self.client_id = f"{address}@1"
        self.asked: list[Command] = []
        self.answers: dict[int, tuple[int, bytes] | None] = {}
        group = ConsumerData("g", subscriptions=(Subscription("T", version=1),))
        body = dump_bytes(Heartbeat(self.client_id, (), (group,)).to_json())
        assert self.call(RequestCode.HEART_BEAT, body).code == 0

    def _asked(self, request: Command, connection: Connection) -> Answer:
        self.asked.append(request)
        answer = self.answers.get(request.code)
        return None if answer is None else request.answer(answer[0], "as scripted", body=answer[1])


class Administrator(Client):
    """Waits longer than a broker does for its clients."""

    def ask_over(self, code: int, language: str = "JAVA", **fields: object) -> Command:
        request = Command(
            code, {name: str(value) for name, value in fields.items()}, language=language
        )
        return self.host.call(lambda: self.channels.call(self.broker, request, 3 * TIMEOUT_MS))


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    return started(sim, ADDRESS, defaultTopicQueueNums=2)


@pytest.fixture
def admin(sim: Simulation, node: BrokerNode) -> Administrator:
    return Administrator(sim, sim.host("10.0.0.99"), node.address)


@pytest.fixture
def consumer(sim: Simulation, node: BrokerNode) -> Consumer:
    return Consumer(sim, node)


def queue_key(queue_id: int) -> str:
    return dump_bytes({"brokerName": "broker-a", "queueId": queue_id, "topic": "T"}).decode()


def fill(node: BrokerNode, admin: Client, count: int = 4) -> None:
    """So many messages in the first queue of T, a second apart, of which `g` has had all but the
    last.
    """
    for number in range(count):
        assert send(admin, str(number).encode()).code == 0
        admin.sim.run_for(1)
    broker = serving(node)
    for queue_id, offset in (0, count - 1), (1, 0):
        broker.parts.tables.offsets.commit("g", "T", queue_id, offset)


def offsets(answer: Command) -> dict[str, int]:
    assert answer.code == 0, answer.remark
    table: dict[str, int] = load(answer.body)["offsetTable"]
    return table


# passing on


def test_a_clients_answer_is_passed_on_as_it_is(consumer: Consumer, admin: Administrator) -> None:
    consumer.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = (77, b'{"mqTable":{}}')
    fields = {"consumerGroup": "g", "clientId": consumer.client_id, "jstackEnable": "true"}
    answer = admin.ask_over(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields)
    assert (answer.code, answer.remark, answer.body) == (77, "as scripted", b'{"mqTable":{}}')
    assert consumer.asked[0].fields == fields


def test_a_message_is_looked_up_and_given_to_the_client_that_shall_consume_it(
    node: BrokerNode, consumer: Consumer, admin: Administrator
) -> None:
    message_id = send(admin, b"body").fields["msgId"]
    consumer.answers[RequestCode.CONSUME_MESSAGE_DIRECTLY] = (0, b'{"consumeResult":"CR_SUCCESS"}')
    fields = {"consumerGroup": "g", "clientId": consumer.client_id, "msgId": message_id}
    answer = admin.ask_over(RequestCode.CONSUME_MESSAGE_DIRECTLY, **fields)
    assert (answer.code, answer.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')
    (asked,) = consumer.asked
    assert asked.fields == {**fields, "brokerName": "broker-a"}
    assert (decode(asked.body).topic, decode(asked.body).body) == ("T", b"body")


def test_messages_that_clients_shall_consume_are_kept_for_who_asks_up_to_a_bound(
    sim: Simulation,
) -> None:
    """A request has 200 bytes, and the message that it names may have 4 MiB."""
    node = started(sim, ADDRESS, answerBytesPerConnectionMax=8000)
    admin, consumer = Administrator(sim, sim.host("10.0.0.99"), node.address), Consumer(sim, node)
    message_id = send(admin, bytes(3000)).fields["msgId"]
    fields = {"consumerGroup": "g", "clientId": consumer.client_id, "msgId": message_id}

    async def ask() -> list[int]:
        connection = await admin.channels.connection(node.address)
        requests = [Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, dict(fields)) for _ in range(4)]
        return [answer.code for answer in await connection.calls.call_all(requests, 3 * TIMEOUT_MS)]

    late, busy = ResponseCode.CONSUME_MSG_TIMEOUT, ResponseCode.SYSTEM_BUSY
    assert admin.host.call(ask) == [late, late, busy, busy]


def test_an_answer_that_has_no_form_for_who_asked_is_told_of_at_once(
    consumer: Consumer, admin: Administrator
) -> None:
    """Codes have 32 bits in JSON headers and 16 in binary ones."""
    consumer.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = (70_000, b"")
    fields = {"consumerGroup": "g", "clientId": consumer.client_id}
    request = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields, header_type=BINARY)
    answer = admin.host.call(lambda: admin.channels.call(admin.broker, request, TIMEOUT_MS))
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_a_client_that_does_not_answer_in_time_or_leaves_is_told_of(
    consumer: Consumer, admin: Administrator
) -> None:
    fields = {"consumerGroup": "g", "clientId": consumer.client_id}
    assert (
        admin.ask_over(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields).code
        == ResponseCode.CONSUME_MSG_TIMEOUT
    )
    admin.sim.loop.call_later(1, consumer.host.kill)
    assert (
        admin.ask_over(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields).code
        == ResponseCode.SYSTEM_ERROR
    )
    answer = admin.ask_over(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields)
    assert (answer.code, answer.remark) == (
        1,
        f"no consumer {consumer.client_id} of group g is connected",
    )


def test_others_are_served_while_a_client_is_waited_for(
    consumer: Consumer, admin: Administrator
) -> None:
    async def both() -> float:
        fields = {"consumerGroup": "g", "clientId": consumer.client_id}
        asked = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        task = admin.sim.loop.create_task(admin.channels.call(admin.broker, asked, 3 * TIMEOUT_MS))
        began = admin.sim.now_s
        await admin.channels.call(admin.broker, Command(RequestCode.GET_ALL_TOPIC_CONFIG), 5000)
        took = admin.sim.now_s - began
        await task
        return took

    assert admin.host.call(both) < 1


def test_no_message_and_no_message_id_are_refused(consumer: Consumer, admin: Administrator) -> None:
    fields = {"consumerGroup": "g", "clientId": consumer.client_id}
    for message_id in "x", "0A00000100002A9F00000000000FFFFF":
        assert (
            admin.ask_over(RequestCode.CONSUME_MESSAGE_DIRECTLY, **fields, msgId=message_id).code
            == 1
        )
    assert consumer.asked == []


# resetting


def test_every_member_is_told_where_to_go_on(
    node: BrokerNode, sim: Simulation, admin: Administrator
) -> None:
    members = [Consumer(sim, node, address) for address in ("10.0.0.8", "10.0.0.9")]
    fill(node, admin)
    start_ms = node.host.now_ms() - 3000
    answer = admin.ask_over(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        topic="T",
        group="g",
        timestamp=start_ms,
        isForce="false",
    )
    assert offsets(answer) == {queue_key(0): 1, queue_key(1): 0}
    sim.run_for(1)
    for member in members:
        (asked,) = member.asked
        assert (asked.body, asked.is_one_way) == (answer.body, True)
        assert asked.fields == {
            "topic": "T",
            "group": "g",
            "timestamp": str(start_ms),
            "isForce": "false",
        }


@pytest.mark.parametrize(("is_force", "offset"), [("true", 4), ("false", 3)])
def test_only_force_sends_a_group_ahead(
    node: BrokerNode, consumer: Consumer, admin: Administrator, is_force: str, offset: int
) -> None:
    fill(node, admin)
    fields: dict[str, Any] = {"topic": "T", "group": "g", "timestamp": -1, "isForce": is_force}
    answer = admin.ask_over(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
    assert offsets(answer)[queue_key(0)] == offset


def test_one_queue_and_an_offset_as_5x_names_them(
    node: BrokerNode, consumer: Consumer, admin: Administrator
) -> None:
    fill(node, admin)
    fields: dict[str, Any] = {
        "topic": "T",
        "group": "g",
        "timestamp": -1,
        "isForce": "true",
        "queueId": 0,
    }
    reset = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    assert offsets(admin.ask_over(reset, **fields, offset=-1)) == {queue_key(0): 4}
    assert offsets(admin.ask_over(reset, **fields, offset=2)) == {queue_key(0): 2}
    assert offsets(admin.ask_over(reset, **fields, offset=99)) == {queue_key(0): 4}
    assert admin.ask_over(reset, **{**fields, "queueId": 2}).code == 1


def test_clients_in_c_get_a_list(
    sim: Simulation, node: BrokerNode, consumer: Consumer, admin: Administrator
) -> None:
    fill(node, admin)
    fields: dict[str, Any] = {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"}
    answer = admin.ask_over(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, "CPP", **fields)
    sim.run_for(1)
    assert offsets(answer) == {queue_key(0): 4, queue_key(1): 0}
    queues = [
        {"brokerName": "broker-a", "offset": at, "queueId": number, "topic": "T"}
        for number, at in ((0, 4), (1, 0))
    ]
    assert load(consumer.asked[0].body) == {"offsetTable": queues}


def test_a_reset_is_refused_for_what_is_not_there(node: BrokerNode, admin: Administrator) -> None:
    fields: dict[str, Any] = {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"}
    reset = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    assert admin.ask_over(reset, **fields).code == ResponseCode.SYSTEM_ERROR, "no such topic"
    send(admin, b"body")
    answer = admin.ask_over(reset, **fields)
    assert (answer.code, answer.remark) == (
        1,
        "group g has no offset in queue 0 of topic T: nothing is reset",
    )
    fill(node, admin)
    assert admin.ask_over(reset, **fields).code == ResponseCode.CONSUMER_NOT_ONLINE


# asking where they are


def test_the_members_that_answer_say_where_they_are(
    sim: Simulation, node: BrokerNode, admin: Administrator
) -> None:
    first, silent, wrong = (Consumer(sim, node, f"10.0.0.{number}") for number in (7, 8, 9))
    table = b'{"consumerTable":{},"messageQueueTable":{' + queue_key(0).encode() + b":6}}"
    first.answers[RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT] = (0, table)
    wrong.answers[RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT] = (0, b"[]")
    status = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    answer = admin.ask_over(status, topic="T", group="g")
    assert load(answer.body) == {
        "consumerTable": {first.client_id: {queue_key(0): 6}},
        "messageQueueTable": {},
    }
    answer = admin.ask_over(status, topic="T", group="g", clientAddr=silent.client_id)
    assert load(answer.body)["consumerTable"] == {}
    assert (len(first.asked), len(silent.asked)) == (1, 2)
    assert first.asked[0].fields == {"topic": "T", "group": "g"}
    assert admin.ask_over(status, topic="T", group="nobody").code == ResponseCode.SYSTEM_ERROR


def test_an_answer_that_would_take_long_to_read_counts_as_none(
    sim: Simulation, node: BrokerNode, admin: Administrator, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a client's: of JSON that only Python reads a few MB would hold up the broker for half a
    minute.
    """
    honest, hostile = (Consumer(sim, node, f"10.0.0.{number}") for number in (7, 8))
    code, status = (
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    )
    honest.answers[code] = (0, b'{"messageQueueTable":{' + queue_key(0).encode() + b":6}}")
    entries = b",".join(b"%d:1" % number for number in range(100_000))
    for body in (
        b'{"messageQueueTable":{' + entries + b"}}",
        b'{"messageQueueTable":{}' + b" " * 600_000 + b"}",
    ):
        hostile.answers[code] = (0, body)
        answer = admin.ask_over(status, topic="T", group="g")
        assert list(load(answer.body)["consumerTable"]) == [honest.client_id]
    assert len([line for line in caplog.messages if "did not report its offsets" in line]) == 1


def test_members_that_are_silent_or_gone_are_not_waited_for_any_more(
    sim: Simulation, node: BrokerNode, admin: Administrator
) -> None:
    silent, leaves = (Consumer(sim, node, f"10.0.0.{number}") for number in (7, 8))
    answers: list[Command] = []

    async def ask() -> None:
        fields = {"topic": "T", "group": "g"}
        request = Command(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
        answers.append(await admin.channels.call(admin.broker, request, 3 * TIMEOUT_MS))

    admin.host.start(ask)
    sim.run_for(1)
    leaves.close()
    sim.run_for(10)
    (answer,) = answers
    assert load(answer.body)["consumerTable"] == {}
    assert len(silent.asked) == 1
    assert not [each for each in serving(node)._main.connections if each.calls.waiting]


def test_an_administrator_who_leaves_is_not_asked_for_any_more(
    sim: Simulation, node: BrokerNode, admin: Administrator
) -> None:
    silent = Consumer(sim, node)

    async def ask() -> None:
        request = Command(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "T", "group": "g"}
        )
        with pytest.raises(ConnectionClosed):
            await admin.channels.call(admin.broker, request, 3 * TIMEOUT_MS)

    admin.host.start(ask)
    sim.run_for(1)
    assert len(silent.asked) == 1
    admin.close()
    assert not [each for each in serving(node)._main.connections if each.calls.waiting]


def test_answers_that_are_too_large_together_are_refused(
    sim: Simulation, node: BrokerNode, admin: Administrator
) -> None:
    """Each may have 512 KiB, and there may be 10,000."""
    body = b'{"messageQueueTable":{}' + b" " * 500_000 + b"}"
    for number in range(SIZE_MAX // len(body) + 1):
        member = Consumer(sim, node, f"10.1.0.{number + 1}")
        member.answers[RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT] = (0, body)
    answer = admin.ask_over(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="g")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (
        answer.remark
        == f"the members' answers have more than {SIZE_MAX} bytes: ask one by one (clientAddr)"
    )


# cloning


@pytest.mark.parametrize("topic", ["T", None])
def test_a_group_goes_on_where_another_is(
    node: BrokerNode, admin: Administrator, topic: str | None
) -> None:
    fill(node, admin)
    fields = {"srcGroup": "g", "destGroup": "copy", **({"topic": topic} if topic else {})}
    assert admin.call(RequestCode.CLONE_GROUP_OFFSET, **fields).code == 0
    assert [
        serving(node).parts.tables.offsets.committed("copy", "T", queue_id) for queue_id in (0, 1)
    ] == [3, 0]


def test_what_an_online_group_gave_up_is_cloned_only_on_request(
    node: BrokerNode, consumer: Consumer, admin: Administrator
) -> None:
    send(admin, b"body", "U")
    serving(node).parts.tables.offsets.commit("g", "U", 0, 1)
    fields = {"srcGroup": "g", "destGroup": "copy", "topic": "U"}
    admin.call(RequestCode.CLONE_GROUP_OFFSET, **fields)
    assert serving(node).parts.tables.offsets.committed("copy", "U", 0) is None
    admin.call(RequestCode.CLONE_GROUP_OFFSET, **fields, offline="true")
    assert serving(node).parts.tables.offsets.committed("copy", "U", 0) == 1
