"""Groups by an admin's hand, and who is in them.

See docs/protocol/request-codes.md#administrators-and-slaves-to-brokers,
docs/protocol/json.md#clients and docs/protocol/json.md#offsets-and-statistics.
"""

from __future__ import annotations

import pytest

from roquet.broker.metadata.state_files import GROUPS
from roquet.protocol.bodies.tables import (
    ConsumerData,
    GroupConfig,
    GroupTable,
    Heartbeat,
    Subscription,
    TopicConfig,
    parse,
)
from roquet.protocol.json.dialect import dump_bytes, load
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.harness import Client, World
from tests.simulation.simulation import Simulation

STRICT = GroupConfig("g", retry_max_times=3, consume_broadcast_enable=False)


def beat(client: Client, *topics: str) -> None:
    consumer = ConsumerData(
        "g", subscriptions=tuple(Subscription(topic, version=7) for topic in topics)
    )
    body = dump_bytes(Heartbeat("c", ("p",), (consumer,)).to_json())
    assert client.call(RequestCode.HEART_BEAT, body).code == ResponseCode.SUCCESS


def test_a_group_is_on_disk_once_its_creation_is_answered(world: World) -> None:
    body = dump_bytes(STRICT.to_json())
    assert (
        world.client().call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body).code
        == ResponseCode.SUCCESS
    )
    assert world.groups.groups["g"] == STRICT
    world.host.crash()
    world.host.boot()
    data = world.host.disk.read(world.config.state_folder / GROUPS)
    assert data is not None
    assert parse(data, GroupTable.from_json).groups["g"] == STRICT


@pytest.mark.parametrize("name", ["", "a@b", "x" * 256])
def test_what_cannot_be_a_group_is_refused(world: World, name: str) -> None:
    body = dump_bytes(GroupConfig(name).to_json())
    answer = world.client().call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert name not in world.groups.groups


def test_a_slaves_groups_are_its_masters(sim: Simulation) -> None:
    client = World(sim, brokerRole="SLAVE", brokerId=1).client()
    body = dump_bytes(STRICT.to_json())
    for code in (
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
    ):
        assert client.call(code, body, groupName="g").code == ResponseCode.SYSTEM_ERROR


def test_a_deleted_group_keeps_its_progress_unless_asked_otherwise(world: World) -> None:
    client = world.client()
    world.on_broker(lambda: world.groups.update(STRICT))
    world.offsets.commit("g", "T", 0, 5)
    assert (
        client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g").code
        == ResponseCode.SUCCESS
    )
    assert "g" not in world.groups.groups
    assert world.offsets.committed("g", "T", 0) == 5
    client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", removeOffset="true")
    assert world.offsets.committed("g", "T", 0) is None


def test_the_whole_table_is_given_to_slaves_and_tools(world: World) -> None:
    table = parse(
        world.client().call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body, GroupTable.from_json
    )
    assert table == world.groups.to_table()


def test_who_is_connected(world: World) -> None:
    client = world.client()
    offline = client.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    nobody = client.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="p")
    assert nobody.code == ResponseCode.SYSTEM_ERROR
    beat(client, "T")
    found = client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
    (connection,) = found.pop("connectionSet")
    assert connection.pop("clientAddr").startswith("10.0.0.9:")
    assert connection == {"clientId": "c", "language": "PYTHON", "version": 409}
    assert found == {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionTable": {"T": Subscription("T", version=7).to_json()},
    }
    producers = client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="p")
    assert [member["clientId"] for member in producers["connectionSet"]] == ["c"]


def test_where_a_group_stands_in_the_queues_of_its_topics(world: World) -> None:
    client = world.client()
    world.on_broker(lambda: world.topics.update(TopicConfig("T", 2, 2)))
    world.on_broker(lambda: world.topics.update(TopicConfig("U", 1, 1)))
    for _ in range(3):
        world.put("T", 1)
        world.sim.run_for(1)
    for topic in ("T", "U", "gone"):
        world.offsets.commit("g", topic, 1, 2)

    def stats(**fields: str) -> dict[tuple[str, int], dict[str, int]]:
        body = client.call(RequestCode.GET_CONSUME_STATS, consumerGroup="g", **fields).body
        document = load(body)
        assert document["consumeTps"] == 0.0
        queues = ((load(key), state) for key, state in document["offsetTable"].items())
        return {(queue["topic"], queue["queueId"]): state for queue, state in queues}

    assert stats() == {
        ("T", 0): {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0},
        ("T", 1): {
            "brokerOffset": 3,
            "consumerOffset": 2,
            "lastTimestamp": world.store.store_time("T", 1, 1),
        },
        ("U", 0): {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0},
    }
    assert set(stats(topic="U")) == {("U", 0)}
    beat(client, "T")
    assert set(stats()) == {("T", 0), ("T", 1)}, "the group is connected and no longer wants U"


def test_who_consumes_a_topic(world: World) -> None:
    client = world.client()
    world.offsets.commit("was-here", "T", 1, 2)
    world.offsets.commit("elsewhere", "U", 1, 2)
    beat(client, "T")
    assert client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T") == {
        "groupList": ["g", "was-here"]
    }
    assert client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="nobody's") == {"groupList": []}


def test_one_group_is_told_by_its_name(world: World) -> None:
    """Tools of 5.x ask so."""
    world.on_broker(lambda: world.groups.update(GroupConfig("G", retry_max_times=3)))
    told = world.client().ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="G")
    assert GroupConfig.from_json(told).retry_max_times == 3
    unknown = world.client().call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="H")
    assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize("name", ["removeOffset", "cleanOffset"])
def test_a_groups_offsets_go_with_it_where_either_release_wants_that(
    world: World, name: str
) -> None:
    world.on_broker(lambda: world.groups.update(GroupConfig("G")))
    world.offsets.commit("G", "T", 0, 5)
    world.client().call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="G", **{name: "true"})
    assert world.offsets.committed("G", "T", 0) is None
