"""What a plan says about the messages that are sent with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from roquet.broker.handlers.send_plan import SendPlan, TableGuard
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.topics import TopicRegistry
from roquet.errors import Refused
from roquet.protocol.bodies.tables import GroupConfig, TopicConfig
from roquet.protocol.records.message import PROPERTIES_SIZE_MAX

TOPICS: Final = TopicRegistry([], lambda: 0)
GROUPS: Final = GroupRegistry(lambda: 0)
PLAN: Final = SendPlan(
    is_half=False,
    is_batch=False,
    topic="T",
    queue_limit=4,
    is_dead_letter=False,
    level=0,
    delay_ms=None,
    cluster="C",
    flag=0,
    sys_flag=0,
    reconsume_times=0,
    born_host=bytes(8),
    waits=False,
    is_binary=False,
    is_one_way=False,
    body_size_max=100,
    is_queued=True,
    guard=TableGuard(TOPICS, GROUPS, TOPICS.version, GROUPS.version),
)
DELAYED: Final = replace(PLAN, level=2, delay_ms=5000)


def test_a_delayed_message_waits_in_the_queue_of_its_level() -> None:
    assert PLAN.queue(3) == ("T", 3)
    assert DELAYED.queue(3) == ("SCHEDULE_TOPIC_XXXX", 1)


def test_a_message_is_stored_with_the_cluster_and_without_wait() -> None:
    pairs = {"WAIT": "true", "CLUSTER": "other", "KEYS": "k"}

    assert list(PLAN.stored_pairs(pairs, 3).items()) == [("CLUSTER", "C"), ("KEYS", "k")]
    assert pairs == {"WAIT": "true", "CLUSTER": "other", "KEYS": "k"}


@pytest.mark.parametrize("plan", [replace(PLAN, is_half=True), replace(PLAN, is_batch=True)])
def test_half_messages_and_batches_keep_wait(plan: SendPlan) -> None:
    assert plan.stored_pairs({"WAIT": "true"}, 3) == {"WAIT": "true", "CLUSTER": "C"}


def test_a_delayed_message_is_stored_with_the_queue_that_it_goes_to() -> None:
    assert DELAYED.stored_properties({"DELAY": "9"}, 3) == (
        b"DELAY\x012\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02CLUSTER\x01C"
    )


def test_the_limit_of_properties_counts_what_the_broker_adds() -> None:
    added = len(PLAN.stored_properties({"a": "b"}, 0)) - 1

    assert PLAN.stored_properties({"a": "b" * (PROPERTIES_SIZE_MAX - added)}, 0)
    with pytest.raises(Refused, match="allowed are 32767"):
        PLAN.stored_properties({"a": "b" * (PROPERTIES_SIZE_MAX - added + 1)}, 0)


def test_a_body_beyond_the_limit_is_refused() -> None:
    PLAN.check_body(100)
    with pytest.raises(Refused, match="the body has 101 bytes, maxMessageSize allows 100"):
        PLAN.check_body(101)


def test_a_guard_holds_until_a_topic_changes() -> None:
    topics = TopicRegistry([], lambda: 0)
    guard = TableGuard(topics, GROUPS, topics.version, GROUPS.version)
    assert guard.holds()

    topics.update(TopicConfig("T"))

    assert not guard.holds()


def test_a_guard_holds_until_a_group_changes() -> None:
    groups = GroupRegistry(lambda: 0)
    guard = TableGuard(TOPICS, groups, TOPICS.version, groups.version)
    assert guard.holds()

    groups.update(GroupConfig("g"))

    assert not guard.holds()
