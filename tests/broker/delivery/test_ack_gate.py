"""When a SYNC_MASTER's sends are answered, with which code, and which reason.

See docs/storage/durability.md#what-is-acknowledged-when.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.broker.harness import Client
from tests.broker.served import SEND, send, serving, started
from tests.simulation.disk import DriveSpeed
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

MASTER, SLAVE = "10.0.0.1", "10.0.0.2"


@pytest.fixture
def client(sim: Simulation) -> Client:
    return Client(sim, sim.host("10.0.0.9"))


def master(sim: Simulation, **settings: object) -> BrokerNode:
    return started(sim, MASTER, brokerRole="SYNC_MASTER", **settings)


def slave(sim: Simulation, address: str = SLAVE) -> BrokerNode:
    return started(sim, address, brokerRole="SLAVE", brokerId=1, haMasterAddress=f"{MASTER}:10912")


def with_slave(sim: Simulation, **settings: object) -> tuple[BrokerNode, BrokerNode]:
    pair = master(sim, **settings), slave(sim)
    server = serving(pair[0]).parts.ha_server
    assert server is not None
    sim.run_until(lambda: server.slave_count == 1, 10)
    return pair


def figure(client: Client, name: str) -> str:
    return str(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)["table"][name])


def test_without_a_slave_an_answer_says_so_at_once(sim: Simulation, client: Client) -> None:
    node = master(sim)
    before_s = sim.now_s
    answer = send(client, b"alone")
    assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert answer.remark == "the message is stored, but no slave is connected"
    assert sim.now_s - before_s < 1
    assert serving(node).store.max_offset("T", 0) == 1
    assert figure(client, "putMessageSlaveNotAvailableTimes") == "1"


def test_a_slave_that_has_it_makes_it_a_plain_success(sim: Simulation, client: Client) -> None:
    _, node = with_slave(sim)
    answer = send(client, b"safe")
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert serving(node).store.max_offset("T", 0) == 1
    assert figure(client, "putMessageWaiting") == "0"


def test_why_the_last_slave_is_gone_is_in_the_answer_and_told_once(
    sim: Simulation, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    _, node = with_slave(sim)
    node.host.kill()
    sim.run_for(1)
    with caplog.at_level(logging.WARNING):
        first, second = send(client, b"1"), send(client, b"2")
        node.start()
        sim.run_for(7)
        third = send(client, b"3")
    assert [first.code, second.code, third.code] == [
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SUCCESS,
    ]
    assert f"the last one, {SLAVE}:" in str(first.remark)
    assert "disconnected: the connection ended" in str(first.remark)
    told = [
        record.message
        for record in caplog.records
        if record.name == "roquet.broker.delivery.ack_gate"
    ]
    assert told == [
        "sends are stored, but not acknowledged with SEND_OK: "
        f"status=SLAVE_NOT_AVAILABLE reason={first.remark}",
        "sends are acknowledged with SEND_OK again",
    ]


def test_a_slave_that_does_not_answer_is_waited_for_so_long(
    sim: Simulation, client: Client
) -> None:
    node, _ = with_slave(sim, slaveTimeout=2000)
    sim.network.partition(MASTER, SLAVE)
    before_s = sim.now_s
    answer = send(client, b"late")
    assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert 2 <= sim.now_s - before_s < 2.3
    behind = serving(node).store.log.end
    assert answer.remark is not None
    assert answer.remark.startswith("the message is stored, but after 2")
    assert answer.remark.endswith(f" ms the nearest slave is {behind} bytes behind it")
    assert figure(client, "putMessageFlushSlaveTimeoutTimes") == "1"


def test_a_slave_too_far_behind_is_not_waited_for(sim: Simulation, client: Client) -> None:
    with_slave(sim, slaveTimeout=500, haSlaveFallbehindMax=300)
    sim.network.partition(MASTER, SLAVE)
    codes = [send(client, b"x" * 100).code for _ in range(4)]
    assert codes[0] == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert codes[-1] == ResponseCode.SLAVE_NOT_AVAILABLE
    last = send(client, b"x")
    assert str(last.remark).startswith("the message is stored, but the nearest slave is ")


def test_a_message_that_does_not_wait_is_answered_at_once(sim: Simulation, client: Client) -> None:
    with_slave(sim)
    sim.network.partition(MASTER, SLAVE)
    before_s = sim.now_s
    assert send(client, b"hasty", properties="WAIT\x01false").code == ResponseCode.SUCCESS
    assert sim.now_s - before_s < 1


def test_what_waits_for_the_disk_alone_is_not_held_up_by_what_waits_for_a_slave(
    sim: Simulation, client: Client
) -> None:
    """One send waits for the slave when that goes; those after it are known to have none, and are
    on disk at once.
    """
    _, node = with_slave(sim, flushDiskType="SYNC_FLUSH", slaveTimeout=4000)
    sim.network.partition(MASTER, SLAVE)
    fields = {**SEND, "b": "T", "e": 0, "i": ""}
    request = Command(
        RequestCode.SEND_MESSAGE_V2, {name: str(value) for name, value in fields.items()}, b"waits"
    )

    async def begin() -> asyncio.Task[Command]:
        return asyncio.get_running_loop().create_task(
            client.channels.call(client.broker, request, 9000)
        )

    waiting = client.host.call(begin)
    sim.run_for(0.5)
    node.host.kill()
    sim.network.heal()
    sim.run_for(0.5)
    before_s = sim.now_s
    assert send(client, b"next").code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert sim.now_s - before_s < 1
    sim.run_until(waiting.done, 5)
    late = waiting.result()
    assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert "no slave is connected, the last one" in str(late.remark)


def test_a_disk_that_takes_too_long_is_named(sim: Simulation, client: Client) -> None:
    node = started(sim, MASTER, flushDiskType="SYNC_FLUSH", syncFlushTimeout=1000)
    assert send(client, b"quick").code == ResponseCode.SUCCESS
    node.host.drive.speed = DriveSpeed((3.0, 3.0))
    answer = send(client, b"slow")
    assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert str(answer.remark).startswith("the message is stored, but not on disk after 10")
    assert figure(client, "putMessageFlushDiskTimeoutTimes") == "1"


def test_no_more_sends_wait_than_may_and_the_others_are_refused_before_they_are_stored(
    sim: Simulation, client: Client
) -> None:
    node, _ = with_slave(sim, waitingSendsMax=3)
    sim.network.partition(MASTER, SLAVE)
    fields = {name: str(value) for name, value in {**SEND, "b": "T", "e": 0, "i": ""}.items()}

    async def send_five() -> list[Command]:
        requests = [
            Command(RequestCode.SEND_MESSAGE_V2, fields, b"%d" % number) for number in range(5)
        ]
        return await asyncio.gather(
            *(client.channels.call(client.broker, each, 9000) for each in requests)
        )

    answers = client.host.call(send_five)
    codes = [answer.code for answer in answers]
    assert codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 3 + [ResponseCode.SYSTEM_BUSY] * 2
    assert answers[-1].remark == "[OVERLOAD]3 messages wait for the slave already"
    assert serving(node).store.max_offset("T", 0) == 3
