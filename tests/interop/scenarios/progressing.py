"""From where on a group consumes, and how far it is taken to be."""

from __future__ import annotations

import time

from roquet.protocol.json.dialect import load
from tests.interop.ground import BROKER
from tests.interop.scenarios.consuming import bodies, stored_offsets
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import QUIET_SECONDS, Lines, Scene


def second(from_now: int) -> str:
    """A second of local time, as clients write it."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(time.time() + from_now))


# where a group begins


@scenario()
def a_new_group_begins_with_the_first_message_of_a_young_queue_whatever_it_asks_for(
    scene: Scene,
) -> None:
    topic = scene.topic()
    scene.producer().send(topic, 3)
    tomorrow = second(86_400)
    for wish in (
        {"from": "FIRST_OFFSET"},
        {"from": "LAST_OFFSET"},
        {"from": "TIMESTAMP", "timestamp": tomorrow},
    ):
        assert scene.push(scene.group(), topic, **wish).bodies(3) == bodies(3)


@scenario(ground="strict")
def a_new_group_begins_where_it_asks_for_in_a_queue_that_is_not_in_memory(scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer()
    producer.send(topic, 2, body="old {i}")
    time.sleep(3.1)
    between = second(
        0
    )  # Nearer to the young ones: the nearest message is where a search by time ends.
    producer.send(topic, 2, body="young {i}")
    wishes = {
        "FIRST_OFFSET": ["new", "old 0", "old 1", "young 0", "young 1"],
        "LAST_OFFSET": ["new"],
        "TIMESTAMP": ["new", "young 0", "young 1"],
    }
    members = {
        wish: scene.push(scene.group(retryMaxTimes=16), topic, **{"from": wish}, timestamp=between)
        for wish in wishes
    }
    for member in members.values():
        member.wait_assigned(topic, {0})
    producer.send(topic, 1, body="new")
    for wish, expected in wishes.items():
        assert members[wish].bodies(len(expected), QUIET_SECONDS) == expected, wish


# how far a group is


@scenario()
def a_group_goes_on_where_its_last_member_stopped(scene: Scene) -> None:
    topic, group, producer = scene.topic(2), scene.group(), scene.producer()
    for start in ("first ", "second "):
        producer.send(topic, 6, body=f"{start}{{i}}")
        member = scene.push(group, topic)
        assert member.bodies(6, QUIET_SECONDS) == bodies(6, start)
        member.stop()
    assert sum(stored_offsets(scene, group, topic).values()) == 12


@scenario()
def an_offset_is_committed_with_the_next_pull(scene: Scene) -> None:
    """The consumer itself says nothing for an hour; what it has consumed is told with its pulls."""
    topic, group, producer = scene.topic(), scene.group(), scene.producer()
    member = scene.push(group, topic, persist=3_600_000)
    member.wait_assigned(topic, {0})
    for count in (1, 2, 3):
        producer.send(topic, 1)
        assert len(member.messages(count)) == count
        time.sleep(0.2)
    scene.wait(
        lambda: stored_offsets(scene, group, topic).get(0, 0) >= 2,
        "an offset that came with a pull",
    )


@scenario()
def an_offset_is_committed_by_itself(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    puller = scene.pull(group)
    puller.ask("commit", topic, offset=0)
    scene.producer().send(topic, 5)
    puller.ask("commit", topic, offset=4)
    scene.wait(lambda: stored_offsets(scene, group, topic) == {0: 4}, "the offset at the broker")
    assert puller.ask("committed", topic) == 4
    puller.stop()
    assert scene.push(group, topic).bodies(1, QUIET_SECONDS) == ["message-4"]


@scenario()
def an_offset_may_be_set_back(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 5)
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0}
    for offset in (5, 2):
        assert scene.ask(15, fields | {"commitOffset": offset}).code == 0
        assert scene.committed(group, topic) == offset


@scenario()
def a_pull_beyond_the_end_is_told_where_the_end_is(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 3)
    puller = scene.pull(group)
    end = puller.take(topic, 0, 3)
    assert (end["status"], end["next"], end["min"], end["max"]) == ("NO_NEW_MSG", 3, 0, 3)
    beyond = puller.take(topic, 0, 9)
    assert (beyond["status"], beyond["next"], beyond["min"], beyond["max"]) == (
        "OFFSET_ILLEGAL",
        3,
        0,
        3,
    )
    empty = scene.topic()
    assert puller.take(empty, 0, 0)["status"] == "NO_NEW_MSG"
    nowhere = puller.take(empty, 0, 7)
    assert (nowhere["status"], nowhere["next"]) == ("OFFSET_ILLEGAL", 0)


@scenario()
def a_pull_that_was_set_right_is_written_down_in_a_topic_of_its_own(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 3)
    scene.pull(group).take(topic, 0, 9)
    reader = scene.pull()
    end = scene.max_offset("OFFSET_MOVED_EVENT")

    def events() -> Lines:
        found = reader.take("OFFSET_MOVED_EVENT", 0, max(0, end - 30))["messages"]
        return [line for line in found if line["tags"] == group]

    scene.wait(lambda: bool(events()), "the event")
    (event,) = events()
    assert event["keys"] == group
    told = load(event["body"].encode())
    assert (told["consumerGroup"], told["offsetRequest"], told["offsetNew"]) == (group, 9, 3)
    assert told["messageQueue"] == {"brokerName": BROKER, "queueId": 0, "topic": topic}


@scenario(seconds=15)
def a_group_whose_offset_is_beyond_the_end_consumes_what_comes_next(scene: Scene) -> None:
    topic, group, producer = scene.topic(), scene.group(), scene.producer()
    producer.send(topic, 3)
    assert (
        scene.ask(
            15, {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 50}
        ).code
        == 0
    )
    member = scene.push(group, topic)
    member.wait_assigned(topic, {0})
    time.sleep(12)  # So long a client takes to begin anew at the offset it is told.
    producer.send(topic, 1, body="next")
    assert member.bodies(1, QUIET_SECONDS) == ["next"]
