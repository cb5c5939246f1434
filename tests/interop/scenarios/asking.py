"""What tools and clients ask: messages by key, id and time, where groups stand, and what consumers
do.
"""

from __future__ import annotations

import time

import pytest

from roquet.protocol.json.dialect import load
from tests.interop.apache import Version
from tests.interop.ground import BROKER
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import QUIET_SECONDS, Push, Scene
from tests.interop.stage import JavaError

TOPIC_CONFIG = (
    "5.x tools ask for one topic's settings (351), which Apache's broker answers from 5.x on only"
)
CONSUMER_NOT_ONLINE = 206


def now_ms() -> int:
    return int(time.time() * 1000)


def consumer_of(scene: Scene, group: str, topic: str, count: int) -> Push:
    """One that consumed so many messages of the topic, and whose broker knows it."""
    scene.producer().send(topic, count)
    member = scene.push(group, topic)
    member.messages(count)
    scene.wait(lambda: scene.committed(group, topic) == count, "the offset")
    return member


# messages


@scenario()
def a_message_is_found_by_each_of_its_keys(scene: Scene) -> None:
    topic, producer, puller = scene.topic(2), scene.producer(), scene.pull()
    producer.send(topic, 4, keys="one{i} two{i} both")
    scene.wait(lambda: len(puller.ask("query", topic, key="both")) == 4, "the index")
    for key in ("one2", "two2"):
        (message,) = puller.ask("query", topic, key=key)
        assert message["body"] == "message-2"
    assert len(puller.ask("query", topic, key="both", most=2)) == 2


@scenario()
def a_key_that_nobody_has_is_not_found(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer().send(topic, keys="there")
    with pytest.raises(JavaError) as nothing:
        scene.pull().ask("query", topic, key="elsewhere")
    assert nothing.value.code == 208


@scenario()
def a_query_looks_in_the_time_it_is_given_only(scene: Scene) -> None:
    topic, producer, puller = scene.topic(), scene.producer(), scene.pull()
    producer.send(topic, keys="K", body="old")
    time.sleep(2.5)
    between = now_ms() - 1000
    producer.send(topic, keys="K", body="young")
    scene.wait(lambda: len(puller.ask("query", topic, key="K")) == 2, "the index")
    (message,) = puller.ask("query", topic, key="K", begin=between)
    assert message["body"] == "young"
    (message,) = puller.ask("query", topic, key="K", end=between)
    assert message["body"] == "old"


@scenario()
def a_message_is_found_by_its_unique_key_and_by_its_place(scene: Scene) -> None:
    topic, puller = scene.topic(), scene.pull()
    (sent,) = scene.producer().send(topic, tags="T")
    time.sleep(0.5)
    for name in ("msgId", "offsetMsgId"):
        message = puller.ask("view", topic, id=sent[name])
        assert (message["body"], message["tags"], message["queueOffset"]) == ("message-0", "T", 0)


@scenario()
def mqadmin_finds_messages_by_key_id_and_offset(scene: Scene) -> None:
    topic, admin = scene.topic(), scene.admin()
    (sent,) = scene.producer().send(topic, keys="K", tags="T")
    time.sleep(0.5)
    assert sent["msgId"] in admin.command("queryMsgByKey", "-t", topic, "-k", "K")
    assert sent["msgId"] in admin.command("queryMsgByUniqueKey", "-t", topic, "-i", sent["msgId"])
    where = (
        ("-t", topic) if scene.version is Version.V5 else ()
    )  # Of 5.x it is wanted, 4.9 does not know it.
    assert sent["msgId"] in admin.command("queryMsgById", "-i", sent["offsetMsgId"], *where)
    assert sent["offsetMsgId"] in admin.command(
        "queryMsgByOffset", "-t", topic, "-b", BROKER, "-i", 0, "-o", 0
    )


@scenario()
def an_offset_is_found_by_time(scene: Scene) -> None:
    topic, producer, puller = scene.topic(), scene.producer(), scene.pull()
    assert puller.ask("search", topic, timestamp=now_ms()) == 0
    producer.send(topic, 2)
    time.sleep(1)
    producer.send(topic, 2)
    times = [line["storeTimestamp"] for line in puller.take(topic, 0, 0)["messages"]]
    assert puller.ask("search", topic, timestamp=0) == 0
    assert puller.ask("search", topic, timestamp=times[2]) == 2
    assert puller.ask("search", topic, timestamp=times[2] - 200) == 2, "the nearer one"
    assert puller.ask("search", topic, timestamp=times[1] + 200) == 1, "the nearer one"
    assert puller.ask("search", topic, timestamp=times[3] + 60_000) == 3


@scenario()
def a_queue_tells_its_bounds(scene: Scene) -> None:
    topic, puller = scene.topic(2), scene.pull()
    scene.producer().send(topic, 3, queue=1)
    bounds = puller.ask("bounds", topic, 1)
    assert (bounds["min"], bounds["max"]) == (0, 3)
    assert abs(bounds["earliest"] - now_ms()) < 60_000
    assert puller.ask("bounds", topic, 0)["max"] == 0


# where groups stand


@scenario()
def the_consumers_of_a_group_are_listed_with_what_they_want(scene: Scene) -> None:
    topic, group, admin = scene.topic(), scene.group(), scene.admin()
    assert scene.ask(203, {"consumerGroup": group}).code == CONSUMER_NOT_ONLINE
    member = scene.push(group, topic, tags="a || b")
    scene.wait(lambda: bool(member.assigned(topic)), "its queues")
    scene.wait(
        lambda: scene.has_route(f"%RETRY%{group}"), "the route by which admin finds its brokers"
    )
    seen = admin.invoke("examineConsumerConnectionInfo", group)
    (connection,) = seen["connectionSet"]
    assert (connection["clientId"], connection["language"]) == (member.client_id, "JAVA")
    assert (seen["consumeType"], seen["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert seen["consumeFromWhere"] == "CONSUME_FROM_FIRST_OFFSET"
    assert set(seen["subscriptionTable"]) == {topic, f"%RETRY%{group}"}
    assert seen["subscriptionTable"][topic]["subString"] == "a || b"
    assert sorted(seen["subscriptionTable"][topic]["tagsSet"]) == ["a", "b"]


@scenario(beyond={Version.V5: TOPIC_CONFIG})
def a_groups_progress_is_shown_for_every_queue(scene: Scene) -> None:
    topic, group, admin = scene.topic(2), scene.group(), scene.admin()
    producer = scene.producer()
    for queue in (0, 1):
        producer.send(topic, 3, queue=queue)
    member = scene.push(group, topic)
    member.messages(6)
    scene.wait(
        lambda: [scene.committed(group, topic, queue) for queue in (0, 1)] == [3, 3], "its offsets"
    )
    member.stop()
    producer.send(topic, 2, queue=0)
    stats = admin.invoke("examineConsumeStats", group)["offsetTable"]
    of_topic = {
        queue: (value["brokerOffset"], value["consumerOffset"])
        for (name, queue), value in ((_queue(key), value) for key, value in stats.items())
        if name == topic
    }
    assert of_topic == {0: (5, 3), 1: (3, 3)}
    assert "Diff Total: 2" in admin.command("consumerProgress", "-g", group)
    assert admin.invoke("queryTopicConsumeByWho", topic)["groupList"] == [group]


def _queue(key: object) -> tuple[str, int]:
    """A queue that is the key of a table: its topic and number."""
    told = load(key.encode()) if isinstance(key, str) else dict(key)  # type: ignore[call-overload]
    return told["topic"], told["queueId"]


@scenario(beyond={Version.V5: TOPIC_CONFIG})
def a_topics_queues_are_shown_with_their_bounds(scene: Scene) -> None:
    topic, admin = scene.topic(2), scene.admin()
    scene.producer().send(topic, 3, queue=1)
    rows = [row for row in admin.rows("topicStatus", "-t", topic) if row and row[0] == BROKER]
    assert [row[1:4] for row in rows] == [["0", "0", "0"], ["1", "0", "3"]]


# offsets that are set


@scenario(seconds=20)
def a_consumer_that_runs_goes_back_to_a_time(scene: Scene) -> None:
    topic, group, producer = scene.topic(), scene.group(), scene.producer()
    member = scene.push(group, topic)
    producer.send(topic, 2, body="old {i}")
    time.sleep(2)
    producer.send(topic, 2, body="young {i}")
    assert len(member.messages(4)) == 4
    third = scene.pull().take(topic, 0, 2)["messages"][0]["storeTimestamp"]
    scene.wait(lambda: scene.committed(group, topic) == 4, "the offset")
    scene.admin().command("resetOffsetByTime", "-g", group, "-t", topic, "-s", third)
    assert sorted(line["body"] for line in member.messages(6)[4:]) == ["young 0", "young 1"]
    time.sleep(QUIET_SECONDS)
    assert len(member.messages()) == 6
    scene.wait(lambda: scene.committed(group, topic) == 4, "the offset again")


@scenario()
def a_group_that_is_not_connected_is_set_back_by_the_tool_itself(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = consumer_of(scene, group, topic, 3)
    member.stop()
    second = scene.pull().take(topic, 0, 1)["messages"][0]["storeTimestamp"]
    assert (
        scene.ask(
            222, {"topic": topic, "group": group, "timestamp": second, "isForce": "true"}
        ).code
        == 206
    )
    scene.admin().command("resetOffsetByTime", "-g", group, "-t", topic, "-s", 0)
    scene.wait(lambda: scene.committed(group, topic) == 0, "the offset set back")
    assert len(scene.push(group, topic).messages(3)) == 3


@scenario()
def a_group_skips_what_it_did_not_consume(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    assert (
        scene.ask(
            15, {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 0}
        ).code
        == 0
    )
    scene.producer().send(topic, 5)
    scene.admin().command("skipAccumulatedMessage", "-g", group, "-t", topic, "-f", "true")
    scene.wait(lambda: (scene.committed(group, topic) or 0) >= 4, "the offset near the end")


@scenario()
def where_a_consumer_stands_is_asked_of_itself(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = consumer_of(scene, group, topic, 3)
    answer = scene.ask(223, {"topic": topic, "group": group})
    assert answer.code == 0
    table = load(answer.body)["consumerTable"]
    assert list(table) == [member.client_id]
    assert [(_queue(key), offset) for key, offset in table[member.client_id].items()] == [
        ((topic, 0), 3)
    ]


@scenario()
def a_groups_offsets_are_copied_to_another(scene: Scene) -> None:
    topic, source, target = scene.topic(2), scene.group(), scene.group()
    for queue, offset in ((0, 0), (1, 0)):
        assert scene.ask(15, _progress(source, topic, queue, offset)).code == 0
    scene.producer().send(topic, 6, way="ordered", keysOfOrder=2)
    for queue, offset in ((0, 2), (1, 3)):
        assert scene.ask(15, _progress(source, topic, queue, offset)).code == 0
    assert (
        scene.ask(
            314, {"srcGroup": source, "destGroup": target, "topic": topic, "offline": "false"}
        ).code
        == 0
    )
    assert [scene.committed(target, topic, queue) for queue in (0, 1)] == [2, 3]


@scenario(beyond={Version.V5: TOPIC_CONFIG})
def mqadmin_copies_a_groups_offsets(scene: Scene) -> None:
    topic, source, target = scene.topic(), scene.group(), scene.group()
    member = consumer_of(scene, source, topic, 4)
    member.stop()
    scene.admin().command("cloneGroupOffset", "-s", source, "-d", target, "-t", topic)
    scene.wait(lambda: scene.committed(target, topic) == 4, "the copy")


def _progress(group: str, topic: str, queue: int, offset: int) -> dict[str, object]:
    return {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset}


# what consumers do


@scenario()
def a_consumer_tells_how_it_runs(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    scene.producer().send(topic, 4)
    member = scene.push(group, topic, orderly=True)
    member.messages(4)
    info = scene.admin().invoke("getConsumerRunningInfo", group, member.client_id, False)
    queues = {_queue(key)[1] for key in info["mqTable"] if _queue(key)[0] == topic}
    assert queues == {0, 1}
    assert info["properties"]["PROP_CONSUMEORDERLY"] == "true"
    assert {wish["topic"] for wish in info["subscriptionSet"]} == {topic, f"%RETRY%{group}"}


@scenario()
def nothing_is_asked_of_a_consumer_that_is_not_there(scene: Scene) -> None:
    fields = {"consumerGroup": scene.group(), "clientId": "nobody"}
    assert scene.ask(307, fields).code == 1
    topic = scene.topic()
    (sent,) = scene.producer().send(topic)
    assert scene.ask(309, fields | {"msgId": sent["offsetMsgId"]}).code == 1


@scenario()
def a_consumer_is_made_to_consume_a_message_now(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    (sent,) = scene.producer().send(topic)
    member = scene.push(group, topic)
    member.messages(1)
    result = scene.admin().invoke(
        "consumeMessageDirectly", group, member.client_id, topic, sent["msgId"]
    )
    assert (result["consumeResult"], result["order"]) == ("CR_SUCCESS", False)
    assert [line["body"] for line in member.messages(2)] == ["message-0"] * 2


@scenario()
def mqadmin_shows_how_consumers_run(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = scene.push(group, topic)
    member.wait_assigned(topic, {0})
    said = scene.admin().command("consumerStatus", "-g", group)
    assert member.client_id in said
