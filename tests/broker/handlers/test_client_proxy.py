"""Administrators ask consumers over their broker.

See docs/protocol/administration.md#relays.
"""

from __future__ import annotations

import pytest

from roquet.broker.handlers.client_proxy import TIMEOUT_MS
from roquet.protocol.records.record import decode
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import BINARY, Command
from tests.broker.members import ADDRESS, Administrator, Consumer
from tests.broker.served import send, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    return started(sim, ADDRESS, defaultTopicQueueNums=2)


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
