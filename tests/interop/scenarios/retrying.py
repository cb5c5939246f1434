"""What happens to messages that consumers refuse, and to those that are to come later."""

from __future__ import annotations

import time
from itertools import pairwise

from roquet.protocol.json.dialect import load
from tests.interop import wire
from tests.interop.apache import Version
from tests.interop.ground import DELAY_LEVELS_S
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import QUIET_SECONDS, Lines, Scene

SLACK_S = 4.0
"""A broker may look a little later, and a busy machine takes its time."""


def refusing_group(scene: Scene, **settings: object) -> str:
    """A group whose retry topic is there already: a consumer that finds it missing looks again
    after 20 s only.
    """
    group = scene.group(**settings)
    scene.ground.create_topic(f"%RETRY%{group}", 1)
    return group


def gaps(lines: Lines) -> list[float]:
    times = [line["at"] / 1000 for line in lines]
    return [later - earlier for earlier, later in pairwise(times)]


def dead_letters(scene: Scene, group: str, count: int, queue: int = 0) -> Lines:
    topic = f"%DLQ%{group}"
    scene.wait(lambda: scene.max_offset(topic, queue) >= count, f"{count} dead letters")
    scene.wait(lambda: wire.has_topic(scene.namesrv, topic), f"a route for {topic}")
    found: Lines = scene.pull().take(topic, queue, 0)["messages"]
    return found


@scenario(seconds=12)
def a_refused_message_comes_again_after_longer_and_longer_delays(scene: Scene) -> None:
    topic, group = scene.topic(), refusing_group(scene)
    member = scene.push(group, topic, fail=3)
    (sent,) = scene.producer().send(topic, tags="T", keys="K", **{"user.colour": "red"})
    lines = member.messages(4)
    assert [line["reconsumeTimes"] for line in lines] == [0, 1, 2, 3]
    for gap, level in zip(gaps(lines), (3, 4, 5), strict=True):
        assert DELAY_LEVELS_S[level - 1] - 0.3 <= gap <= DELAY_LEVELS_S[level - 1] + SLACK_S
    for line in lines:
        assert (line["topic"], line["body"], line["tags"], line["keys"]) == (
            topic,
            "message-0",
            "T",
            "K",
        )
        assert (line["msgId"], line["properties"]["colour"]) == (sent["msgId"], "red")
    again = lines[1]["properties"]
    assert (again["RETRY_TOPIC"], again["ORIGIN_MESSAGE_ID"]) == (topic, sent["offsetMsgId"])
    assert again["REAL_TOPIC"] == f"%RETRY%{group}"
    assert lines[3]["properties"]["ORIGIN_MESSAGE_ID"] == sent["offsetMsgId"]


@scenario()
def a_message_is_refused_by_an_exception_or_by_no_answer_too(scene: Scene) -> None:
    for refusal in ("throw", "null"):
        topic, group = scene.topic(), refusing_group(scene)
        member = scene.push(group, topic, fail=1, refusal=refusal)
        scene.producer().send(topic)
        assert [line["reconsumeTimes"] for line in member.messages(2)] == [0, 1], refusal


@scenario()
def the_level_that_a_consumer_asks_for_is_the_delay(scene: Scene) -> None:
    topic, group = scene.topic(), refusing_group(scene)
    member = scene.push(group, topic, fail=1, level=18)
    scene.producer().send(topic)
    (gap,) = gaps(member.messages(2))
    assert DELAY_LEVELS_S[17] - 0.3 <= gap <= DELAY_LEVELS_S[17] + SLACK_S


@scenario(seconds=10)
def a_message_that_was_refused_as_often_as_allowed_is_a_dead_letter(scene: Scene) -> None:
    topic, group = scene.topic(), refusing_group(scene)
    member = scene.push(group, topic, maxReconsume=2, refused="bad")
    producer = scene.producer()
    (bad,) = producer.send(topic, body="bad", keys="K")
    producer.send(topic, body="good")
    (letter,) = dead_letters(scene, group, 1)
    assert (letter["body"], letter["keys"], letter["reconsumeTimes"]) == ("bad", "K", 3)
    assert letter["topic"] == f"%DLQ%{group}"
    assert letter["properties"]["RETRY_TOPIC"] == topic
    assert letter["properties"]["ORIGIN_MESSAGE_ID"] == bad["offsetMsgId"]
    time.sleep(QUIET_SECONDS)
    assert sorted(line["body"] for line in member.messages()) == ["bad", "bad", "bad", "good"]


@scenario()
def the_group_says_how_often_a_message_is_tried_where_the_consumer_does_not(scene: Scene) -> None:
    """Consumers always do; who sends back by hand may leave it to the group."""
    topic, group = scene.topic(), scene.group(retryMaxTimes=0)
    (sent,) = scene.producer().send(topic)
    place = scene.pull().take(topic, 0, 0)["messages"][0]["commitLogOffset"]
    fields = {
        "offset": place,
        "group": group,
        "delayLevel": 0,
        "originTopic": topic,
        "originMsgId": sent["msgId"],
    }
    assert scene.ask(36, fields).code == 0
    (letter,) = dead_letters(scene, group, 1)
    assert (letter["body"], letter["reconsumeTimes"]) == ("message-0", 1)


@scenario()
def a_negative_level_makes_a_dead_letter_at_once(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = scene.push(group, topic, refused="bad", level=-1)
    scene.producer().send(topic, body="bad")
    (letter,) = dead_letters(scene, group, 1)
    assert (letter["body"], letter["reconsumeTimes"]) == ("bad", 1)
    assert len(member.messages()) == 1


@scenario()
def a_group_without_retry_queues_loses_what_it_refuses(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group(retryQueueNums=0)
    member = scene.push(group, topic, refused="bad")
    scene.producer().send(topic, body="bad")
    member.messages(1)
    time.sleep(2 * QUIET_SECONDS)
    assert len(member.messages()) == 1
    scene.wait(lambda: scene.committed(group, topic) == 1, "the offset behind it")


@scenario()
def what_is_sent_back_has_to_be_there(scene: Scene) -> None:
    group = scene.group(retryMaxTimes=16)
    assert scene.ask(36, {"offset": 2**40, "group": group, "delayLevel": 0}).code == 1


@scenario(ground="strict")
def a_group_that_nobody_made_sends_nothing_back(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer().send(topic)
    assert scene.ask(36, {"offset": 0, "group": scene.group(), "delayLevel": 0}).code == 26


@scenario(versions=[Version.V4])
def a_pull_consumer_sends_a_message_back_by_its_id(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    (sent,) = scene.producer().send(topic)
    puller = scene.pull(group)
    puller.take(
        topic, sent["queueId"], 0
    )  # a client that knows no broker yet would ask the name server
    puller.ask("sendBack", topic, id=sent["offsetMsgId"], group=group, level=1)
    retry = f"%RETRY%{group}"
    scene.wait(lambda: scene.max_offset(retry) == 1, "the message in the retry topic")
    (message,) = scene.pull().take(retry, 0, 0)["messages"]
    assert (message["body"], message["reconsumeTimes"]) == ("message-0", 1)


@scenario(seconds=10)
def an_orderly_consumer_tries_again_by_itself_then_gives_the_message_away(scene: Scene) -> None:
    """Local tries leave nothing at the broker; after the last the message is a dead letter and the
    next comes.
    """
    topic, group = scene.topic(), scene.group()
    producer = scene.producer()
    producer.send(topic, body="bad")
    producer.send(topic, body="good")
    member = scene.push(group, topic, orderly=True, maxReconsume=2, refused="bad", suspend=50)
    assert [line["body"] for line in member.messages(4)] == ["bad", "bad", "bad", "good"]
    assert [line["reconsumeTimes"] for line in member.messages()] == [0, 1, 2, 0]
    (letter,) = dead_letters(scene, group, 1)
    assert letter["body"] == "bad"
    assert letter["properties"]["RETRY_TOPIC"] == topic


@scenario()
def a_groups_retry_topic_comes_to_be_with_its_first_consumer(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group(retryQueueNums=3)
    assert not wire.has_topic(scene.namesrv, f"%RETRY%{group}")
    scene.push(group, topic)
    scene.wait(
        lambda: wire.has_topic(scene.namesrv, f"%RETRY%{group}"), "a route for the retry topic"
    )
    (queues,) = load(wire.ask(scene.namesrv, 105, {"topic": f"%RETRY%{group}"}).body)["queueDatas"]
    assert [queues[name] for name in ("readQueueNums", "writeQueueNums", "perm")] == [3, 3, 6]


@scenario()
def the_retries_of_one_group_are_not_anothers(scene: Scene) -> None:
    topic = scene.topic()
    refuses, other = (
        scene.push(refusing_group(scene), topic, fail=1),
        scene.push(scene.group(), topic),
    )
    scene.producer().send(topic)
    assert len(refuses.messages(2)) == 2
    assert len(other.messages(1)) == 1
    time.sleep(QUIET_SECONDS)
    assert len(other.messages()) == 1


# delay


@scenario()
def a_delayed_message_comes_after_the_delay_of_its_level(scene: Scene) -> None:
    topic = scene.topic()
    member, producer = scene.push(scene.group(), topic), scene.producer()
    member.wait_assigned(topic, {0})
    sent = {}
    for level in (1, 2, 5, 18):
        sent[str(level)] = time.time()
        producer.send(topic, delay=level, body=str(level))
    for line in member.messages(4):
        level = int(line["body"])
        waited = line["at"] / 1000 - sent[line["body"]]
        assert DELAY_LEVELS_S[level - 1] - 0.3 <= waited <= DELAY_LEVELS_S[level - 1] + SLACK_S, (
            level
        )
    assert sorted(line["body"] for line in member.messages()) == ["1", "18", "2", "5"]


@scenario()
def a_delayed_message_keeps_what_it_was_sent_with(scene: Scene) -> None:
    topic = scene.topic(2)
    (sent,) = scene.producer().send(
        topic, delay=1, queue=1, tags="T", keys="K", flag=5, **{"user.colour": "red"}
    )
    assert (sent["sendStatus"], sent["queueId"]) == ("SEND_OK", 1)
    (message,) = scene.push(scene.group(), topic, tags="T").messages(1)
    assert [message[name] for name in ("topic", "queueId", "tags", "keys", "flag")] == [
        topic,
        1,
        "T",
        "K",
        5,
    ]
    assert (message["msgId"], message["properties"]["colour"]) == (sent["msgId"], "red")
    assert [message["properties"][name] for name in ("DELAY", "REAL_TOPIC", "REAL_QID")] == [
        "1",
        topic,
        "1",
    ]


@scenario()
def delayed_messages_of_a_level_keep_their_order(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer().send(topic, 20, delay=1)
    lines = scene.push(scene.group(), topic, orderly=True).messages(20)
    assert [line["body"] for line in lines] == [f"message-{i}" for i in range(20)]
