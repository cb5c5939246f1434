"""Records that get their queue entries late: on a slave, and on a drive without room for them. What
a broker learns from its queues, it learns then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.headers.transactions import COMMIT
from roquet.protocol.records.message import HALF_OP_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.broker.transacting import ADDRESS, PERIOD_S, SMALL_LOG, TransactionProducer, bodies
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

TOPICS_FILES: Final = (Path("/store/config/topics.json"), Path("/store/config/topics.json.bak"))
QUEUE: Final = {"consumerGroup": "g", "topic": "T", "queueId": 0}


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    return started(sim, ADDRESS, flushDiskType="SYNC_FLUSH", **SMALL_LOG)


def start_without_room(
    sim: Simulation, node: BrokerNode, *topics: str, topics_file: bytes | None = None
) -> None:
    """Kill the broker, lose the queues of these topics, start it where none of them gets a file.

    :param topics_file: what has become of the topics' file and its backup.
    """
    node.host.kill()
    disk = node.host.drive.mount()
    if topics_file is not None:
        for path in TOPICS_FILES:
            disk.replace(path, topics_file)
    for topic in topics:
        for name, _ in disk.names(Path(f"/store/consumequeue/{topic}/0")):
            disk.delete(Path(f"/store/consumequeue/{topic}/0") / name)
    node.host.drive.unmount()
    node.host.drive.room = 0
    start(sim, node)
    sim.run_for(1)
    assert serving(node).store.dispatch.is_held_up


def start(sim: Simulation, node: BrokerNode) -> None:
    node.start()
    sim.run_until(lambda: node.broker is not None, 30)


def make_room(sim: Simulation, node: BrokerNode) -> None:
    node.host.drive.room = None
    sim.run_until(lambda: not serving(node).store.dispatch.is_held_up, 60)


def test_transactions_whose_queue_entries_come_late_can_be_committed(
    sim: Simulation, node: BrokerNode
) -> None:
    """They would count as ended: what an acknowledged half message says would be lost."""
    producer = TransactionProducer(sim, node)
    committed, opened, ended = (
        producer.half(b"committed"),
        producer.half(b"open"),
        producer.half(b"ended"),
    )
    assert producer.end(ended, COMMIT).code == 0
    start_without_room(sim, node, HALF_TOPIC, HALF_OP_TOPIC)
    producer.announce()
    assert producer.end(committed, COMMIT).code == ResponseCode.SERVICE_NOT_AVAILABLE
    make_room(sim, node)
    assert producer.end(committed, COMMIT).code == 0
    assert producer.end(ended, COMMIT).code != 0
    sim.run_for(2 * PERIOD_S)
    assert {record.body for _, record in producer.asked} == {b"open"}
    assert producer.end(opened, COMMIT).code == 0
    assert sorted(bodies(node)) == ["committed", "ended", "open"]


def test_groups_stay_where_they_are_until_their_queues_have_all_entries(
    sim: Simulation, node: BrokerNode
) -> None:
    """Nobody knows yet where the queues end; groups that were set back would get everything
    again.
    """
    client = Client(sim, sim.host("10.0.0.9"))
    for number in range(3):
        assert send(client, b"%d" % number).code == 0
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **QUEUE, commitOffset=3).code == 0
    sim.run_for(10)
    start_without_room(sim, node, "T")
    client = Client(sim, sim.host("10.0.0.8"))
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, **QUEUE).fields == {"offset": "3"}
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **QUEUE, commitOffset=2).code == 0
    pull = {
        **QUEUE,
        "queueOffset": 2,
        "maxMsgNums": 1,
        "sysFlag": 4,
        "commitOffset": 0,
        "subscription": "*",
    }
    refused = client.call(RequestCode.PULL_MESSAGE, **pull, suspendTimeoutMillis=0, subVersion=0)
    assert (refused.code, "dispatch lags" in (refused.remark or "")) == (
        ResponseCode.SYSTEM_ERROR,
        True,
    )
    ahead = {**QUEUE, "consumerGroup": "h"}
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **ahead, commitOffset=7).code == 0
    make_room(sim, node)
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, **QUEUE).fields == {"offset": "2"}
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, **ahead).fields == {"offset": "3"}
    assert (
        client.call(RequestCode.PULL_MESSAGE, **pull, suspendTimeoutMillis=0, subVersion=0).code
        == 0
    )


def pulled(sim: Simulation) -> int:
    pull = {
        **QUEUE,
        "queueOffset": 0,
        "maxMsgNums": 1,
        "sysFlag": 4,
        "commitOffset": 0,
        "subscription": "*",
    }
    client = Client(sim, sim.host("10.0.0.8"))
    return client.call(RequestCode.PULL_MESSAGE, **pull, suspendTimeoutMillis=0, subVersion=0).code


def test_topics_in_no_table_are_found_once_their_queues_have_entries(
    sim: Simulation, node: BrokerNode
) -> None:
    """Else their messages are there, and nobody can pull them."""
    assert send(Client(sim, sim.host("10.0.0.9")), b"x").code == 0
    sim.run_for(10)
    start_without_room(sim, node, "T", topics_file=b"{")
    assert pulled(sim) == ResponseCode.TOPIC_NOT_EXIST
    make_room(sim, node)
    assert pulled(sim) == 0


def test_a_kill_before_they_are_found_does_not_hide_them(sim: Simulation, node: BrokerNode) -> None:
    """The damaged file has been moved aside by then: the next start finds none."""
    assert send(Client(sim, sim.host("10.0.0.9")), b"x").code == 0
    sim.run_for(10)
    start_without_room(sim, node, "T", topics_file=b"{")
    node.host.kill()
    node.host.drive.room = None
    start(sim, node)
    assert pulled(sim) == 0


def test_a_broker_stops_as_usual_while_entries_have_no_room(
    sim: Simulation, node: BrokerNode, caplog: pytest.LogCaptureFixture
) -> None:
    """The records are in the log: the next start writes their entries, as after a crash."""
    assert send(Client(sim, sim.host("10.0.0.9")), b"x").code == 0
    sim.run_for(10)
    start_without_room(sim, node, "T")
    caplog.clear()
    node.stop()
    assert [
        line for line in caplog.messages if "the next start writes the entries" in line
    ] == caplog.messages
    assert len(caplog.messages) == 1
    node.host.drive.room = None
    start(sim, node)
    assert serving(node).store.was_crashed
    assert pulled(sim) == 0


@pytest.fixture
def delaying(sim: Simulation) -> BrokerNode:
    """Its only delay level is a minute."""
    return started(sim, ADDRESS, flushDiskType="SYNC_FLUSH", messageDelayLevel="1m", **SMALL_LOG)


def test_what_was_delivered_is_not_delivered_again_when_its_entries_come_late(
    sim: Simulation, delaying: BrokerNode
) -> None:
    """Progress is compared with the ends of queues, and these are not known before."""
    assert send(Client(sim, sim.host("10.0.0.9")), b"x", properties="DELAY\x011").code == 0
    sim.run_for(80)
    assert bodies(delaying, queue_id=0) == ["x"]
    start_without_room(sim, delaying, SCHEDULE_TOPIC)
    make_room(sim, delaying)
    sim.run_for(80)
    assert bodies(delaying, queue_id=0) == ["x"]


def test_no_message_comes_early_when_its_entry_comes_late(
    sim: Simulation, delaying: BrokerNode
) -> None:
    """The clock was set back by an hour: nobody knows when it is due, but a minute after the start
    for sure.
    """
    assert send(Client(sim, sim.host("10.0.0.9")), b"x", properties="DELAY\x011").code == 0
    delaying.host.clock_ahead_ms -= 3_600_000
    start_without_room(sim, delaying, SCHEDULE_TOPIC)
    make_room(sim, delaying)
    sim.run_for(30)
    assert bodies(delaying, queue_id=0) == []
    sim.run_for(60)
    assert bodies(delaying, queue_id=0) == ["x"]


SLAVE: Final = "10.0.0.2"


@pytest.fixture
def slave(sim: Simulation, node: BrokerNode) -> BrokerNode:
    """A slave of the master `node`, which has a message."""
    assert send(Client(sim, sim.host("10.0.0.9")), b"0").code == 0
    names = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"{ADDRESS}:10912"}
    slave = started(sim, SLAVE, **SMALL_LOG, **names)
    sim.run_for(1)
    copy_tables(slave)
    return slave


def copy_tables(slave: BrokerNode) -> None:
    """Let the slave copy the tables of its master."""
    follower = serving(slave).parts.follower
    assert follower is not None
    follower.sync.set_master(f"{ADDRESS}:10911")
    slave.host.call(follower.sync.copy)


def test_a_pull_that_waits_at_a_slave_is_answered_when_the_slave_has_a_message(
    sim: Simulation, slave: BrokerNode
) -> None:
    client = Client(sim, sim.host("10.0.0.8"), slave.address)
    header = PullHeader("g", "T", 0, 1, 32, 2 | 4, 0, 15_000, "*", 1, "TAG")
    codes: list[int] = []

    async def pull() -> None:
        request = Command(RequestCode.PULL_MESSAGE, header.write())
        codes.append((await client.channels.call(client.broker, request, 60_000)).code)

    client.host.start(pull)
    sim.run_for(1)
    assert codes == []
    assert send(Client(sim, sim.host("10.0.0.9")), b"1").code == 0
    sim.run_for(1)
    assert codes == [ResponseCode.SUCCESS]


def test_a_topic_that_the_master_has_deleted_is_not_found_in_late_entries_of_its_slave(
    sim: Simulation, node: BrokerNode, slave: BrokerNode
) -> None:
    """The master's table was copied later than the messages."""
    start_without_room(sim, slave, "T", topics_file=b"{")
    master = Client(sim, sim.host("10.0.0.9"))
    assert master.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T").code == 0
    copy_tables(slave)
    assert "T" not in serving(slave).parts.tables.topics.topics
    make_room(sim, slave)
    assert serving(slave).store.max_offset("T", 0) == 1
    assert "T" not in serving(slave).parts.tables.topics.topics
