"""Topics by an admin's hand.

See docs/protocol/administration.md#topics.
"""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from roquet.broker.metadata.state_files import TOPICS
from roquet.errors import CallTimeout, ConnectionClosed
from roquet.protocol.bodies.tables import TopicConfig, TopicTable, parse
from roquet.protocol.json.dialect import load
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.broker.harness import ADDRESS, Client, World
from tests.broker.served import send, serving, started
from tests.simulation.disk import DriveSpeed
from tests.simulation.simulation import Simulation
from tests.storage.records import bodies_in

FIELDS = {"defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG", "order": "true"}
CREATE = {"readQueueNums": 2, "writeQueueNums": 3, **FIELDS}


def test_a_topic_is_on_disk_once_its_creation_is_answered(world: World) -> None:
    answer = world.client().call(
        RequestCode.UPDATE_AND_CREATE_TOPIC, topic="T", **CREATE, topicSysFlag=1
    )
    assert answer.code == ResponseCode.SUCCESS
    assert world.topic_changes == 1
    world.host.crash()
    world.host.boot()
    data = world.host.disk.read(world.config.state_folder / TOPICS)
    assert data is not None
    saved = parse(data, TopicTable.from_json).topics["T"]
    assert saved == TopicConfig("T", 2, 3, sys_flag=1), (
        "whether it is ordered is for the name servers to say"
    )


def test_a_topic_that_cannot_be_saved_is_answered_with_the_reason(world: World) -> None:
    world.host.drive.failure = errno.ENOSPC
    answer = world.client().call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic="T", **CREATE)
    world.host.drive.failure = None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "could not be saved" in (answer.remark or "")


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "T@"},
        {"topic": ""},
        {"topic": "x" * 128},
        {"topic": "TBW102"},
        {"topic": "rmq_sys_x"},
        {"topic": "broker-a"},
        {"topic": "T", "topicFilterType": "NO_TAG"},
        {"topic": "T", "writeQueueNums": -1},
    ],
)
def test_what_cannot_be_a_users_topic_is_refused(world: World, fields: dict[str, object]) -> None:
    topics = dict(world.topics.topics)
    answer = world.client().call(RequestCode.UPDATE_AND_CREATE_TOPIC, **{**CREATE, **fields})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert world.topics.topics == topics


def test_a_slaves_topics_are_its_masters(sim: Simulation) -> None:
    client = World(sim, brokerRole="SLAVE", brokerId=1).client()
    for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER):
        assert client.call(code, topic="T", **CREATE).code == ResponseCode.SYSTEM_ERROR


def test_a_deleted_topic_leaves_nothing_that_a_later_one_would_inherit(world: World) -> None:
    client = world.client()
    client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic="T", **CREATE)
    world.put("T")
    world.offsets.commit("g", "T", 0, 1)
    assert client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T").code == ResponseCode.SUCCESS
    assert "T" not in world.topics.topics
    assert world.store.max_offset("T", 0) == 0
    assert world.offsets.committed("g", "T", 0) is None
    assert client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T").code == ResponseCode.SUCCESS
    assert (
        client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="TBW102").code
        == ResponseCode.SYSTEM_ERROR
    )
    assert (
        client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="../x").code
        == ResponseCode.SYSTEM_ERROR
    )


def test_deleting_a_topic_without_queues_makes_no_checkpoint(world: World) -> None:
    """Each would sync the drive, and the thousands that a client may ask for would hold up
    everybody's.
    """
    client, before = world.client(), world.store.checkpoint.mark
    world.put("other")
    assert client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T").code == ResponseCode.SUCCESS
    assert world.store.checkpoint.mark == before
    assert (
        client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="other").code == ResponseCode.SUCCESS
    )
    assert world.store.checkpoint.mark != before


def test_the_whole_table_is_given_to_slaves_and_tools(world: World) -> None:
    table = parse(world.client().call(RequestCode.GET_ALL_TOPIC_CONFIG).body, TopicTable.from_json)
    assert table == world.topics.to_table()


def test_the_state_of_each_queue_of_a_topic(world: World) -> None:
    client = world.client()
    assert (
        client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="T").code
        == ResponseCode.TOPIC_NOT_EXIST
    )
    client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic="T", **CREATE)
    world.put("T", 1)
    stored_ms = world.store.store_time("T", 1, 0)
    body = client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="T").body
    assert body.startswith(
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"lastUpdateTimestamp":0,'
    )
    states = {load(key)["queueId"]: state for key, state in load(body)["offsetTable"].items()}
    assert states[0] == states[2] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    assert states[1] == {"lastUpdateTimestamp": stored_ms, "maxOffset": 1, "minOffset": 0}


def test_the_brokers_own_topics_are_listed(world: World) -> None:
    topics = world.client().ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)["topicList"]
    assert {"TBW102", "broker-a", "DefaultCluster", "RMQ_SYS_TRANS_HALF_TOPIC"} <= set(topics)


def test_one_topic_is_told_by_its_name(world: World) -> None:
    """Tools of 5.x ask so before they show a topic's statistics."""
    world.on_broker(lambda: world.topics.update(TopicConfig("T", 2, 3)))
    told = world.client().ask(RequestCode.GET_TOPIC_CONFIG, topic="T")
    assert TopicConfig.from_json(told) == TopicConfig("T", 2, 3)
    assert (
        world.client().call(RequestCode.GET_TOPIC_CONFIG, topic="U").code
        == ResponseCode.TOPIC_NOT_EXIST
    )


def test_a_deletion_goes_on_when_the_client_that_asked_for_it_is_gone(sim: Simulation) -> None:
    node = started(sim, ADDRESS)
    client, tool = Client(sim, sim.host("10.0.0.9")), Client(sim, sim.host("10.0.0.8"))
    for topic in ("T", "other"):
        assert send(client, b"before", topic).code == ResponseCode.SUCCESS

    async def delete() -> None:
        with pytest.raises(CallTimeout):
            await tool.channels.call(
                tool.broker, Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}), 10
            )
        await tool.channels.close()

    node.host.drive.speed = DriveSpeed(sync_s=(0.05, 0.05), spike_chance=0)
    tool.host.start(delete)
    sim.run_for(0.02)
    assert "T" in serving(node).store.queues.topics
    sim.run_until(lambda: "T" not in serving(node).parts.tables.topics.topics, 10)
    assert "T" not in serving(node).store.queues.topics
    assert bodies_in(serving(node).store, "other") == [b"before"]


def test_two_who_ask_for_the_same_deletion_are_both_answered_and_a_stop_ends_it(
    sim: Simulation,
) -> None:
    node = started(sim, ADDRESS)
    client = Client(sim, sim.host("10.0.0.9"))
    assert send(client, b"before").code == ResponseCode.SUCCESS
    node.host.drive.speed = DriveSpeed(sync_s=(0.05, 0.05), spike_chance=0)
    answers: list[Command] = []

    async def delete() -> None:
        request = Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        answers.append(await client.channels.call(client.broker, request, 5000))

    for _ in range(2):
        client.host.start(delete)
    sim.run_until(lambda: len(answers) == 2, 10)
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 2
    assert send(client, b"again").code == ResponseCode.SUCCESS
    ends: list[Exception] = []

    async def delete_in_vain() -> None:
        try:
            await delete()
        except (CallTimeout, ConnectionClosed) as error:
            ends.append(error)

    client.host.start(delete_in_vain)
    sim.run_for(0.02)
    node.stop()
    sim.run_until(lambda: bool(ends), 10)
    assert len(answers) == 2


@pytest.mark.parametrize("asked_ms", range(0, 400, 40))
def test_a_stop_during_a_deletion_saves_what_was_acknowledged(
    sim: Simulation, asked_ms: int
) -> None:
    """A deletion has several syncs, of 50 ms here, and the tables' files have more: each is a
    moment to stop in.
    """
    node = started(sim, ADDRESS)
    client, tool = Client(sim, sim.host("10.0.0.9")), Client(sim, sim.host("10.0.0.8"))
    assert send(client, b"before").code == ResponseCode.SUCCESS
    node.host.drive.speed = DriveSpeed(sync_s=(0.05, 0.05), spike_chance=0)

    async def delete() -> None:
        with suppress(ConnectionClosed, CallTimeout):
            await tool.channels.call(
                tool.broker, Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}), 5000
            )

    tool.host.start(delete)
    sim.run_for(asked_ms / 1000)
    assert send(client, b"last", "late").code == ResponseCode.SUCCESS
    node.stop()
    node.start()
    sim.run_until(lambda: node.broker is not None, 10)
    assert bodies_in(serving(node).store, "late") == [b"last"]
    assert "late" in serving(node).parts.tables.topics.topics


def test_a_topic_that_is_sent_to_while_it_is_deleted_does_not_come_back_with_a_crash(
    sim: Simulation,
) -> None:
    node = started(sim, ADDRESS, flushDiskType="SYNC_FLUSH")
    client, admin = Client(sim, sim.host("10.0.0.9")), Client(sim, sim.host("10.0.0.8"))
    for topic in ("T", "kept"):
        assert send(client, b"before", topic).code == ResponseCode.SUCCESS
    answers: list[Command] = []

    async def delete() -> None:
        request = Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        answers.append(await admin.channels.call(admin.broker, request, 5000))

    node.host.drive.speed = DriveSpeed(sync_s=(0.05, 0.05), spike_chance=0)
    admin.host.start(delete)
    sim.run_for(0.02)
    assert send(client, b"meanwhile").code == ResponseCode.SUCCESS
    sim.run_until(lambda: bool(answers), 10)
    assert answers[0].code == ResponseCode.SUCCESS
    node.host.crash()
    node.start()
    sim.run_until(lambda: node.broker is not None, 10)
    assert "T" not in serving(node).store.queues.topics
    assert bodies_in(serving(node).store, "kept") == [b"before"]
