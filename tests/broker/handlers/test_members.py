"""Heartbeats, farewells and what groups are told of them.

See docs/protocol/consuming.md#heartbeats, docs/protocol/request-codes.md#brokers-to-clients and
docs/pitfalls.md#broker.
"""

from __future__ import annotations

from roquet.broker.metadata.members import SILENCE_MS_MAX
from roquet.common.steps import PART, finished
from roquet.protocol.bodies.tables import ConsumerData, GroupConfig, Heartbeat, Subscription
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.harness import Client, World
from tests.simulation.simulation import Simulation


def beat(
    client: Client, client_id: str, *groups: str, topic: str = "T", producers: tuple[str, ...] = ()
) -> None:
    consumers = tuple(
        ConsumerData(group, subscriptions=(Subscription(topic, version=1),)) for group in groups
    )
    body = dump_bytes(Heartbeat(client_id, producers, consumers).to_json())
    assert client.call(RequestCode.HEART_BEAT, body).code == ResponseCode.SUCCESS


def test_a_heartbeat_makes_the_group_and_its_retry_topic_and_registers_both_kinds_of_member(
    world: World,
) -> None:
    client = world.client()
    beat(client, "c", "g", producers=("p",))
    assert world.groups.groups["g"] == GroupConfig("g")
    assert world.topics.topics["%RETRY%g"].write_queues == 1
    assert world.consumers.subscription("g", "T") == Subscription("T", version=1)
    assert world.producers.channel_of("c") is not None
    (member,) = world.consumers.groups["g"].members.values()
    assert (member.client_id, member.language, member.version) == ("c", "PYTHON", 409)
    assert member.address.startswith("10.0.0.9:")


def test_all_members_are_told_before_the_heartbeat_is_answered_the_sender_included(
    world: World,
) -> None:
    first, second = world.client("10.0.0.8"), world.client("10.0.0.9")
    beat(first, "c", "g")
    assert first.told_before_answer == ["g"]
    beat(first, "c", "g")
    beat(second, "d", "g", "h")
    assert second.told_before_answer == ["g", "h"]
    world.sim.run_for(1)
    assert first.told == ["g", "g"]


def test_nobody_is_told_where_broker_or_group_do_not_want_it(sim: Simulation) -> None:
    world = World(sim, notifyConsumerIdsChangedEnable="false")
    client = world.client()
    beat(client, "c", "g")
    assert client.told == []


def test_a_group_can_do_without_being_told(world: World) -> None:
    world.on_broker(
        lambda: world.groups.update(GroupConfig("g", notify_consumer_ids_changed_enable=False))
    )
    client = world.client()
    beat(client, "c", "g", "h")
    assert client.told == ["h"]


def test_a_group_that_may_not_be_made_is_registered_without_a_retry_topic(sim: Simulation) -> None:
    world = World(sim, autoCreateSubscriptionGroup="false")
    beat(world.client(), "c", "g")
    assert "g" not in world.groups.groups
    assert "%RETRY%g" not in world.topics.topics
    assert world.consumers.client_ids("g") == ["c"]


def test_a_group_too_long_for_a_retry_topic_does_without(world: World) -> None:
    group = "g" * 121
    beat(world.client(), "c", group)
    assert group in world.groups.groups
    assert f"%RETRY%{group}" not in world.topics.topics


def test_a_heartbeat_that_changes_nothing_saves_nothing(world: World) -> None:
    client = world.client()
    beat(client, "c", "g")
    versions, changes = (world.topics.version, world.groups.version), world.topic_changes
    beat(client, "c", "g")
    assert ((world.topics.version, world.groups.version), world.topic_changes) == (
        versions,
        changes,
    )


def test_who_unregisters_leaves_and_the_others_are_told(world: World) -> None:
    first, second = world.client("10.0.0.8"), world.client("10.0.0.9")
    beat(first, "c", "g", producers=("p",))
    beat(second, "d", "g")
    first.told.clear()
    answer = second.call(RequestCode.UNREGISTER_CLIENT, clientID="d", consumerGroup="g")
    assert answer.code == ResponseCode.SUCCESS
    first.call(RequestCode.UNREGISTER_CLIENT, clientID="c", producerGroup="p")
    assert first.told == ["g"]
    assert second.told == ["g"]
    assert world.consumers.client_ids("g") == ["c"]
    assert world.producers.groups == {}


def test_a_connection_that_ends_takes_its_members_along(world: World) -> None:
    first, second = world.client("10.0.0.8"), world.client("10.0.0.9")
    beat(first, "c", "g")
    beat(second, "d", "g", producers=("p",))
    first.told.clear()
    second.close()
    assert first.told == ["g"]
    assert world.consumers.client_ids("g") == ["c"]
    assert world.producers.channel_of("d") is None


def test_a_silent_member_is_disconnected(world: World) -> None:
    silent, lively = world.client("10.0.0.8"), world.client("10.0.0.9")
    beat(silent, "c", "g")
    beat(lively, "d", "g")
    world.sim.run_for(SILENCE_MS_MAX / 1000 - 5)
    silent.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
    beat(lively, "d", "g")
    world.sim.run_for(6)
    world.on_broker(lambda: finished(world.members.close_silent()))
    world.sim.run_for(1)
    assert world.consumers.client_ids("g") == ["d"]
    assert lively.told == ["g", "g"]


def test_thousands_of_silent_members_are_disconnected_in_parts(world: World) -> None:
    """Their host has failed, and all of them fall silent at once."""
    clients = [world.client(f"10.1.0.{number + 1}") for number in range(3 * PART)]
    for client in clients:
        beat(client, "c", "g")
    world.sim.run_for(60)
    for client in clients:
        client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
    world.sim.run_for(SILENCE_MS_MAX / 1000 - 59)
    left = world.on_broker(lambda: [_open(world) for _ in world.members.close_silent()])
    assert left == [2 * PART, PART, 0]


def _open(world: World) -> int:
    return sum(connection.is_open for connection in world.consumers.groups["g"].members)


def test_the_list_of_consumers_and_none(world: World) -> None:
    client = world.client()
    answer = client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    beat(client, "c", "g")
    assert client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g") == {
        "consumerIdList": ["c"]
    }


def test_tag_subscriptions_are_served_and_others_are_not(world: World) -> None:
    client = world.client()

    def check(**members: str) -> int:
        subscription = {"topic": "T", "subString": "a", **members}
        body = dump_bytes({"clientId": "c", "group": "g", "subscriptionData": subscription})
        return client.call(RequestCode.CHECK_CLIENT_CONFIG, body).code

    assert (
        check() == check(expressionType="TAG") == check(expressionType="") == ResponseCode.SUCCESS
    )
    assert check(expressionType="SQL92") == ResponseCode.SYSTEM_ERROR
    assert client.call(RequestCode.CHECK_CLIENT_CONFIG, b"{}").code == ResponseCode.SUCCESS


def test_a_heartbeat_that_is_none_is_refused(world: World) -> None:
    client = world.client()
    for body in (b"", b"{}", b'{"clientID":"c","consumerDataSet":[{}]}'):
        assert client.call(RequestCode.HEART_BEAT, body).code == ResponseCode.SYSTEM_ERROR
    assert world.consumers.groups == {}
