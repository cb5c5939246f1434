"""Sends of every kind, and what is refused with which code."""

from __future__ import annotations

import pytest

from roquet.protocol.json.dialect import load
from tests.interop import wire
from tests.interop.apache import Version
from tests.interop.ground import BROKER, CLUSTER
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import QUIET_SECONDS, Scene
from tests.interop.stage import JavaError

MIB = 1024 * 1024
MESSAGE_ILLEGAL = 13
NO_PERMISSION = 16
TOPIC_NOT_EXIST = 17
SYSTEM_ERROR = 1
NO_ROUTE = 10005


@scenario()
def a_result_says_where_the_message_is(scene: Scene) -> None:
    topic, producer, puller = scene.topic(2), scene.producer(), scene.pull()
    for offset in range(3):
        (result,) = producer.send(topic, queue=1)
        assert (result["sendStatus"], result["broker"], result["queueId"]) == ("SEND_OK", BROKER, 1)
        assert (result["queueOffset"], result["regionId"]) == (offset, "DefaultRegion")
        (message,) = puller.take(topic, 1, offset)["messages"]
        assert [message[name] for name in ("msgId", "offsetMsgId")] == [
            result["msgId"],
            result["offsetMsgId"],
        ]
        assert message["storeHost"] == f"/{scene.broker}"


@scenario()
def a_message_keeps_tags_keys_flag_and_properties_and_learns_its_cluster(scene: Scene) -> None:
    topic = scene.topic()
    told = {"tags": "T", "keys": "k1 k2", "flag": 7, "user.colour": "red", "user.word": "grün"}
    scene.producer().send(topic, body="Grüße", **told)
    (message,) = scene.pull().take(topic, 0, 0)["messages"]
    assert [message[name] for name in ("body", "tags", "keys", "flag")] == [
        "Grüße",
        "T",
        "k1 k2",
        7,
    ]
    properties = message["properties"]
    assert (properties["colour"], properties["word"], properties["CLUSTER"]) == (
        "red",
        "grün",
        CLUSTER,
    )
    assert "WAIT" not in properties
    assert message["reconsumeTimes"] == 0


@scenario()
def every_way_of_sending_stores_the_message_once(scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer()
    for way, results in {"sync": 4, "async": 4, "oneway": 0, "batch": 1, "ordered": 4}.items():
        assert len(producer.send(topic, 4, way=way, body=f"{way} {{i}}")) == results
    expected = sorted(
        f"{way} {i}" for way in ("sync", "async", "oneway", "batch", "ordered") for i in range(4)
    )
    assert scene.push(scene.group(), topic).bodies(20, QUIET_SECONDS) == expected


@scenario()
def one_way_sends_to_a_queue_are_stored(scene: Scene) -> None:
    topic = scene.topic(3)
    scene.producer().send(topic, 5, way="oneway", queue=2)
    scene.wait(lambda: scene.max_offset(topic, 2) == 5, "the messages")


@scenario(
    beyond={
        Version.V5: "Apache's 4.9.7 broker gives all messages of a 5.x batch the id of the batch"
    }
)
def the_messages_of_a_batch_stand_side_by_side_and_have_ids_of_their_own(scene: Scene) -> None:
    topic = scene.topic()
    (result,) = scene.producer().send(topic, 3, way="batch", keys="k{i}", tags="A,B")
    messages = scene.pull().take(topic, 0, 0)["messages"]
    assert result["msgId"].split(",") == [line["msgId"] for line in messages]
    assert result["offsetMsgId"].split(",") == [line["offsetMsgId"] for line in messages]
    assert [(line["queueOffset"], line["tags"], line["keys"]) for line in messages] == [
        (0, "A", "k0"),
        (1, "B", "k1"),
        (2, "A", "k2"),
    ]


@scenario()
def messages_with_one_key_stand_in_one_queue_in_their_order(scene: Scene) -> None:
    topic = scene.topic(4)
    scene.producer().send(topic, 12, way="ordered", keysOfOrder=4)
    for queue in range(4):
        messages = scene.pull().take(topic, queue, 0)["messages"]
        assert [line["body"] for line in messages] == [f"message-{i}" for i in range(queue, 12, 4)]


@scenario()
def a_large_body_is_compressed_and_comes_as_it_was(scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer()
    producer.send(topic, size=100_000)
    producer.send(topic, size=4000)
    zipped, plain = scene.pull().take(topic, 0, 0)["messages"]
    assert len(zipped["body"]) == 100_000
    assert zipped["storeSize"] < 5000
    assert len(plain["body"]) == 4000 < plain["storeSize"]


@scenario()
def a_body_may_have_four_mebibytes_and_no_byte_more(scene: Scene) -> None:
    topic = scene.topic()
    producer = scene.producer(maxSize=5 * MIB, compressOver=6 * MIB)
    (result,) = producer.send(topic, size=4 * MIB)
    assert result["sendStatus"] == "SEND_OK"
    with pytest.raises(JavaError) as refused:
        producer.send(topic, size=4 * MIB + 1)
    assert refused.value.code == MESSAGE_ILLEGAL
    with pytest.raises(JavaError) as refused:
        producer.send(topic, 2, way="batch", size=2 * MIB)
    assert refused.value.code == MESSAGE_ILLEGAL
    assert scene.max_offset(topic) == 1


@scenario()
def properties_may_have_32_767_bytes(scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer()
    producer.send(topic, **{"user.long": "x" * 32_000})
    with pytest.raises(JavaError) as refused:
        producer.send(topic, **{"user.long": "x" * 33_000})
    assert refused.value.code == MESSAGE_ILLEGAL
    assert scene.max_offset(topic) == 1


def raw_send(
    scene: Scene, topic: str, queue: int = 0, properties: str = "", body: bytes = b"body"
) -> wire.Answer:
    return scene.ask(wire.SEND_MESSAGE, wire.send_fields(topic, queue, properties), body)


@scenario()
def a_topic_with_an_illegal_name_is_refused(scene: Scene) -> None:
    for name in ("a b", "a/b", "ä", "x" * 128, " "):
        assert raw_send(scene, name).code == SYSTEM_ERROR, name
    assert raw_send(scene, f"%a|-_9{scene.name()}").code == 0


@scenario()
def what_belongs_to_the_broker_is_not_sent_to(scene: Scene) -> None:
    topics = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
    for topic in (*topics, "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"):
        assert raw_send(scene, topic).code == NO_PERMISSION, topic


@scenario()
def a_queue_that_the_topic_does_not_have_is_refused(scene: Scene) -> None:
    topic = scene.topic(2)
    assert raw_send(scene, topic, 1).code == 0
    assert raw_send(scene, topic, 2).code == SYSTEM_ERROR
    anywhere = raw_send(scene, topic, -1)
    assert anywhere.code == 0
    assert int(anywhere.header["extFields"]["queueId"]) in (0, 1)


@scenario()
def properties_that_are_none_vanish(scene: Scene) -> None:
    """Empty values, names without a value, segments of two characters; of a name twice the later
    counts.
    """
    topic = scene.topic()
    assert (
        raw_send(
            scene, topic, properties="a\x01\x02b\x02\x01c\x02kk\x01one\x02kk\x01two\x02good\x01yes"
        ).code
        == 0
    )
    scene.wait(lambda: scene.max_offset(topic) == 1, "its queue entry")
    (message,) = scene.pull().take(topic, 0, 0)["messages"]
    user = {name: value for name, value in message["properties"].items() if name.islower()}
    assert user == {"kk": "two", "good": "yes"}


@scenario()
def a_level_that_is_no_number_is_refused_and_one_too_high_is_the_highest(scene: Scene) -> None:
    topic = scene.topic()
    told = raw_send(scene, topic, properties="DELAY\x01soon").code
    assert told in (SYSTEM_ERROR, MESSAGE_ILLEGAL), (
        "Apache's tells of an exception, ours of what is wrong"
    )
    assert raw_send(scene, topic, properties="DELAY\x0199").code == 0
    assert raw_send(scene, topic, properties="DELAY\x010").code == 0
    scene.wait(lambda: scene.max_offset(topic) == 2, "both messages")


@scenario()
def an_empty_message_comes_as_one(scene: Scene) -> None:
    topic = scene.topic()
    assert raw_send(scene, topic, body=b"").code == 0
    scene.wait(lambda: scene.max_offset(topic) == 1, "its queue entry")
    (message,) = scene.pull().take(topic, 0, 0)["messages"]
    assert message["body"] in (None, "")


@scenario(ground="strict")
def an_unknown_topic_is_not_sent_to_where_none_comes_to_be_by_itself(scene: Scene) -> None:
    topic = scene.name()
    with pytest.raises(JavaError) as unknown:
        scene.producer().send(topic)
    assert unknown.value.code == NO_ROUTE
    assert raw_send(scene, topic).code == TOPIC_NOT_EXIST


@scenario()
def a_send_of_a_group_that_nobody_knows_is_refused_at_its_retry_topic(scene: Scene) -> None:
    group = scene.group(retryMaxTimes=16)
    assert raw_send(scene, f"%RETRY%{group}").code == 0


@scenario()
def the_producers_of_a_group_are_listed(scene: Scene) -> None:
    group = f"P-{scene.name()}"
    assert scene.ask(204, {"producerGroup": group}).code == SYSTEM_ERROR
    topic = scene.topic()
    producer = scene.producer(group=group)
    producer.send(topic)

    def listed() -> list[str]:
        answer = scene.ask(204, {"producerGroup": group})
        return (
            [client["language"] for client in load(answer.body)["connectionSet"]]
            if answer.code == 0
            else []
        )

    scene.wait(lambda: listed() == ["JAVA"], "the producer")
    producer.stop()
    scene.wait(lambda: listed() == [], "nobody")
