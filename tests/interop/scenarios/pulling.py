"""Consumers that pull for themselves: lite pull and pull."""

from __future__ import annotations

import time

from tests.interop.apache import Version
from tests.interop.scenarios.consuming import bodies, stored_offsets
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import QUIET_SECONDS, Scene

V5 = Version.V5


LITE_PULL = "Apache's broker knows the lite pulls of 5.x clients from 5.x on only"


@scenario(beyond={V5: LITE_PULL})
def a_lite_pull_consumer_gets_the_messages_of_its_topic_and_commits(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    scene.producer().send(topic, 8)
    member = scene.lite(group, topic)
    assert sorted(line["body"] for line in member.poll(8)) == bodies(8)
    assert stored_offsets(scene, group, topic) in ({}, {0: 0, 1: 0})
    member.ask("commit", topic)
    scene.wait(lambda: sum(stored_offsets(scene, group, topic).values()) == 8, "the commit")
    member.stop()
    scene.producer().send(topic, 2, body="more {i}")
    assert sorted(line["body"] for line in scene.lite(group, topic).poll(2)) == ["more 0", "more 1"]


@scenario(beyond={V5: LITE_PULL})
def a_lite_pull_consumer_commits_by_itself(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 3)
    member = scene.lite(group, topic, autoCommit=True)
    assert len(member.poll(3)) == 3

    def commits() -> bool:
        member.poll(1, 0.5)
        return stored_offsets(scene, group, topic) == {0: 3}

    scene.wait(commits, "the commit")


@scenario(beyond={V5: LITE_PULL})
def lite_pull_consumers_share_the_queues(scene: Scene) -> None:
    topic, group = scene.topic(4), scene.group()
    members = [scene.lite(group, topic) for _ in range(2)]
    time.sleep(3)
    scene.producer().send(topic, 8)
    got = [member.poll(4, 10) for member in members]
    assert [len(lines) for lines in got] == [4, 4]
    assert sorted(line["body"] for lines in got for line in lines) == bodies(8)


@scenario(beyond={V5: LITE_PULL})
def a_lite_pull_consumer_with_queues_of_its_own_seeks(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 5)
    member = scene.lite(group)
    member.ask("assign", topic)
    assert member.ask("queues", topic) == [0]
    assert [line["queueOffset"] for line in member.poll(5)] == [0, 1, 2, 3, 4]
    member.ask("seek", topic, offset=3)
    assert [line["queueOffset"] for line in member.poll(2)] == [3, 4]
    member.ask("seekToBegin", topic)
    assert [line["queueOffset"] for line in member.poll(5)] == [0, 1, 2, 3, 4]
    member.ask("seekToEnd", topic)
    assert member.poll(1, QUIET_SECONDS) == []
    scene.producer().send(topic, 1, body="new")
    assert [line["body"] for line in member.poll(1)] == ["new"]


@scenario(beyond={V5: LITE_PULL})
def a_lite_pull_consumer_pauses_and_resumes(scene: Scene) -> None:
    topic = scene.topic()
    member = scene.lite(scene.group())
    member.ask("assign", topic)
    member.ask("pause", topic)
    producer = scene.producer()
    producer.send(topic, 1, body="ends the pull that waits")
    under_way = member.poll(1, QUIET_SECONDS)
    producer.send(topic, 2)
    assert member.poll(1, QUIET_SECONDS) == []
    member.ask("resume", topic)
    assert sorted(line["body"] for line in [*under_way, *member.poll(3 - len(under_way))])[
        1:
    ] == bodies(2)


@scenario()
def a_lite_pull_consumer_finds_the_offset_of_a_time(scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer()
    producer.send(topic, 2)
    time.sleep(0.5)
    (third,) = producer.send(topic, 1)
    member = scene.lite(scene.group())
    stored = scene.pull().take(topic, 0, 2)["messages"][0]["storeTimestamp"]
    assert third["queueOffset"] == 2
    assert member.ask("offsetForTimestamp", topic, timestamp=stored) == 2
    assert member.ask("offsetForTimestamp", topic, timestamp=0) == 0


@scenario()
def a_pull_takes_as_many_as_it_asks_for(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer().send(topic, 40, way="batch")
    puller = scene.pull()
    for most, count in ((1, 1), (5, 5), (32, 32), (40, 32)):
        found = puller.take(topic, 0, 0, most)
        assert (found["status"], len(found["messages"]), found["next"]) == ("FOUND", count, count)
    assert [line["queueOffset"] for line in puller.take(topic, 0, 38)["messages"]] == [38, 39]


@scenario(ground="strict")
def a_pull_of_what_is_not_in_memory_takes_eight_at_most(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer().send(topic, 40, way="batch")
    found = scene.pull(scene.group(retryMaxTimes=16)).take(topic, 0, 0)
    assert len(found["messages"]) == 8


@scenario()
def a_pull_passes_over_what_it_does_not_want(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer().send(topic, 6, tags="a,b,c")
    puller = scene.pull()
    some = puller.take(topic, 0, 0, tags="a || c")
    assert ([line["tags"] for line in some["messages"]], some["next"]) == (["a", "c", "a", "c"], 6)
    none = puller.take(topic, 0, 0, tags="x")
    assert (none["status"], none["next"]) == ("NO_MATCHED_MSG", 6)
