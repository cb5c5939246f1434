"""What tools are told of counts, rates and groups that are behind.

See docs/broker/statistics.md#counts-by-topic-and-group,
docs/broker/statistics.md#runtime-information and docs/protocol/administration.md#statistics.
"""

from __future__ import annotations

from functools import partial

import pytest

from roquet.broker.metrics.stats import Window
from roquet.common.steps import finished
from roquet.protocol.bodies.tables import GroupConfig, TopicConfig
from roquet.protocol.json.dialect import load
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.harness import BROKER, World
from tests.simulation.simulation import Simulation

STATS, CONSUME_STATS = RequestCode.VIEW_BROKER_STATS_DATA, RequestCode.GET_BROKER_CONSUME_STATS


def minute(world: World, item: str, key: str) -> int:
    told = world.client().ask(STATS, statsName=item, statsKey=key)
    assert set(told) == {"statsMinute", "statsHour", "statsDay"}
    return int(told["statsMinute"]["sum"])


@pytest.fixture
def world(world: World) -> World:
    """With topic T and the groups G and H."""
    return with_topic_and_groups(world)


def with_topic_and_groups(world: World) -> World:
    world.on_broker(lambda: world.topics.update(TopicConfig("T", 4, 4)))
    for name in "GH":
        world.on_broker(partial(world.groups.update, GroupConfig(name)))
    return world


def test_messages_and_bytes_that_were_stored_are_told_by_topic(world: World) -> None:
    for queue_id in (0, 0, 1):
        world.put("T", queue_id, b"x" * 100)
    world.put("U")
    world.on_broker(lambda: finished(world.measurements.sample(Window.MINUTE)))
    assert minute(world, "TOPIC_PUT_NUMS", "T") == 3
    sizes = [minute(world, "TOPIC_PUT_SIZE", topic) for topic in "TU"]
    assert sizes[0] > 300
    assert sum(sizes) == world.store.log.end
    assert minute(world, "BROKER_PUT_NUMS", world.config.broker_cluster_name) == 4


def test_what_groups_were_given_and_sent_back_is_told_by_topic_and_group(world: World) -> None:
    traffic = world.measurements.traffic
    for group, queue_id, messages, size in (("G", 0, 5, 500), ("G", 1, 1, 100), ("H", 0, 7, 70)):
        traffic.given("T", group, queue_id, messages, size, traffic.clock_ms())
    traffic.sent_back("T", "G")
    world.on_broker(lambda: finished(world.measurements.sample(Window.MINUTE)))
    assert minute(world, "GROUP_GET_NUMS", "T@G") == 6
    assert minute(world, "GROUP_GET_SIZE", "T@G") == 600
    assert minute(world, "SNDBCK_PUT_NUMS", "T@G") == 1
    assert minute(world, "BROKER_GET_NUMS", world.config.broker_cluster_name) == 13


def test_how_long_pulls_took_is_told_by_queue_and_group_in_ms(world: World) -> None:
    traffic = world.measurements.traffic
    for queue_id, took_ms in ((0, 2.5), (0, 0.75), (3, 0.25)):
        traffic.given("T", "G", queue_id, 1, 100, traffic.clock_ms() - took_ms)
    world.on_broker(lambda: finished(world.measurements.sample(Window.MINUTE)))
    told = world.client().ask(STATS, statsName="GROUP_GET_LATENCY", statsKey="0@T@G")["statsMinute"]
    assert (told["sum"], told["avgpt"]) == (3, 1.5)
    assert minute(world, "GROUP_GET_LATENCY", "3@T@G") == 0


def test_delayed_messages_count_as_given_out_of_their_level_s_queue_when_they_go(
    world: World,
) -> None:
    traffic = world.measurements.traffic
    for queue_id, messages, size in ((2, 5, 500), (2, 1, 100), (7, 4, 40)):
        traffic.delivered(queue_id, messages, size)
    world.on_broker(lambda: finished(world.measurements.sample(Window.MINUTE)))
    items = ("QUEUE_GET_NUMS", "QUEUE_GET_SIZE")
    assert [minute(world, item, "SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER") for item in items] == [
        6,
        600,
    ]
    items = ("GROUP_GET_NUMS", "GROUP_GET_SIZE")
    assert [minute(world, item, "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER") for item in items] == [
        10,
        640,
    ]
    given = world.client().ask(
        STATS, statsName="BROKER_GET_NUMS", statsKey=world.config.broker_cluster_name
    )
    assert given["statsMinute"]["sum"] == 0, "to no consumer"


def test_without_detail_nothing_is_told_by_queue(sim: Simulation) -> None:
    world = with_topic_and_groups(World(sim, enableDetailStat="false"))
    traffic = world.measurements.traffic
    for queue_id in (0, 1):
        traffic.given("T", "G", queue_id, 1, 100, traffic.clock_ms() - 3)
    traffic.delivered(2, 1, 100)
    world.put("SCHEDULE_TOPIC_XXXX", 2)
    world.on_broker(lambda: finished(world.measurements.sample(Window.MINUTE)))
    assert minute(world, "GROUP_GET_LATENCY", "T@G") == 6
    assert not is_told(world, "GROUP_GET_LATENCY", "0@T@G")
    assert not is_told(world, "QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@2")
    assert not is_told(world, "QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER")


@pytest.mark.parametrize("gone", ["T", "G"])
def test_what_was_given_of_a_topic_or_to_a_group_is_forgotten_once_that_is_deleted(
    world: World, gone: str
) -> None:
    traffic = world.measurements.traffic
    traffic.given("T", "G", 0, 1, 100, traffic.clock_ms())
    traffic.sent_back("T", "G")
    totals = (("GROUP_GET_NUMS", "T@G"), ("GROUP_GET_LATENCY", "0@T@G"), ("SNDBCK_PUT_NUMS", "T@G"))
    assert all(is_told(world, *total) for total in totals)
    if gone == "T":
        assert (
            world.client().call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T").code
            == ResponseCode.SUCCESS
        )
    else:
        assert (
            world.client().call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="G").code
            == ResponseCode.SUCCESS
        )
    world.on_broker(lambda: finished(world.measurements.sample(Window.MINUTE)))
    assert not any(is_told(world, *total) for total in totals)


def is_told(world: World, item: str, key: str) -> bool:
    return world.client().call(STATS, statsName=item, statsKey=key).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("item", "key"),
    [("TOPIC_PUT_NUMS", "T"), ("COMMERCIAL_SEND_TIMES", "T"), ("NO_SUCH_ITEM", "T")],
)
def test_what_was_not_counted_is_refused(world: World, item: str, key: str) -> None:
    answer = world.client().call(STATS, statsName=item, statsKey=key)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert item in (answer.remark or "")


def test_rates_follow_what_is_stored_and_given(world: World) -> None:
    for _ in range(5):
        world.on_broker(world.measurements.sample_rates)
        world.put("T")
        world.measurements.traffic.given("T", "G", 0, 3, 300, 0)
        world.sim.run_for(1)
    world.on_broker(world.measurements.sample_rates)
    table = world.client().ask(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert 0.5 < float(table["putTps"].split()[0]) < 1.5
    assert 2 < float(table["getTransferedTps"].split()[0]) < 4
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("5", "15")
    assert int(table["putMessageSizeTotal"]) == world.store.log.end
    assert float(table["putMessageAverageSize"]) == world.store.log.end / 5


def test_a_deleted_topic_takes_nothing_from_the_brokers_total(world: World) -> None:
    client = world.client()
    for topic in "TU":
        world.put(topic)
    assert client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T").code == ResponseCode.SUCCESS
    world.put("T", 1)
    table = client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert int(table["putMessageSizeTotal"]) == world.store.log.end


def test_every_group_is_told_with_how_far_it_is_behind_in_each_topic(world: World) -> None:
    for name, ordered in (("T", False), ("O", True)):
        world.on_broker(partial(world.topics.update, TopicConfig(name, 1, 1, order=ordered)))
        for _ in range(5):
            world.put(name)
    world.on_broker(lambda: world.groups.update(GroupConfig("G")))
    world.offsets.commit("G", "T", 0, 2)
    world.offsets.commit("G", "O", 0, 4)
    told = world.client().ask(CONSUME_STATS, isOrder="false")
    assert (told["brokerAddr"], told["totalDiff"]) == (BROKER, 4)
    assert behind(told) == [("O", 5, 4), ("T", 5, 2)]
    assert behind(world.client().ask(CONSUME_STATS, isOrder="true")) == [("O", 5, 4)]


def behind(told: dict[str, object]) -> list[tuple[str, int, int]]:
    """Topic, end and progress of each queue of group G."""
    tables = told["consumeStatsList"]
    assert isinstance(tables, list)
    (stats,) = [table["G"] for table in tables if "G" in table]
    return sorted(
        (load(queue.encode())["topic"], place["brokerOffset"], place["consumerOffset"])
        for table in stats
        for queue, place in table["offsetTable"].items()
    )
