"""The same with Apache's Go client, for the main lines; Java clients help where it has no part of
its own.
"""

from __future__ import annotations

import time
from functools import partial

from tests.interop.apache import PATIENT, Client, Version, go_client, require_go, start_go_client
from tests.interop.ground import BROKER, DELAY_LEVELS_S
from tests.interop.scenarios.registry import scenario
from tests.interop.scenarios.retrying import dead_letters
from tests.interop.scene import QUIET_SECONDS, Lines, Scene

SECONDS = 60
go = partial(scenario, versions=[Version.V4])


def produce(scene: Scene, topic: str, count: int, *options: object) -> Lines:
    require_go()
    return go_client("produce", scene.namesrv, topic, count, *PATIENT, *map(str, options)).check()


def consume(
    scene: Scene, topic: str, group: str, count: int, *options: object, verb: str = "consume"
) -> Lines:
    require_go()
    return go_client(verb, scene.namesrv, topic, group, count, SECONDS, *map(str, options)).check()


def consumer(scene: Scene, topic: str, group: str, *options: object) -> Client:
    """One that stays; for use in `with`."""
    require_go()
    return start_go_client("consume", scene.namesrv, topic, group, 1000, 300, *map(str, options))


def bodies(lines: Lines) -> list[str]:
    return sorted(line["body"] for line in lines)


@go()
def go_every_group_gets_all_and_goes_on_where_it_stopped(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    expected = [f"message-{i}" for i in range(4)]
    produce(scene, topic, 4)
    assert bodies(consume(scene, topic, group, 4)) == expected
    produce(scene, topic, 4, "--body", "more-", "--batch", 4)
    assert bodies(consume(scene, topic, group, 4)) == [f"more-{i}" for i in range(4)]
    assert len(consume(scene, topic, scene.group(), 8)) == 8


@go(seconds=30)
def go_members_of_a_group_share_the_queues_with_javas(scene: Scene) -> None:
    topic, group = scene.topic(4), scene.group()
    with consumer(scene, topic, group) as member:
        member.wait_started()
        java = scene.push(group, topic)
        scene.wait(lambda: len(java.assigned(topic)) == 2, "half of the queues", 60)
        time.sleep(QUIET_SECONDS)
        scene.producer().send(topic, 40)
        scene.wait(lambda: len(java.messages()) + len(member.lines()) >= 40, "all messages")
        assert {line["queueId"] for line in java.messages()} | {
            line["queueId"] for line in member.lines()
        } == set(range(4))


@go()
def go_a_broadcast_reaches_every_member(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    produce(scene, topic, 4)
    for _ in range(2):
        assert len(consume(scene, topic, group, 4, "--broadcast")) == 4


@go()
def go_an_orderly_consumer_keeps_the_order_and_tries_again_by_itself(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    scene.producer().send(topic, 10, way="ordered", keysOfOrder=2)
    lines = consume(scene, topic, group, 10, "--orderly", "--fail", 1)
    for queue in (0, 1):
        own = [line["body"] for line in lines if line["queueId"] == queue]
        assert own == [f"message-{i}" for i in range(queue, 10, 2) for _ in range(2)]


@go(seconds=45)
def go_a_refused_message_comes_again_and_ends_as_a_dead_letter(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.ground.create_topic(f"%RETRY%{group}", 1)
    produce(scene, topic, 1, "--keys", "K")
    with consumer(scene, topic, group, "--fail", 9, "--max-reconsume", 1) as member:
        lines = member.wait_lines(2)
        assert [line["reconsumeTimes"] for line in lines] == [0, 1]
        (letter,) = dead_letters(scene, group, 1)
    assert (letter["body"], letter["keys"]) == ("message-0", "K0")


@go()
def go_a_tag_expression_selects(scene: Scene) -> None:
    topic = scene.topic()
    produce(scene, topic, 8, "--tag", "Aa,BB,c,d")  # "Aa" and "BB" have the same hash code.
    got = consume(scene, topic, scene.group(), 4, "--tag", "Aa || c")
    assert sorted(line["tags"] for line in got) == ["Aa", "Aa", "c", "c"]


@go()
def go_an_sql_expression_selects(scene: Scene) -> None:
    topic = scene.topic()
    produce(scene, topic, 5, "--property", "a={i}")
    got = consume(scene, topic, scene.group(), 2, "--sql", "a > 2")
    assert bodies(got) == ["message-3", "message-4"]


@go()
def go_a_delayed_message_comes_after_its_delay(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    with consumer(scene, topic, group) as member:
        member.wait_started()
        produce(scene, topic, 1, "--delay", 2)
        (line,) = member.wait_lines(1)
    assert line["storeTimestamp"] - line["bornTimestamp"] >= DELAY_LEVELS_S[1] * 1000 - 300
    assert line["properties"]["REAL_TOPIC"] == topic


@go(seconds=15)
def go_transactions_are_committed_rolled_back_and_asked_after(scene: Scene) -> None:
    require_go()
    topic = scene.topic()
    for words in (
        ("--transaction", "commit", "--body", "committed-"),
        ("--transaction", "rollback", "--body", "rolled-back-"),
        ("--transaction", "unknown", "--check", "commit", "--body", "asked-", "--linger", "6000"),
    ):
        lines = go_client(
            "transact", scene.namesrv, topic, 1, "--group", f"P-{scene.name()}", *words
        ).check()
        assert len([line for line in lines if "checked" in line]) == (
            1 if "--check" in words else 0
        )
    assert scene.push(scene.group(), topic).bodies(2, QUIET_SECONDS) == ["asked-0", "committed-0"]


@go()
def go_a_request_gets_the_reply_of_a_java_consumer(scene: Scene) -> None:
    require_go()
    topic = scene.topic()
    scene.push(scene.group(), topic, replyGroup=f"P-{scene.name()}")
    lines = go_client(
        "request", scene.namesrv, topic, 2, "--body", "hello ", "--timeout", 3000
    ).check()
    assert [line["body"] for line in lines] == ["HELLO 0", "HELLO 1"]


@go()
def go_a_pull_gives_what_is_there_and_says_where_to_go_on(scene: Scene) -> None:
    require_go()
    topic = scene.topic()
    produce(scene, topic, 5, "--tag", "a,b")

    def pull(offset: int, *options: str) -> Lines:
        return go_client(
            "pull", scene.namesrv, topic, 0, offset, 32, "--broker", BROKER, *options
        ).check()

    state, *messages = pull(1)
    assert (state["status"], state["next"], state["min"], state["max"]) == ("FOUND", 5, 0, 5)
    assert bodies(messages) == [f"message-{i}" for i in range(1, 5)]
    assert [line["status"] for line in pull(0, "--tag", "x")] == ["NO_MATCHED_MSG"]
    assert [(line["status"], line["next"]) for line in pull(9)] == [("OFFSET_ILLEGAL", 5)]


@go()
def go_a_pull_consumer_polls_its_topic(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    produce(scene, topic, 6)
    assert bodies(consume(scene, topic, group, 6, verb="poll")) == [
        f"message-{i}" for i in range(6)
    ]


@go()
def go_a_namespace_stands_before_topic_and_group(scene: Scene) -> None:
    topic, group = scene.name(), scene.group()
    scene.ground.create_topic(f"space%{topic}", 1)
    produce(scene, topic, 1, "--namespace", "space")
    assert bodies(consume(scene, topic, group, 1, "--namespace", "space")) == ["message-0"]
    assert scene.max_offset(f"space%{topic}") == 1
