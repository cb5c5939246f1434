"""Topics and groups as handlers use them: created on demand, saved and registered on change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from roquet.broker.config.limits import Limits
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.state_files import Changed, Then
from roquet.broker.metadata.topics import TopicRegistry, dead_letter_topic, retry_topic
from roquet.errors import MessageError, Refused
from roquet.protocol.bodies.tables import GroupConfig, GroupTable, TopicConfig, TopicTable
from roquet.protocol.records.message import check_topic
from roquet.protocol.remoting.codes import ResponseCode


class Metadata:
    """The topics and groups of one broker.

    Invariant: every change calls `topics_changed` or `groups_changed`. `topics` and `groups` are
    the registries' own views, for lookups without creation.

    :param topics_changed: saves the topics and registers them at the name servers.
    :param groups_changed: saves the groups.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        groups: GroupRegistry,
        topics_changed: Changed,
        groups_changed: Changed,
        now_ms: Callable[[], int],
        limits: Limits | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self.topic_registry = topics
        self.group_registry = groups
        self._topics_changed = topics_changed
        self._groups_changed = groups_changed
        self._now_ms = now_ms
        self.topics: Final[Mapping[str, TopicConfig]] = topics.topics
        self.groups: Final[Mapping[str, GroupConfig]] = groups.groups

    def group(self, name: str) -> GroupConfig:
        """A group, created if that is allowed.

        :raises Refused: an admin has to create it first, or there are too many groups.
        """
        known = self.groups.get(name)
        if known is not None:
            return known
        created = self.group_registry.create_on_demand(name, self._now_ms())
        if created is None:
            remark = f"consumer group {name} does not exist"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        self._groups_changed()
        return created

    def topic_for_send(
        self, name: str, pattern: str, queues_wanted: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """A topic, created after the pattern topic if that is allowed; None: it does not exist.

        The caller has checked that the name is legal.

        :raises Refused: there are too many topics.
        """
        known = self.topics.get(name)
        if known is not None:
            return known
        created = self.topic_registry.create_for_send(
            name, pattern, queues_wanted, self._now_ms(), sys_flag
        )
        if created is not None:
            self._topics_changed()
        return created

    def retry_topic(self, group: GroupConfig, sys_flag: int = 0) -> TopicConfig | None:
        """The group's retry topic, created if missing; None: the topic's name would be too long."""
        queues = min(max(1, group.retry_queues), self._limits.topic_queue_nums_max)
        return self._made(retry_topic(group.name, queues, sys_flag))

    def dead_letter_topic(self, group: str) -> TopicConfig | None:
        """The group's dead letter topic, created if missing; None: its name would be too long."""
        return self._made(dead_letter_topic(group))

    def system_topic(self, topic: TopicConfig) -> TopicConfig | None:
        """A topic that the broker itself needs, created if missing."""
        return self._made(topic)

    def _made(self, topic: TopicConfig) -> TopicConfig | None:
        known = self.topics.get(topic.name)
        if known is not None:
            return known
        try:
            check_topic(topic.name)
        except MessageError:
            return None
        self.topic_registry.create(topic, self._now_ms())
        self._topics_changed()
        return topic

    def update_topic(self, topic: TopicConfig, then: Then | None = None) -> None:
        self.topic_registry.update(topic, self._now_ms())
        self._topics_changed(then)

    def delete_topic(self, name: str, then: Then | None = None) -> None:
        """Delete a topic. Succeeds for an unknown topic, too."""
        self.topic_registry.delete(name, self._now_ms())
        self._topics_changed(then)

    def set_ordered(self, ordered: Collection[str]) -> None:
        """Mark exactly these topics as ordered, as the name servers say."""
        if self.topic_registry.set_ordered(ordered, self._now_ms()):
            self._topics_changed()

    def update_group(self, group: GroupConfig, then: Then | None = None) -> None:
        self.group_registry.update(group, self._now_ms())
        self._groups_changed(then)

    def delete_group(self, name: str, then: Then | None = None) -> None:
        """Delete a group. Succeeds for an unknown group, too."""
        self.group_registry.delete(name, self._now_ms())
        self._groups_changed(then)

    def copy_master_topics(self, table: TopicTable) -> None:
        if self.topic_registry.copy_master(table):
            self._topics_changed()

    def copy_master_groups(self, table: GroupTable) -> None:
        if self.group_registry.copy_master(table):
            self._groups_changed()
