"""Topics and groups on demand, and who is told.

See docs/protocol/producing.md#how-a-broker-makes-a-topic and docs/protocol/consuming.md#heartbeats.
"""

from __future__ import annotations

import pytest

from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.metadata import Metadata
from roquet.broker.metadata.state_files import Then
from roquet.broker.metadata.topics import TopicRegistry, topics_at_start
from roquet.errors import Refused
from roquet.protocol.bodies.tables import (
    DataVersion,
    GroupConfig,
    GroupTable,
    TopicConfig,
    TopicTable,
)

NOW = 1_700_000_000_000


class Told:
    """Counts changes and says at once that they are saved."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, then: Then | None = None) -> None:
        self.times += 1
        if then is not None:
            then(None)


def metadata(*, auto_create: bool = True) -> tuple[Metadata, Told, Told]:
    topics = TopicRegistry(topics_at_start("c", "b"), NOW, auto_create=auto_create)
    groups = GroupRegistry(NOW, auto_create=auto_create)
    topics_told, groups_told = Told(), Told()
    return Metadata(topics, groups, topics_told, groups_told, lambda: NOW), topics_told, groups_told


def test_what_exists_is_given_without_telling_anybody() -> None:
    made, topics_told, groups_told = metadata()
    for _ in range(2):
        assert made.group("g") == GroupConfig("g")
        assert made.topic_for_send("T", "TBW102", 4) == TopicConfig("T", 4, 4)
        assert made.retry_topic(GroupConfig("g", retry_queues=2), 2) == TopicConfig(
            "%RETRY%g", 2, 2, sys_flag=2
        )
        assert made.dead_letter_topic("g") == TopicConfig("%DLQ%g", 1, 1)
        assert made.system_topic(TopicConfig("S", 1, 1)) == TopicConfig("S", 1, 1)
    assert (topics_told.times, groups_told.times) == (4, 1)


def test_what_may_not_be_made_is_refused_or_none_and_nobody_is_told() -> None:
    made, topics_told, groups_told = metadata(auto_create=False)
    with pytest.raises(Refused, match="consumer group g does not exist"):
        made.group("g")
    assert made.topic_for_send("T", "TBW102", 4) is None
    assert made.retry_topic(GroupConfig("g" * 121)) is None
    assert (topics_told.times, groups_told.times) == (0, 0)


def test_an_admins_changes_are_told_with_what_is_to_follow() -> None:
    made, topics_told, groups_told = metadata()
    outcomes: list[OSError | None] = []
    made.update_topic(TopicConfig("T"), outcomes.append)
    made.delete_topic("T", outcomes.append)
    made.update_group(GroupConfig("g"), outcomes.append)
    made.delete_group("g", outcomes.append)
    assert outcomes == [None] * 4
    assert (topics_told.times, groups_told.times) == (2, 2)


def test_the_words_of_name_servers_and_master_are_told_only_when_they_change_something() -> None:
    made, topics_told, groups_told = metadata()
    topics, groups = (
        TopicTable({"T": TopicConfig("T")}, DataVersion(1, 1)),
        GroupTable({}, DataVersion(1, 1)),
    )
    for _ in range(2):
        made.copy_master_topics(topics)
        made.copy_master_groups(groups)
    assert (topics_told.times, groups_told.times) == (1, 1)
    made.set_ordered({"T"})
    made.set_ordered({"T"})
    assert topics_told.times == 2
