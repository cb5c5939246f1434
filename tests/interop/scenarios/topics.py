"""Topics and groups: how they come to be, what may be done to them, and how they go."""

from __future__ import annotations

import time
from typing import Any

import pytest

from roquet.protocol.json.dialect import load
from tests.interop import wire
from tests.interop.apache import Version
from tests.interop.ground import BROKER, CLUSTER
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import QUIET_SECONDS, Scene
from tests.interop.stage import JavaError

UPDATE_TOPIC = 17
ROUTE = 105
TOPIC_NOT_EXIST = 17
NO_PERMISSION = 16
NO_ROUTE = 10005


def route(scene: Scene, topic: str) -> dict[str, Any]:
    """Queues and permission of a topic as clients get to know them; empty: there is no route."""
    answer = wire.ask(scene.namesrv, ROUTE, {"topic": topic})
    if answer.code != 0:
        return {}
    (queues,) = load(answer.body)["queueDatas"]
    return {
        "read": queues["readQueueNums"],
        "write": queues["writeQueueNums"],
        "perm": queues["perm"],
    }


def update_topic(scene: Scene, topic: str, *, read: int = 1, write: int = 1, perm: int = 6) -> int:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": read,
        "writeQueueNums": write,
        "perm": perm,
    }
    return scene.ask(
        UPDATE_TOPIC, fields | {"topicFilterType": "SINGLE_TAG", "order": "false"}
    ).code


# how they come to be


@scenario()
def a_topic_comes_to_be_with_as_many_queues_as_the_producer_wants_and_the_pattern_allows(
    scene: Scene,
) -> None:
    for wanted, queues in ((4, 4), (16, 8), (1, 1)):
        topic = scene.name()
        scene.producer(defaultQueues=wanted).send(topic)
        scene.wait(lambda topic=topic: bool(route(scene, topic)), "a route")  # type: ignore[misc]
        assert route(scene, topic) == {"read": queues, "write": queues, "perm": 6}


@scenario()
def a_topic_comes_to_be_after_another_pattern_only_if_that_may_be_inherited(scene: Scene) -> None:
    pattern, plain = scene.name(), scene.name()
    assert update_topic(scene, pattern, read=6, write=6, perm=7) == 0
    assert update_topic(scene, plain, read=3, write=3) == 0
    scene.wait(lambda: bool(route(scene, pattern) and route(scene, plain)), "routes")
    made = scene.name()
    scene.producer(createTopicKey=pattern, defaultQueues=3).send(made)
    scene.wait(lambda: bool(route(scene, made)), "a route")
    assert route(scene, made) == {"read": 3, "write": 3, "perm": 6}
    with pytest.raises(JavaError) as refused:
        scene.producer(createTopicKey=plain).send(scene.name())
    assert refused.value.code == TOPIC_NOT_EXIST


@scenario()
def the_topics_of_the_clusters_and_brokers_own_are_there(scene: Scene) -> None:
    names = set(load(scene.ask(305).body)["topicList"])
    assert names >= {
        "TBW102",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "SCHEDULE_TOPIC_XXXX",
        "OFFSET_MOVED_EVENT",
    }
    assert names >= {CLUSTER, BROKER, f"{CLUSTER}_REPLY_TOPIC", "RMQ_SYS_TRACE_TOPIC"}
    assert {
        name: tuple(route(scene, name).values())
        for name in ("TBW102", CLUSTER, BROKER, "BenchmarkTest")
    } == {
        "TBW102": (8, 8, 7),
        CLUSTER: (16, 16, 7),
        BROKER: (1, 1, 7),
        "BenchmarkTest": (1024, 1024, 6),
    }
    listed = load(wire.ask(scene.namesrv, 304).body)["topicList"]
    assert set(listed) == {CLUSTER, BROKER}


@scenario()
def a_topic_of_the_systems_is_not_made_by_hand(scene: Scene) -> None:
    for name in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC", "TBW102"):
        assert update_topic(scene, name) == 1, name
    assert update_topic(scene, "a b") == 1


# what may be done to them


@scenario()
def a_topic_that_may_only_be_read_is_not_sent_to_by_clients(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer().send(topic)
    assert update_topic(scene, topic, perm=4) == 0
    scene.wait(lambda: route(scene, topic)["perm"] == 4, "the route")
    with pytest.raises(JavaError) as refused:
        scene.producer().send(topic)
    assert refused.value.code == NO_ROUTE
    assert scene.push(scene.group(), topic).bodies(1) == ["message-0"]


@scenario()
def a_topic_that_may_only_be_written_is_not_read(scene: Scene) -> None:
    topic = scene.topic()
    assert update_topic(scene, topic, perm=2) == 0
    scene.wait(lambda: route(scene, topic)["perm"] == 2, "the route")
    scene.producer().send(topic)
    fields = {
        "consumerGroup": scene.group(),
        "topic": topic,
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 1,
    }
    fields |= {
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subVersion": 0,
        "subscription": "*",
    }
    assert scene.ask(11, fields).code == NO_PERMISSION
    member = scene.push(scene.group(), topic)
    time.sleep(QUIET_SECONDS)
    assert member.messages() == []
    assert scene.ask(11, fields | {"topic": scene.name()}).code == TOPIC_NOT_EXIST


@scenario()
def producers_use_the_write_queues_and_consumers_the_read_queues(scene: Scene) -> None:
    topic = scene.name()
    assert update_topic(scene, topic, read=4, write=2) == 0
    scene.wait(lambda: bool(route(scene, topic)), "a route")
    scene.producer().send(topic, 8)
    member = scene.push(scene.group(), topic)
    member.wait_assigned(topic, range(4))
    assert {line["queueId"] for line in member.messages(8)} == {0, 1}
    fewer = scene.name()
    assert update_topic(scene, fewer, read=1, write=3) == 0
    scene.wait(lambda: bool(route(scene, fewer)), "a route")
    producer = scene.producer()
    for queue in range(3):
        producer.send(fewer, queue=queue, body=str(queue))
    member = scene.push(scene.group(), fewer)
    assert member.bodies(1, QUIET_SECONDS) == ["0"], (
        "the others wait until their queues may be read"
    )
    assert update_topic(scene, fewer, read=3, write=3) == 0
    assert member.bodies(3) == ["0", "1", "2"]


@scenario()
def a_topic_that_gets_more_queues_is_used_with_all_of_them(scene: Scene) -> None:
    topic = scene.topic(1)
    member, producer = scene.push(scene.group(), topic), scene.producer()
    producer.send(topic)
    assert update_topic(scene, topic, read=3, write=3) == 0
    member.wait_assigned(topic, range(3))
    scene.wait(
        lambda: (
            bool(producer.send(topic, 3))
            and len({line["queueId"] for line in member.messages()}) == 3
        ),
        "messages of all queues",
    )


@scenario()
def mqadmin_makes_shows_and_deletes_a_topic(scene: Scene) -> None:
    admin, topic = scene.admin(), scene.name()
    assert "success" in admin.command("updateTopic", "-c", CLUSTER, "-t", topic, "-r", 3, "-w", 2)
    scene.wait(lambda: route(scene, topic) == {"read": 3, "write": 2, "perm": 6}, "the route")
    assert "success" in admin.command("updateTopicPerm", "-c", CLUSTER, "-t", topic, "-p", 4)
    scene.wait(lambda: route(scene, topic)["perm"] == 4, "the permission")
    assert topic in admin.command("topicList").split()
    assert [CLUSTER, topic] in [row[:2] for row in admin.rows("topicList", "-c")]
    assert "success" in admin.command("deleteTopic", "-c", CLUSTER, "-t", topic)
    assert route(scene, topic) == {}
    assert topic not in admin.command("topicList").split()


@scenario(ground="strict")
def the_order_of_a_topics_queues_is_told_to_clients_and_the_broker_knows_that_it_is_ordered(
    scene: Scene,
) -> None:
    topic, admin = scene.topic(), scene.admin()
    order = f"{BROKER}:1"
    admin.command("updateOrderConf", "-t", topic, "-v", order, "-m", "put")
    assert order in admin.command("updateOrderConf", "-t", topic, "-m", "get")
    assert load(wire.ask(scene.namesrv, ROUTE, {"topic": topic}).body)["orderTopicConf"] == order

    def is_ordered() -> bool:
        return bool(load(scene.ask(21).body)["topicConfigTable"][topic]["order"])

    update_topic(
        scene, scene.name()
    )  # A change of any topic makes the broker register, and it is told of the order.
    scene.wait(is_ordered, "the broker's knowledge", 40)
    admin.command("updateOrderConf", "-t", topic, "-m", "delete")
    assert "orderTopicConf" not in load(wire.ask(scene.namesrv, ROUTE, {"topic": topic}).body)


@scenario(ground="strict")
def a_producer_of_an_ordered_topic_uses_the_queues_that_the_order_says(scene: Scene) -> None:
    topic, admin = scene.topic(4), scene.admin()
    admin.command("updateOrderConf", "-t", topic, "-v", f"{BROKER}:2", "-m", "put")
    scene.producer().send(topic, 8)
    assert [scene.max_offset(topic, queue) for queue in range(4)] == [4, 4, 0, 0]
    admin.command("updateOrderConf", "-t", topic, "-m", "delete")


@scenario(ground="alone", versions=[Version.V4])
def a_broker_whose_write_permission_is_wiped_is_not_sent_to(scene: Scene) -> None:
    topic, admin, producer = scene.topic(), scene.admin(), scene.producer()
    producer.send(topic)
    try:
        assert "OK" in admin.command("wipeWritePerm", "-b", BROKER, "-n", scene.namesrv)
        assert route(scene, topic)["perm"] == 4
        with pytest.raises(JavaError) as refused:
            scene.producer().send(topic)
        assert refused.value.code == NO_ROUTE
    finally:
        assert "OK" in admin.command("addWritePerm", "-b", BROKER, "-n", scene.namesrv)
    assert route(scene, topic)["perm"] == 6


# how they go


@scenario()
def a_deleted_topic_is_gone_and_may_be_made_again_empty(scene: Scene) -> None:
    topic, admin = scene.topic(), scene.admin()
    scene.producer().send(topic, 3)
    admin.command("deleteTopic", "-c", CLUSTER, "-t", topic)
    assert route(scene, topic) == {}
    scene.ground.create_topic(topic, 1)
    scene.ask(
        316
    )  # Its queues go with those of all unused topics; else the next owner of the name would find them.
    scene.producer().send(topic, 1, body="new")
    assert "new" in [
        line["body"]
        for line in scene.pull().take(topic, 0, scene.max_offset(topic) - 1)["messages"]
    ]


@scenario()
def the_queues_of_topics_that_nobody_has_go_when_they_are_cleaned(scene: Scene) -> None:
    topic, admin = scene.topic(), scene.admin()
    scene.producer().send(topic, 3)
    admin.command("deleteTopic", "-c", CLUSTER, "-t", topic)
    assert scene.ask(316).code == 0
    assert scene.max_offset(topic) == 0
    scene.ground.create_topic(topic, 1)
    assert scene.pull().take(topic, 0, 0)["status"] == "NO_NEW_MSG"


@scenario()
def expired_consume_queues_are_cleaned_on_demand_and_living_ones_stay(scene: Scene) -> None:
    topic, admin = scene.topic(), scene.admin()
    scene.producer().send(topic, 2)
    assert "success" in admin.command("cleanExpiredCQ", "-b", scene.broker)
    assert "success" in admin.command("cleanUnusedTopic", "-b", scene.broker)
    assert len(scene.pull().take(topic, 0, 0)["messages"]) == 2


@scenario(
    beyond={
        Version.V5: "Apache's 4.9.7 broker does not know 5.x's name for the wish to forget offsets"
    }
)
def a_group_is_made_shown_and_deleted(scene: Scene) -> None:
    admin, group, topic = scene.admin(), scene.group(), scene.topic()
    assert "success" in admin.command(
        "updateSubGroup", "-b", scene.broker, "-g", group, "-r", 5, "-q", 2
    )
    config = load(scene.ask(201).body)["subscriptionGroupTable"][group]
    assert (config["retryMaxTimes"], config["retryQueueNums"]) == (5, 2)
    assert (
        scene.ask(
            15, {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 0}
        ).code
        == 0
    )
    assert "success" in admin.command(
        "deleteSubGroup", "-b", scene.broker, "-g", group, "-r", "true"
    )
    assert group not in load(scene.ask(201).body)["subscriptionGroupTable"]
    assert f"{topic}@{group}" not in load(scene.ask(43).body)["offsetTable"]


@scenario()
def the_groups_of_the_system_are_there(scene: Scene) -> None:
    groups = load(scene.ask(201).body)["subscriptionGroupTable"]
    names = {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_OWNER",
    }
    assert names <= set(groups)


# namespaces


@scenario()
def a_namespace_stands_before_topic_and_group_and_is_not_seen_by_the_listener(scene: Scene) -> None:
    topic, group, space = scene.name(), scene.group(), f"space{scene.version[0]}"
    scene.ground.create_topic(f"{space}%{topic}", 1)
    producer = scene.producer(namespace=space)
    (sent,) = scene.producer(namespace=space).call("send", topic=topic, tags="T")
    assert sent["sendStatus"] == "SEND_OK"
    member = scene.push(group, topic, namespace=space)
    (message,) = member.messages(1)
    assert (message["topic"], message["body"]) == (topic, "message-0")
    assert scene.max_offset(f"{space}%{topic}") == 1
    scene.wait(lambda: wire.has_topic(scene.namesrv, f"%RETRY%{space}%{group}"), "the retry topic")
    outside = scene.push(scene.group(), f"{space}%{topic}")
    assert outside.bodies(1) == ["message-0"]
    producer.stop()
