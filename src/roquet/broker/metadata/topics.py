"""PURE: the topic table: predefined topics, topics created on demand, topics created by admins.

See docs/protocol/producing.md#how-a-broker-makes-a-topic,
docs/protocol/messages.md#system-topics and docs/broker/topics.md#topics-from-the-start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from roquet.broker.config.limits import Limits, refuse_beyond
from roquet.common.listeners import Listeners, Then
from roquet.errors import MessageError
from roquet.protocol.bodies.tables import DataVersion, GroupConfig, TopicConfig, TopicTable
from roquet.protocol.records.message import (
    BENCHMARK_TOPIC,
    DEAD_LETTER_PREFIX,
    DEFAULT_TOPIC,
    OFFSET_MOVED_TOPIC,
    READ_WRITE,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    Permission,
    check_topic,
    reply_topic,
)

SCHEDULE_QUEUES: Final = 18
"""Apache's number of queues of the schedule topic, whatever levels are configured."""
FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")

_INHERIT_ONLY: Final = int(Permission.INHERIT)
_INHERITABLE: Final = READ_WRITE | _INHERIT_ONLY


def topics_at_start(
    cluster: str,
    broker: str,
    *,
    default_queues: int = 8,
    auto_create: bool = True,
    cluster_topic: bool = True,
    broker_topic: bool = True,
    trace_topic: str | None = None,
) -> list[TopicConfig]:
    """The predefined topics of a broker (docs/broker/topics.md#topics-from-the-start).

    :param trace_topic: the name of the trace topic; None for no trace topic.
    """
    topics = [TopicConfig(SELF_TEST_TOPIC, 1, 1)]
    if auto_create:
        topics.append(TopicConfig(DEFAULT_TOPIC, default_queues, default_queues, _INHERITABLE))
    topics += [
        TopicConfig(BENCHMARK_TOPIC, 1024, 1024),
        TopicConfig(cluster, 16, 16, _INHERITABLE if cluster_topic else _INHERIT_ONLY),
        TopicConfig(broker, 1, 1, _INHERITABLE if broker_topic else _INHERIT_ONLY),
        TopicConfig(OFFSET_MOVED_TOPIC, 1, 1),
        TopicConfig(SCHEDULE_TOPIC, SCHEDULE_QUEUES, SCHEDULE_QUEUES),
    ]
    if trace_topic is not None:
        topics.append(TopicConfig(trace_topic, 1, 1))
    topics.append(TopicConfig(reply_topic(cluster), 1, 1))
    return topics


class TopicRegistry:
    """The topics of one broker, by name.

    Invariant: every change of a topic increments `version` and calls `changed`. `topics` is one
    view that never changes its identity.

    :param auto_create: whether a send to an unknown topic may create it after the default topic.
    :param limits: how many topics, and queues per topic, clients may create.
    """

    def __init__(
        self,
        at_start: Iterable[TopicConfig],
        now_ms: Callable[[], int],
        *,
        auto_create: bool = True,
        limits: Limits | None = None,
    ) -> None:
        self._now_ms = now_ms
        self._limits = limits or Limits()
        self._topics = {topic.name: topic for topic in at_start}
        self._system = SYSTEM_TOPICS | self._topics.keys()
        self._auto_create = auto_create
        self.topics: Final[Mapping[str, TopicConfig]] = MappingProxyType(self._topics)
        self.version = DataVersion(now_ms())
        self.changed = Listeners[[Then | None]]()
        """Called after each change, with what is to be called when it is on disk."""

    @property
    def system_names(self) -> list[str]:
        """The topics that belong to brokers, not to users."""
        return sorted(self._system)

    def is_system(self, name: str) -> bool:
        """Whether an admin may neither create nor delete it."""
        return name in self._system or name.startswith(SYSTEM_PREFIX)

    def to_table(self) -> TopicTable:
        return TopicTable(dict(self._topics), self.version)

    def restore(self, saved: TopicTable) -> None:
        """Load saved topics; they override the predefined ones.

        Predefined topics that were not saved yet increment the version.
        """
        is_new = not self._topics.keys() <= saved.topics.keys()
        self._topics.update(saved.topics)
        self.version = saved.version.next(self._now_ms()) if is_new else saved.version

    def copy_master(self, table: TopicTable) -> None:
        """Replace all topics by the master's table, if its version differs.

        See docs/protocol/administration.md#what-a-slave-copies.
        """
        if table.version == self.version:
            return
        self._topics.clear()
        self._topics.update(table.topics)
        self.version = table.version
        self.changed(None)

    def update(self, topic: TopicConfig, then: Then | None = None) -> None:
        """Create or change a topic. A change keeps `order`, which only the name servers set.

        :raises Refused: there are too many topics, or the topic would have more queues than the
            limit and than before.
        """
        old = self._topics.get(topic.name)
        self._refuse_beyond_limits(topic, old)
        self._put(replace(topic, order=old.order) if old is not None else topic, then)

    def get_or_create(self, topic: TopicConfig) -> TopicConfig | None:
        """A topic of the broker itself or of a group, created if missing, beyond limits if need be.

        :returns: None if the topic's name would be too long.
        """
        known = self._topics.get(topic.name)
        if known is not None:
            return known
        try:
            check_topic(topic.name)
        except MessageError:
            return None
        self._put(topic)
        return topic

    def retry_topic(self, group: GroupConfig, sys_flag: int = 0) -> TopicConfig | None:
        """The topic for messages of a group that are to be consumed again, as `get_or_create`."""
        queues = min(max(1, group.retry_queues), self._limits.topic_queue_nums_max)
        return self.get_or_create(
            TopicConfig(RETRY_PREFIX + group.name, queues, queues, READ_WRITE, sys_flag=sys_flag)
        )

    def dead_letter_topic(self, group: str) -> TopicConfig | None:
        """The topic for messages of a group that failed too often, as `get_or_create`.

        It is readable since 4.9.2.
        """
        return self.get_or_create(TopicConfig(DEAD_LETTER_PREFIX + group, 1, 1, READ_WRITE))

    def get_or_create_for_send(
        self, name: str, pattern_name: str, queues_wanted: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """A topic, created after the pattern topic if that is allowed; None: it does not exist.

        The caller has checked that the name is legal.
        See docs/protocol/producing.md#how-a-broker-makes-a-topic.

        :param pattern_name: the topic to copy the permission and number of queues from, if it has
            the permission INHERIT.
        :raises Refused: there are too many topics.
        """
        known = self._topics.get(name)
        if known is not None:
            return known
        pattern = self._pattern(pattern_name)
        if pattern is not None:
            queues = max(1, min(queues_wanted, pattern.write_queues))
            perm = pattern.perm & ~Permission.INHERIT
            topic = TopicConfig(name, queues, queues, perm, pattern.filter_type, sys_flag)
        elif name.startswith(RETRY_PREFIX):
            topic = TopicConfig(name, 1, 1, READ_WRITE, sys_flag=sys_flag)
        else:
            return None
        self._refuse_beyond_limits(topic, None)
        self._put(topic)
        return topic

    def _refuse_beyond_limits(self, topic: TopicConfig, old: TopicConfig | None) -> None:
        limits = self._limits
        if old is None:
            refuse_beyond(
                len(self._topics) + 1,
                limits.topic_nums_max,
                "topics of this broker",
                "topicNumsMax",
            )
        had = 0 if old is None else max(old.read_queues, old.write_queues)
        queues = max(topic.read_queues, topic.write_queues)
        what = f"queues of topic {topic.name}"
        refuse_beyond(queues, max(had, limits.topic_queue_nums_max), what, "topicQueueNumsMax")

    def queues_to_scan(self, name: str, count: int) -> range:
        """The queue ids of a topic with `count` queues, for an answer about each queue.

        :raises Refused: the topic was saved with so many queues that no answer could hold them.
        """
        refuse_beyond(
            count, self._limits.topic_queue_nums_max, f"queues of topic {name}", "topicQueueNumsMax"
        )
        return range(count)

    def _pattern(self, name: str) -> TopicConfig | None:
        topic = self._topics.get(name)
        if (
            topic is None
            or not topic.perm & Permission.INHERIT
            or (name == DEFAULT_TOPIC and not self._auto_create)
        ):
            return None
        return topic

    def delete(self, name: str, then: Then | None = None) -> None:
        """Delete a topic. Succeeds for an unknown topic, too."""
        if self._topics.pop(name, None) is not None:
            self.version = self.version.next(self._now_ms())
        self.changed(then)

    def set_ordered(self, ordered: Collection[str]) -> None:
        """Mark exactly these topics as ordered, as the name servers say."""
        changed = [
            topic for topic in self._topics.values() if topic.order != (topic.name in ordered)
        ]
        for topic in changed:
            self._topics[topic.name] = replace(topic, order=not topic.order)
        if changed:
            self.version = self.version.next(self._now_ms())
            self.changed(None)

    def _put(self, topic: TopicConfig, then: Then | None = None) -> None:
        self._topics[topic.name] = topic
        self.version = self.version.next(self._now_ms())
        self.changed(then)
