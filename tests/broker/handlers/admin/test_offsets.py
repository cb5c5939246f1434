"""Resetting the offsets of a group, and giving them to another one.

See docs/protocol/consuming.md#reset-by-an-administrator and
docs/protocol/administration.md#cloning-offsets.
"""

from __future__ import annotations

from typing import Any

import pytest

from roquet.protocol.json.dialect import load
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection
from tests.broker.members import ADDRESS, Administrator, Consumer, fill, offsets, queue_key
from tests.broker.served import send, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    return started(sim, ADDRESS, defaultTopicQueueNums=2)


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


def test_no_member_is_reset_while_one_of_them_does_not_read(sim: Simulation) -> None:
    node = started(sim, ADDRESS, defaultTopicQueueNums=2, answerBytesPerConnectionMax=4096)
    admin = Administrator(sim, sim.host("10.0.0.99"), node.address)
    members = [Consumer(sim, node, address) for address in ("10.0.0.8", "10.0.0.9")]
    fill(node, admin)
    (deaf,) = (
        each
        for each in serving(node).parts.peers.connections
        if each.peer_host_name == members[1].host.address
    )
    assert isinstance(deaf, Connection)

    async def stop_reading() -> None:
        (await members[1].channels.connection(node.address)).pause_reading()

    members[1].host.call(stop_reading)
    for _ in range(100):
        deaf.calls.notify(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"g": "g" * 4000}))
    fields: dict[str, Any] = {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"}
    answer = admin.ask_over(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "no consumer is reset of group g, try again" in str(answer.remark)
    sim.run_for(1)
    assert members[0].asked == []


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


def test_a_topic_that_is_gone_is_not_cloned_and_the_others_are(
    node: BrokerNode, admin: Administrator, caplog: pytest.LogCaptureFixture
) -> None:
    fill(node, admin)
    committed = serving(node).parts.tables.offsets
    committed.commit("g", "gone", 0, 5)
    assert admin.call(RequestCode.CLONE_GROUP_OFFSET, srcGroup="g", destGroup="copy").code == 0
    assert committed.committed("copy", "gone", 0) is None
    assert committed.committed("copy", "T", 0) == 3
    assert "offsets not cloned, the topic does not exist: group=g topic=gone" in caplog.messages
