"""Members of a group come and go, and share out the queues."""

from __future__ import annotations

import time

from roquet.protocol.json.dialect import load
from tests.interop.apache import start_driver
from tests.interop.scenarios.consuming import bodies
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import QUIET_SECONDS, Push, Scene

CONSUMER_LIST = 38
CONSUMER_CONNECTIONS = 203
PATIENT = ("--heartbeat", 1000, "--api-timeout", 20_000)


def client_ids(scene: Scene, group: str) -> set[str]:
    answer = scene.ask(CONSUMER_LIST, {"consumerGroup": group})
    return set(load(answer.body)["consumerIdList"]) if answer.code == 0 else set()


def shares(topic: str, *members: Push) -> list[set[int]]:
    return [member.assigned(topic) for member in members]


@scenario()
def the_list_of_consumers_follows_who_comes_and_goes(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    assert scene.ask(CONSUMER_LIST, {"consumerGroup": group}).code == 1
    one, two = scene.push(group, topic), scene.push(group, topic)
    assert client_ids(scene, group) == {one.client_id, two.client_id}
    one.stop()
    assert client_ids(scene, group) == {two.client_id}
    two.stop()
    assert scene.ask(CONSUMER_LIST, {"consumerGroup": group}).code == 1


@scenario()
def queues_are_shared_out_anew_at_once_when_a_member_comes_or_goes(scene: Scene) -> None:
    """Without word from the broker, a client looks every 20 s only."""
    topic, group = scene.topic(4), scene.group()
    one = scene.push(group, topic)
    one.wait_assigned(topic, range(4))
    started = time.monotonic()
    two = scene.push(group, topic)
    scene.wait(lambda: sorted(map(len, shares(topic, one, two))) == [2, 2], "two queues for each")
    assert set.union(*shares(topic, one, two)) == set(range(4))
    two.stop()
    one.wait_assigned(topic, range(4))
    assert time.monotonic() - started < 15


@scenario()
def a_group_that_is_not_to_be_told_of_changes_finds_out_by_itself(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group(notifyConsumerIdsChangedEnable=False)
    one = scene.push(group, topic)
    one.wait_assigned(topic, {0, 1})
    scene.push(group, topic)
    time.sleep(3 * QUIET_SECONDS)
    assert one.assigned(topic) == {0, 1}, "it has not looked yet"


@scenario(seconds=10)
def the_queues_of_a_consumer_that_crashed_go_to_the_others_at_once(scene: Scene) -> None:
    topic, group = scene.topic(4), scene.group()
    producer = scene.producer()
    producer.send(topic, 4)
    survivor = scene.push(group, topic)
    survivor.messages(4)
    words = ("consume", scene.namesrv, topic, group, 100, 300, *PATIENT)
    with start_driver(scene.version, *words, java_options=["-Xmx128m"]) as crashed:
        scene.wait(lambda: len(survivor.assigned(topic)) == 2, "a member with the other half", 60)
        crashed.kill()
        started = time.monotonic()
        survivor.wait_assigned(topic, range(4))
        assert time.monotonic() - started < 15
    before = len(survivor.messages())
    producer.send(topic, 8, body="after {i}")
    scene.wait(lambda: len(survivor.messages()) >= before + 8, "all messages")


@scenario()
def three_members_share_out_five_queues_as_their_strategy_says(scene: Scene) -> None:
    topic = scene.topic(5)
    for strategy, expected in {
        "AVG": [{0, 1}, {2, 3}, {4}],
        "CIRCLE": [{0, 3}, {1, 4}, {2}],
    }.items():
        group = scene.group()
        members = [scene.push(group, topic, strategy=strategy) for _ in range(3)]
        members.sort(key=lambda member: member.client_id)
        for member, share in zip(members, expected, strict=True):
            member.wait_assigned(topic, share)


@scenario()
def a_member_more_than_there_are_queues_gets_none(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    members = [scene.push(group, topic) for _ in range(3)]
    scene.wait(
        lambda: sorted(map(len, shares(topic, *members))) == [0, 1, 1],
        "one queue each for two of them",
    )


@scenario()
def the_last_subscription_counts_for_a_group_whose_members_want_different_tags(
    scene: Scene,
) -> None:
    """Members of a group have to agree: the broker selects by what it heard last, each client by
    its own wish.
    """
    topic, group = scene.topic(2), scene.group()
    one = scene.push(group, topic, tags="a")
    one.wait_assigned(topic, {0, 1})
    two = scene.push(group, topic, tags="b")
    scene.wait(lambda: sorted(map(len, shares(topic, one, two))) == [1, 1], "a queue for each")
    time.sleep(
        2.5
    )  # Heartbeats of both come every second; a subscription is the newer for each change of queues.
    seen = load(scene.ask(CONSUMER_CONNECTIONS, {"consumerGroup": group}).body)[
        "subscriptionTable"
    ][topic]
    winner, loser = (one, two) if seen["subString"] == "a" else (two, one)
    producer = scene.producer()
    for queue in (0, 1):
        producer.send(topic, 4, tags="a,b", queue=queue, body=f"{queue} {{i}}")
    (own,) = winner.assigned(topic)
    wanted = (0, 2) if winner is one else (1, 3)
    assert winner.bodies(2, QUIET_SECONDS) == [f"{own} {i}" for i in wanted]
    assert loser.messages() == []


@scenario()
def a_consumer_that_subscribes_to_another_topic_gets_that_too(scene: Scene) -> None:
    first, second, group = scene.topic(), scene.topic(), scene.group()
    member, producer = scene.push(group, first), scene.producer()
    producer.send(first, 1, body="first")
    assert member.bodies(1) == ["first"]
    member.call("subscribe", topic=second)
    producer.send(second, 1, body="second")
    assert member.bodies(2) == ["first", "second"]


@scenario()
def a_group_that_is_switched_off_gets_nothing_until_it_is_on_again(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group(consumeEnable=False)
    scene.producer().send(topic, 2)
    member = scene.push(group, topic)
    member.wait_assigned(topic, {0})
    time.sleep(QUIET_SECONDS)
    assert member.messages() == []
    scene.make_group(group)
    assert member.bodies(2) == bodies(2)


@scenario()
def a_group_that_may_not_broadcast_gets_nothing_that_way(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group(consumeBroadcastEnable=False)
    scene.producer().send(topic, 2)
    member = scene.push(group, topic, broadcast=True)
    member.wait_assigned(topic, {0})
    time.sleep(QUIET_SECONDS)
    assert member.messages() == []
    member.stop()
    assert scene.push(group, topic).bodies(2) == bodies(2)


@scenario(ground="strict")
def a_group_that_nobody_made_gets_nothing_where_none_comes_to_be_by_itself(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 2)
    member = scene.push(group, topic)
    time.sleep(2 * QUIET_SECONDS)
    assert member.messages() == []
    scene.make_group(group)
    assert member.bodies(2) == bodies(2)
