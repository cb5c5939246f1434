"""Consumers that take the messages of each queue in their order, and the locks of these queues."""

from __future__ import annotations

import time
from itertools import pairwise

from roquet.protocol.json.dialect import load
from tests.interop import wire
from tests.interop.apache import start_driver
from tests.interop.ground import BROKER
from tests.interop.scenarios.consuming import bodies, stored_offsets
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import QUIET_SECONDS, Scene

LOCK_BATCH = 41
UNLOCK_BATCH = 42
LOCK_SECONDS = 60
PATIENT = ("--heartbeat", 1000, "--api-timeout", 20_000)


@scenario()
def an_orderly_consumer_gets_each_queue_in_order_and_one_at_a_time(scene: Scene) -> None:
    topic, group = scene.topic(3), scene.group()
    scene.producer().send(topic, 30, way="ordered", keysOfOrder=3)
    member = scene.push(group, topic, orderly=True, threads=8, pause=5)
    assert member.bodies(30, QUIET_SECONDS) == bodies(30)
    for queue in range(3):
        lines = [line for line in member.messages() if line["queueId"] == queue]
        assert [line["body"] for line in lines] == [f"message-{i}" for i in range(queue, 30, 3)]
        times = [line["at"] for line in lines]
        assert all(later - earlier >= 4 for earlier, later in pairwise(times))


@scenario()
def a_message_an_orderly_consumer_refuses_comes_again_before_the_next(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 3)
    member = scene.push(group, topic, orderly=True, fail=2, suspend=50)
    lines = member.messages(9)
    assert [line["body"] for line in lines] == [f"message-{i}" for i in range(3) for _ in range(3)]
    assert [line["reconsumeTimes"] for line in lines] == [0, 1, 2] * 3
    assert {line["topic"] for line in lines} == {topic}


@scenario()
def an_orderly_consumer_commits_or_rolls_back_by_hand(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 3)
    member = scene.push(group, topic, orderly=True, manual=True, fail=1, batch=3, suspend=50)
    assert member.bodies(6, QUIET_SECONDS) == sorted(bodies(3) * 2)
    member.stop()
    assert stored_offsets(scene, group, topic) == {0: 3}


def lock(
    scene: Scene, code: int, group: str, client_id: str, topic: str, queues: int = 1
) -> list[int]:
    """The queues that the broker says are locked for the client now."""
    wanted = [{"topic": topic, "brokerName": BROKER, "queueId": queue} for queue in range(queues)]
    body = wire.json_body({"consumerGroup": group, "clientId": client_id, "mqSet": wanted})
    answer = scene.ask(code, body=body)
    assert answer.code == 0
    return (
        sorted(queue["queueId"] for queue in load(answer.body)["lockOKMQSet"])
        if answer.body
        else []
    )


@scenario()
def queues_of_an_orderly_consumer_are_locked_until_it_stops(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    scene.producer().send(topic, 4)
    member = scene.push(group, topic, orderly=True)
    assert member.bodies(4) == bodies(4)
    assert lock(scene, LOCK_BATCH, group, "somebody", topic, 2) == []
    assert lock(scene, LOCK_BATCH, scene.group(), "somebody", topic, 2) == [0, 1], (
        "another group's locks are its own"
    )
    lock(scene, UNLOCK_BATCH, group, "somebody", topic, 2)
    assert lock(scene, LOCK_BATCH, group, "somebody", topic, 2) == [], "only the owner unlocks"
    member.stop()
    assert lock(scene, LOCK_BATCH, group, "somebody", topic, 2) == [0, 1]


@scenario(seconds=90)
def a_lock_that_nobody_renews_ends_after_a_minute(scene: Scene) -> None:
    """A crashed consumer's queues go to another at once, but it may consume them only when the lock
    has ended.
    """
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 5)
    words = ("consume", scene.namesrv, topic, group, 100, 300, "--orderly", *PATIENT)
    with start_driver(scene.version, *words, java_options=["-Xmx128m"]) as crashed:
        crashed.wait_lines(5)
        crashed.kill()
    locked = time.monotonic()
    survivor = scene.push(group, topic, orderly=True)
    scene.producer().send(topic, 1, body="afterwards")
    scene.wait(
        lambda: any(line["body"] == "afterwards" for line in survivor.messages()),
        "the message",
        110,
    )
    assert LOCK_SECONDS - 25 < time.monotonic() - locked < LOCK_SECONDS + 45, (
        "a client asks again every 20 s"
    )


@scenario(seconds=65)
def a_lock_is_somebody_elses_after_just_a_minute(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    assert lock(scene, LOCK_BATCH, group, "one", topic) == [0]
    time.sleep(LOCK_SECONDS - 5)
    assert lock(scene, LOCK_BATCH, group, "two", topic) == []
    scene.wait(
        lambda: lock(scene, LOCK_BATCH, group, "two", topic) == [0], "the end of the lock", 10
    )
