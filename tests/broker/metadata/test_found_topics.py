"""Topics that have messages in the store but no entry in the topic table."""

from __future__ import annotations

import logging

import pytest

from roquet.broker.metadata.found_topics import add_found_topics
from roquet.protocol.bodies.tables import TopicConfig
from tests.broker.harness import World
from tests.simulation.simulation import Simulation


def add(world: World, stored_after: int = 0) -> None:
    world.on_broker(lambda: add_found_topics(world.store, world.topics, stored_after=stored_after))


def test_a_missing_topic_gets_as_many_queues_as_have_messages(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for queue_id in (0, 5, 2):
        world.put("found", queue_id)
    add(world)
    topic = world.topics.topics["found"]
    assert (topic.read_queues, topic.write_queues) == (6, 6)
    assert world.topic_changes == 1
    (line,) = caplog.messages
    assert line.endswith("topic=found queues=6")


def test_a_known_topic_stays_as_it_is(world: World) -> None:
    world.on_broker(lambda: world.topics.update(TopicConfig("T", 1, 1)))
    world.put("T", 5)
    add(world)
    assert world.topics.topics["T"] == TopicConfig("T", 1, 1)
    assert world.topic_changes == 1


def test_a_topic_whose_queues_are_empty_is_not_added(world: World) -> None:
    world.store.queue("empty", 3)
    add(world)
    assert "empty" not in world.topics.topics


def test_queues_without_messages_do_not_count(world: World) -> None:
    world.put("found", 1)
    world.store.queue("found", 7)
    add(world)
    assert world.topics.topics["found"].read_queues == 2


def test_only_topics_with_messages_after_an_offset_are_added(world: World) -> None:
    world.put("before")
    end = world.store.log.end
    world.put("after")
    add(world, stored_after=end)
    assert {"before", "after"} & set(world.topics.topics) == {"after"}
    add(world, stored_after=end - 1)
    assert "before" in world.topics.topics


def test_a_topic_that_cannot_be_added_is_logged_and_the_others_are_tried(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world = World(sim, topicQueueNumsMax=3)
    world.put("wide", 3)
    world.put("narrow", 2)
    add(world)
    assert {"wide", "narrow"} & set(world.topics.topics) == {"narrow"}
    (line,) = [text for text in caplog.messages if "cannot be added" in text]
    assert "topic=wide error=" in line
