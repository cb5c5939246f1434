"""Push consumers: who gets what, and when."""

from __future__ import annotations

import time

from roquet.protocol.json.dialect import load
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import QUIET_SECONDS, Scene

GET_ALL_CONSUMER_OFFSET = 43


def bodies(count: int, text: str = "message-") -> list[str]:
    return sorted(f"{text}{i}" for i in range(count))


def stored_offsets(scene: Scene, group: str, topic: str) -> dict[int, int]:
    """A group's offsets as a slave gets to know them; empty: the broker knows of none."""
    table = load(scene.ask(GET_ALL_CONSUMER_OFFSET).body)["offsetTable"]
    return {int(queue): offset for queue, offset in table.get(f"{topic}@{group}", {}).items()}


# who gets what


@scenario()
def the_members_of_a_group_share_the_messages_and_every_group_gets_all(scene: Scene) -> None:
    topic, group = scene.topic(4), scene.group()
    one, two, other = (
        scene.push(group, topic),
        scene.push(group, topic),
        scene.push(scene.group(), topic),
    )
    scene.wait(
        lambda: len(one.assigned(topic)) == len(two.assigned(topic)) == 2, "two queues for each"
    )
    scene.producer().send(topic, 8)
    assert other.bodies(8, QUIET_SECONDS) == bodies(8)
    assert sorted(one.bodies(4) + two.bodies(4)) == bodies(8)
    assert {line["queueId"] for line in one.messages()} == one.assigned(topic)


@scenario()
def a_broadcast_reaches_every_member_and_leaves_no_offset_at_the_broker(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    members = [scene.push(group, topic, broadcast=True) for _ in range(2)]
    for member in members:
        member.wait_assigned(topic, {0, 1})
    scene.producer().send(topic, 6)
    for member in members:
        assert member.bodies(6, QUIET_SECONDS) == bodies(6)
    assert stored_offsets(scene, group, topic) == {}


@scenario()
def a_broadcast_that_is_refused_does_not_come_again(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = scene.push(group, topic, broadcast=True, fail=1)
    scene.producer().send(topic, 3)
    assert member.bodies(3, 3 * QUIET_SECONDS) == bodies(3)


@scenario()
def a_listener_gets_messages_together_up_to_its_batch_size(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 10, way="batch")
    member = scene.push(group, topic, batch=4)
    assert member.bodies(10) == bodies(10)
    assert sorted(line["together"] for line in member.messages()) == [2] * 2 + [4] * 8


@scenario()
def a_consumer_that_is_suspended_takes_up_again_where_it_was(scene: Scene) -> None:
    topic = scene.topic()
    member, producer = scene.push(scene.group(), topic), scene.producer()
    producer.send(topic, 2)
    assert member.bodies(2) == bodies(2)
    member.call("suspend")
    time.sleep(0.2)
    producer.send(topic, 2, body="later {i}")
    producer.send(topic, 1, body="last {i}")
    time.sleep(QUIET_SECONDS)
    assert len(member.messages()) <= 5  # A pull that was under way may still bring what came.
    member.call("resume")
    assert member.bodies(5) == sorted([*bodies(2), "later 0", "later 1", "last 0"])


# waiting for messages


@scenario()
def a_waiting_consumer_gets_a_message_at_once(scene: Scene) -> None:
    topic = scene.topic()
    member, producer = scene.push(scene.group(), topic), scene.producer()
    producer.send(topic, 1)
    member.messages(1)
    time.sleep(1)
    started = time.monotonic()
    producer.send(topic, 1)
    assert len(member.messages(2)) == 2
    assert time.monotonic() - started < 2, "the broker held the pull and woke it"


@scenario(seconds=10)
def a_pull_is_held_until_its_time_is_over_or_a_message_comes(scene: Scene) -> None:
    topic = scene.topic()
    puller = scene.pull(hold=3000)
    started = time.monotonic()
    nothing = puller.take(topic, 0, 0, wait=True)
    assert (nothing["status"], nothing["next"], nothing["messages"]) == ("NO_NEW_MSG", 0, [])
    assert 2.9 < time.monotonic() - started < 10, "the broker looks every 5 s"
    at_once = puller.take(topic, 0, 0)
    assert at_once["status"] == "NO_NEW_MSG"


@scenario(ground="strict")
def without_long_polling_a_pull_is_held_for_a_second(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group(retryMaxTimes=16)
    puller = scene.pull(group, hold=15_000)
    started = time.monotonic()
    assert puller.take(topic, 0, 0, wait=True)["status"] == "NO_NEW_MSG"
    assert 0.9 < time.monotonic() - started < 5
