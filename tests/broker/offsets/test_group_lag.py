"""How far a group is behind in each queue of its topics.

See docs/protocol/administration.md#lag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from roquet.broker.metadata.members import ConnectedClient
from roquet.broker.offsets.group_lag import GroupLag
from roquet.common.steps import finished
from roquet.errors import Refused
from roquet.protocol.bodies.tables import ConsumerData, Subscription, TopicConfig
from roquet.protocol.json.dialect import load
from roquet.transport.connection import Connection
from tests.broker.harness import World
from tests.simulation.simulation import Simulation


class Lag:
    """The lag of groups in topic T with two queues, of which the first has five messages."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.on_broker(lambda: world.topics.update(TopicConfig("T", 2, 2)))
        for _ in range(5):
            world.put("T")
            world.sim.run_for(1)
        self.tps = {("T", "g"): 1.5, ("U", "g"): 2.0, ("T", "h"): 100.0}
        self.lag = GroupLag(
            world.topics,
            world.consumers,
            world.offsets,
            world.store,
            "b",
            lambda topic, group: self.tps.get((topic, group), 0.0),
        )

    def stats(self, group: str, *topics: TopicConfig) -> tuple[int, dict[str, Any]]:
        out = bytearray()
        behind = finished(self.lag.stats(group, topics, out))
        told = load(bytes(out))
        queues = {load(key.encode())["queueId"]: each for key, each in told["offsetTable"].items()}
        return behind, {"consumeTps": told["consumeTps"], "queues": queues}

    def topics_of(self, group: str) -> Sequence[str]:
        return sorted(topic.name for topic in finished(self.lag.topics_of(group)))


T = TopicConfig("T", 2, 2)


@pytest.fixture
def lag(world: World) -> Lag:
    return Lag(world)


def test_a_group_is_behind_by_the_messages_after_its_offsets(lag: Lag) -> None:
    lag.world.offsets.commit("g", "T", 0, 2)
    behind, told = lag.stats("g", T)
    last_ms = lag.world.store.store_time("T", 0, 1)
    assert behind == 3
    assert told == {
        "consumeTps": 1.5,
        "queues": {
            0: {"brokerOffset": 5, "consumerOffset": 2, "lastTimestamp": last_ms},
            1: {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0},
        },
    }


def test_a_group_without_offsets_is_behind_by_everything(lag: Lag) -> None:
    behind, told = lag.stats("new", T)
    assert (behind, told["queues"][0]["consumerOffset"]) == (5, 0)


def test_an_offset_beyond_the_queue_is_shown_as_it_is(lag: Lag) -> None:
    lag.world.offsets.commit("g", "T", 1, 4)
    behind, told = lag.stats("g", T)
    assert (behind, told["queues"][1]["lastTimestamp"]) == (5 - 4, 0)


def test_what_was_written_before_stays_in_front(lag: Lag) -> None:
    out = bytearray(b"before")
    finished(lag.lag.stats("g", (), out))
    assert bytes(out) == b'before{"consumeTps":0.0,"offsetTable":{}}'


def test_the_rates_and_lags_of_several_topics_are_added(lag: Lag) -> None:
    other = TopicConfig("U", 1, 1)
    lag.world.put("U")
    out = bytearray()
    assert finished(lag.lag.stats("g", (T, other), out)) == 6
    told = load(bytes(out))
    assert told["consumeTps"] == 3.5
    keys = [load(key.encode()) for key in told["offsetTable"]]
    assert [(key["topic"], key["brokerName"], key["queueId"]) for key in keys] == [
        ("T", "b", 0),
        ("T", "b", 1),
        ("U", "b", 0),
    ]


def test_queues_of_several_steps_are_one_table(lag: Lag) -> None:
    out = bytearray()
    finished(lag.lag.stats("g", (TopicConfig("T", 100, 2),), out))
    assert len(load(bytes(out))["offsetTable"]) == 100


def test_a_topic_with_too_many_queues_is_refused(sim: Simulation) -> None:
    lag = Lag(World(sim, topicQueueNumsMax=3))
    assert lag.stats("g", TopicConfig("T", 3, 3))[0] == 5
    with pytest.raises(Refused, match="topicQueueNumsMax"):
        lag.stats("g", TopicConfig("T", 4, 4))


def test_a_group_has_the_topics_with_offsets_that_still_exist(lag: Lag) -> None:
    for topic in ("T", "gone"):
        lag.world.offsets.commit("g", topic, 0, 1)
    assert lag.topics_of("g") == ["T"]
    assert lag.topics_of("nobody") == []


def test_a_topic_that_a_connected_group_gave_up_does_not_count(lag: Lag) -> None:
    world = lag.world
    world.on_broker(lambda: world.topics.update(TopicConfig("U", 1, 1)))
    for topic in "TU":
        world.offsets.commit("g", topic, 0, 1)
    assert lag.topics_of("g") == ["T", "U"]
    data = ConsumerData("g", subscriptions=(Subscription("U"),))
    member = ConnectedClient("c@1", "JAVA", 399, "10.0.0.9:1", 0)
    world.on_broker(lambda: world.consumers.register(Connection({}), member, data))
    assert lag.topics_of("g") == ["U"]
    assert lag.lag.still_wanted("g", ["T"]) == []
