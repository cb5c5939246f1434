"""The totals that statistics and rates of one broker are sampled from.

How tools ask for them is in tests/broker/handlers/admin/test_stats.py.
"""

from __future__ import annotations

import logging

import pytest

from roquet.broker.metrics.measurements import Measurements
from roquet.broker.metrics.stats import Summary, Window
from roquet.common.steps import finished
from roquet.protocol.bodies.tables import GroupConfig, TopicConfig
from roquet.protocol.records.message import SCHEDULE_TOPIC
from tests.broker.harness import World
from tests.simulation.simulation import Simulation

DAY_S = 24 * 3600


@pytest.fixture
def measurements(world: World) -> Measurements:
    """Those of a broker with topic T and group G."""
    world.on_broker(lambda: world.topics.update(TopicConfig("T", 4, 4)))
    world.on_broker(lambda: world.groups.update(GroupConfig("G")))
    return world.measurements


def sample(world: World, window: Window = Window.MINUTE) -> None:
    world.on_broker(lambda: finished(world.measurements.sample(window)))


def figures(world: World) -> dict[str, str]:
    return world.on_broker(lambda: finished(world.measurements.figures()))


def sums(measurements: Measurements, *items: tuple[str, str]) -> list[int]:
    return [measurements.stats.summary(item, key).sum for item, key in items]


def test_stored_messages_and_their_bytes_count_for_their_topic(
    world: World, measurements: Measurements
) -> None:
    for queue_id in (0, 1, 3):
        world.put("T", queue_id)
    stored = world.store.log.end
    world.put("U")
    sample(world)
    assert sums(
        measurements,
        ("TOPIC_PUT_NUMS", "T"),
        ("TOPIC_PUT_SIZE", "T"),
        ("TOPIC_PUT_NUMS", "U"),
        ("BROKER_PUT_NUMS", world.config.broker_cluster_name),
    ) == [3, stored, 1, 4]
    assert measurements.stats.summary("TOPIC_PUT_SIZE", "T").avgpt == stored / 3


def test_each_delay_level_counts_for_itself_and_for_the_schedule_topic(
    world: World, measurements: Measurements
) -> None:
    for queue_id in (0, 2, 2):
        world.put(SCHEDULE_TOPIC, queue_id)
    sample(world)
    assert sums(
        measurements,
        ("QUEUE_PUT_NUMS", f"{SCHEDULE_TOPIC}@0"),
        ("QUEUE_PUT_NUMS", f"{SCHEDULE_TOPIC}@2"),
        ("TOPIC_PUT_NUMS", SCHEDULE_TOPIC),
    ) == [1, 2, 3]
    (size,) = sums(measurements, ("TOPIC_PUT_SIZE", SCHEDULE_TOPIC))
    by_level = [("QUEUE_PUT_SIZE", f"{SCHEDULE_TOPIC}@{queue_id}") for queue_id in (0, 2)]
    assert size == sum(sums(measurements, *by_level)) == world.store.log.end


def test_a_topic_without_new_messages_is_no_key_of_the_statistics(
    world: World, measurements: Measurements
) -> None:
    world.store.queue("T", 0)
    sample(world)
    assert finished(measurements.stats.describe("TOPIC_PUT_NUMS", "T")) is None


def test_the_cluster_counts_messages_that_pulls_returned(
    world: World, measurements: Measurements
) -> None:
    measurements.traffic.given("T", "G", 0, 5, 50, 0.0)
    measurements.traffic.given("T", "G", 0, 7, 70, 0.0)
    measurements.traffic.found_nothing()
    sample(world)
    got = measurements.stats.summary("BROKER_GET_NUMS", world.config.broker_cluster_name)
    assert (got.sum, got.avgpt) == (12, 6.0)


def test_a_groups_rate_is_that_of_the_last_minute(world: World, measurements: Measurements) -> None:
    assert measurements.tps("T", "G") == 0.0
    sample(world)
    measurements.traffic.given("T", "G", 0, 25, 50, 0.0)
    world.sim.run_for(10)
    sample(world)
    assert measurements.tps("T", "G") == 2.5
    assert measurements.tps("T", "H") == 0.0
    sample(world, Window.HOUR)
    assert measurements.tps("T", "G") == 2.5


def test_what_a_group_got_is_forgotten_with_the_group(
    world: World, measurements: Measurements
) -> None:
    measurements.traffic.given("T", "G", 0, 25, 50, 0.0)
    sample(world)
    assert sums(measurements, ("GROUP_GET_NUMS", "T@G")) == [25]
    world.on_broker(lambda: world.groups.delete("G"))
    sample(world)
    assert measurements.stats.summary("GROUP_GET_NUMS", "T@G") == Summary()


def test_pairs_that_are_left_out_are_logged_once(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world = World(sim, statisticsNumsMax=1)
    world.on_broker(lambda: world.topics.update(TopicConfig("T", 4, 4)))
    world.on_broker(lambda: world.groups.update(GroupConfig("G")))
    world.measurements.traffic.given("T", "G", 0, 1, 1, 0.0)
    sample(world)
    assert caplog.messages == []
    for _ in range(2):
        world.measurements.traffic.given("T", "G", 1, 1, 1, 0.0)
        sample(world)
    (line,) = caplog.messages
    assert line.startswith("statistics are full")
    assert line.endswith("statisticsNumsMax=1")


def test_the_time_of_a_turn_counts_for_each_message_stored_in_it(
    world: World, measurements: Measurements
) -> None:
    world.on_broker(measurements.sample_rates)
    for messages, seconds in ((3, 0.007), (0, 0.07), (1, 0.0004), (1, 0.25)):
        for _ in range(messages):
            world.put("T")
        measurements.turn_took(seconds)
    world.sim.run_for(60)
    world.on_broker(measurements.sample_rates)
    told = figures(world)
    assert told["putMessageDistributeTime"].startswith("[<=0ms]:1 [0~10ms]:3 ")
    assert "[200~500ms]:1 " in told["putMessageDistributeTime"]
    assert told["putMessageEntireTimeMax"] == "250"


def test_the_average_size_is_that_of_all_stored_messages(
    world: World, measurements: Measurements
) -> None:
    empty = figures(world)
    assert (empty["putMessageSizeTotal"], empty["putMessageAverageSize"]) == ("0", "0.0")
    for body in (b"", b"b" * 100, b"b"):
        world.put("T", 0, body)
    end = world.store.log.end
    told = figures(world)
    assert told["putMessageSizeTotal"] == str(end)
    assert told["putMessageAverageSize"] == str(round(end / 3, 3))


def test_a_new_day_begins_at_midnight_of_the_wall_clock(
    world: World, measurements: Measurements
) -> None:
    world.on_broker(measurements.sample_rates)
    world.put("T")
    world.host.clock_ahead_ms += DAY_S * 1000
    world.on_broker(measurements.sample_rates)
    world.put("T")
    told = figures(world)
    assert (told["msgPutTotalTodayMorning"], told["msgPutTotalTodayNow"]) == ("1", "2")


def test_pulls_that_found_nothing_have_a_rate(world: World, measurements: Measurements) -> None:
    for _ in range(4):
        world.on_broker(measurements.sample_rates)
        measurements.traffic.found_nothing()
        measurements.traffic.given("T", "G", 0, 4, 1, 0.0)
        world.sim.run_for(1)
    world.on_broker(measurements.sample_rates)
    told = figures(world)
    assert [
        float(told[name].split()[0])
        for name in ("getMissTps", "getFoundTps", "getTransferredTps", "getTotalTps")
    ] == pytest.approx([1, 1, 4, 2], rel=0.01)
