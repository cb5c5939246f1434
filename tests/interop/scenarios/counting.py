"""Statistics: what brokers count of topics and groups, and what they say of themselves."""

from __future__ import annotations

import time
from typing import Any

import pytest

from roquet.protocol.json.dialect import load
from tests.interop.ground import BROKER, CLUSTER
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import Scene
from tests.interop.stage import JavaError


def stats(scene: Scene, item: str, key: str) -> dict[str, Any] | None:
    answer = scene.ask(315, {"statsName": item, "statsKey": key})
    found: dict[str, Any] | None = load(answer.body) if answer.code == 0 else None
    return found


@scenario(seconds=40)
def what_was_sent_and_consumed_is_counted_by_topic_and_group(scene: Scene) -> None:
    """Counters are looked at every 10 s; a sum is the difference between the newest and the oldest
    look of a window.
    """
    topic, group, producer = scene.topic(), scene.group(), scene.producer()
    member = scene.push(group, topic)
    member.wait_assigned(topic, {0})
    producer.send(topic, 10)
    producer.send(topic, 5, way="batch")
    member.messages(15)

    def minute(item: str, key: str) -> int:
        found = stats(scene, item, key)
        return int(found["statsMinute"]["sum"]) if found else 0

    scene.wait(lambda: minute("TOPIC_PUT_NUMS", topic) == 15, "the topic's count")
    scene.wait(lambda: minute("GROUP_GET_NUMS", f"{topic}@{group}") == 15, "the group's count")
    assert minute("TOPIC_PUT_SIZE", topic) > 15 * 90
    assert minute("GROUP_GET_SIZE", f"{topic}@{group}") == minute("TOPIC_PUT_SIZE", topic)
    counted = stats(scene, "TOPIC_PUT_NUMS", topic)
    assert counted is not None
    assert set(counted) == {"statsMinute", "statsHour", "statsDay"}
    assert 0 < counted["statsMinute"]["tps"] < 15
    assert stats(scene, "BROKER_PUT_NUMS", CLUSTER) is not None
    assert stats(scene, "BROKER_GET_NUMS", CLUSTER) is not None


@scenario(seconds=30)
def how_long_pulls_take_is_counted_by_queue_and_group(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    member = scene.push(group, topic)
    scene.producer().send(topic, 4, queue=1)
    member.messages(4)
    scene.wait(
        lambda: stats(scene, "GROUP_GET_LATENCY", f"1@{topic}@{group}") is not None, "the time"
    )
    assert stats(scene, "GROUP_GET_LATENCY", f"0@{topic}@{group}") is None, (
        "nothing was found there"
    )
    assert stats(scene, "GROUP_GET_LATENCY", f"{topic}@{group}") is None


@scenario(seconds=30)
def delayed_messages_are_counted_when_they_come_and_when_they_go(scene: Scene) -> None:
    """Others send such messages, too."""
    topic, level = scene.topic(), "SCHEDULE_TOPIC_XXXX@1"
    member = scene.push(scene.group(), topic)
    scene.producer().send(topic, 3, delay=2)
    member.messages(3)

    def minute(item: str, key: str) -> int:
        found = stats(scene, item, key)
        return int(found["statsMinute"]["sum"]) if found else 0

    scene.wait(lambda: minute("QUEUE_PUT_NUMS", level) >= 3, "what came")
    scene.wait(lambda: minute("QUEUE_GET_NUMS", f"{level}@SCHEDULE_CONSUMER") >= 3, "what went")
    assert minute("QUEUE_PUT_SIZE", level) > 3 * 90
    assert minute("QUEUE_GET_SIZE", f"{level}@SCHEDULE_CONSUMER") > 3 * 90
    scene.wait(
        lambda: minute("GROUP_GET_NUMS", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER") >= 3,
        "what went at all",
    )
    scene.wait(lambda: minute("TOPIC_PUT_NUMS", topic) == 3, "the topic's count")


@scenario()
def what_only_other_editions_of_the_broker_count_is_refused(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = scene.push(group, topic)
    scene.producer().send(topic, 2)
    member.messages(2)
    for item in (
        "COMMERCIAL_SEND_TIMES",
        "COMMERCIAL_RCV_TIMES",
        "COMMERCIAL_RCV_SIZE",
        "GROUP_GET_FROM_DISK_NUMS",
    ):
        for key in (topic, f"{topic}@{group}"):
            assert scene.ask(315, {"statsName": item, "statsKey": key}).code == 1


@scenario()
def what_nobody_counted_is_refused(scene: Scene) -> None:
    for item, key in (("TOPIC_PUT_NUMS", scene.name()), ("NO_SUCH_NAME", "T")):
        assert scene.ask(315, {"statsName": item, "statsKey": key}).code == 1
    with pytest.raises(JavaError) as unknown:
        scene.admin().invoke("viewBrokerStatsData", scene.broker, "TOPIC_PUT_NUMS", scene.name())
    assert unknown.value.code == 1


@scenario(seconds=12)
def what_is_sent_back_is_counted(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = scene.push(group, topic, refused="bad", level=-1)
    scene.producer().send(topic, body="bad")
    member.messages(1)
    scene.wait(lambda: stats(scene, "SNDBCK_PUT_NUMS", f"{topic}@{group}") is not None, "the count")


@scenario()
def how_far_groups_are_behind_is_shown_for_the_whole_broker(scene: Scene) -> None:
    topic, group, admin = scene.topic(), scene.group(), scene.admin()
    member = scene.push(group, topic)
    scene.producer().send(topic, 4)
    member.messages(4)
    scene.wait(lambda: scene.committed(group, topic) == 4, "the offset")
    member.stop()
    scene.producer().send(topic, 3)
    told = load(scene.ask(317, {"isOrder": "false"}).body)
    assert told["brokerAddr"] == scene.broker
    assert told["totalDiff"] >= 3
    assert positions(told, group, topic) == [(7, 4)]
    assert admin.invoke("fetchConsumeStatsInBroker", scene.broker, False, 5000)["totalDiff"] >= 3
    ordered = load(scene.ask(317, {"isOrder": "true"}).body)
    assert positions(ordered, group, topic) == [], "the topic is no ordered one"
    assert group in {name for table in ordered["consumeStatsList"] for name in table}


def positions(told: dict[str, Any], group: str, topic: str) -> list[tuple[int, int]]:
    """Of each queue of the topic, its end and where the group is."""
    return [
        (position["brokerOffset"], position["consumerOffset"])
        for table in told["consumeStatsList"]
        for stats in table.get(group, ())
        for queue, position in stats["offsetTable"].items()
        if load(queue.encode())["topic"] == topic
    ]


@scenario(seconds=30)
def a_broker_tells_its_rates_and_totals(scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer()
    member = scene.push(scene.group(), topic)
    before = runtime(scene)
    for _ in range(13):
        producer.send(topic, 10, way="batch")
        time.sleep(1)
    member.messages(130)
    now = runtime(scene)
    assert int(now["msgPutTotalTodayNow"]) >= int(before["msgPutTotalTodayNow"]) + 130
    assert int(now["msgGetTotalTodayNow"]) >= int(before["msgGetTotalTodayNow"]) + 130
    assert int(now["putMessageTimesTotal"]) > int(before["putMessageTimesTotal"])
    assert int(now["putMessageSizeTotal"]) > int(before["putMessageSizeTotal"])
    assert float(now["putMessageAverageSize"]) > 90
    for name in ("putTps", "getTransferedTps", "getTotalTps", "getFoundTps"):
        assert float(now[name].split()[0]) > 1, (
            name
        )  # Of the last 10 s; more follow when there were so many.
    assert int(now["msgPutTotalYesterdayMorning"]) <= int(now["msgPutTotalTodayMorning"])


def runtime(scene: Scene) -> dict[str, str]:
    table: dict[str, str] = load(scene.ask(28).body)["table"]
    return table


@scenario()
def a_broker_tells_its_state_under_the_names_that_tools_know(scene: Scene) -> None:
    table = runtime(scene)
    for name in (
        "bootTimestamp",
        "runtime",
        "commitLogDiskRatio",
        "commitLogMinOffset",
        "dispatchBehindBytes",
    ):
        assert name in table
    for name in (
        "sendThreadPoolQueueSize",
        "pullThreadPoolQueueSize",
        "pageCacheLockTimeMills",
        "putLatency99",
    ):
        float(table[name])
    assert table["commitLogMinOffset"] == "0"
    assert int(table["commitLogMaxOffset"]) >= 0
    row = next(
        row for row in scene.admin().rows("clusterList") if row[:3] == [CLUSTER, BROKER, "0"]
    )
    assert row[3] == scene.broker


@scenario(seconds=30)
def mqadmin_shows_the_rates_of_a_topic_and_its_groups(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = scene.push(group, topic)
    scene.producer().send(topic, 20)
    member.messages(20)
    time.sleep(11)
    scene.producer().send(topic, 20)
    member.messages(40)
    time.sleep(11)
    rows = [
        row for row in scene.admin().rows("statsAll", "-t", topic) if row and row[0] == topic[:64]
    ]
    assert [row[1] for row in rows] == [group[:64]]
