"""Where the members of a group are, by their own word.

See docs/protocol/administration.md#status-of-members.
"""

from __future__ import annotations

import pytest

from roquet.broker.handlers.client_proxy import TIMEOUT_MS
from roquet.broker.handlers.member_status import SIZE_MAX
from roquet.errors import ConnectionClosed
from roquet.protocol.json.dialect import load
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.broker.members import ADDRESS, Administrator, Consumer, queue_key
from tests.broker.served import serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    return started(sim, ADDRESS, defaultTopicQueueNums=2)


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
