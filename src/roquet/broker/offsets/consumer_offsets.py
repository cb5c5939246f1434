"""PURE: consumer offsets of groups, and delay offsets (the next message of each delay level).

See docs/storage/files.md#the-json-of-state-files and docs/broker/consumers.md#consumer-offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from roquet.broker.config.limits import Limits, refuse_beyond
from roquet.common.steps import Steps, in_parts
from roquet.errors import Refused
from roquet.protocol.bodies.tables import DelayOffsetTable, OffsetTable
from roquet.protocol.remoting.codes import ResponseCode

K = TypeVar("K")
V = TypeVar("V")

_KEY_SIZE_MAX: Final = 1000
"""Characters of a topic's and a group's name together; legal names are shorter."""
_NONE: Final[Mapping[Any, Any]] = {}


def start_of_young_queue(min_offset: int, *, first_in_memory: bool) -> int | None:
    """The offset at which a group without a committed offset starts; None: the client decides.

    If a queue still has its first message, and has it in memory, every group starts at 0, even one
    that asked to start at the end (docs/pitfalls.md#trap-29).
    """
    return 0 if min_offset <= 0 and first_in_memory else None


@dataclass(frozen=True, slots=True)
class Commit:
    """The next offset of one group in one queue."""

    topic: str
    group: str
    queue_id: int
    offset: int


class _Part(dict[K, V]):
    """A part of the offsets, which returned tables share (copy on write).

    A part of the present `age` was made after the last table was returned, so it is not shared.
    """

    __slots__ = ("age",)

    def __init__(self, items: Mapping[K, V], age: int) -> None:
        super().__init__(items)
        self.age = age


_Queues: TypeAlias = _Part[int, int]
_Groups: TypeAlias = _Part[str, _Queues]


class ConsumerOffsets:
    """The next offset of each group in each queue.

    The last commit counts, even if it goes back or comes from a former owner of the queue
    (docs/pitfalls.md#trap-30).

    Invariant: `changes` grows with every change. `count` is the number of offsets. `_topics` names
    exactly the pairs that `_offsets` has. Parts that a returned table shares with `_offsets` are
    replaced by copies instead of being changed. So a table stays as it was, and taking one costs no
    more than a list of the topics.

    :param remembers: on a slave, keep offsets that were committed here until the master has them.
    :param limits: how many offsets clients may commit.
    """

    def __init__(self, *, remembers: bool = False, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._offsets: dict[str, _Groups] = {}
        """Topic -> group -> queue id -> offset."""
        self._topics: dict[str, dict[str, None]] = {}
        """Group -> topics in which it has offsets."""
        self._age = 0
        """The number of tables returned so far."""
        self.count = 0
        self._own: dict[tuple[str, str], dict[int, int]] | None = {} if remembers else None
        self.changes = 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store the offset of a group in a queue. Neither group nor queue has to exist.

        :raises Refused: the group has no offset in this queue yet, and there are too many offsets,
            or the topic, group or queue id cannot exist.
        """
        groups = self._offsets.get(topic)
        queues = None if groups is None else groups.get(group)
        before = None if queues is None else queues.get(queue_id)
        if before is None:
            self._refuse_new(group, topic, queue_id)
            self.count += 1
        if before != offset:
            if queues is None or queues.age != self._age:
                queues = self._writable(topic, group)
            queues[queue_id] = offset
            self.changes += 1
        if self._own is not None:
            self._own.setdefault((topic, group), {})[queue_id] = offset

    def _refuse_new(self, group: str, topic: str, queue_id: int) -> None:
        # in saved tables the key is topic@group
        if len(topic) + len(group) >= _KEY_SIZE_MAX or "@" in topic:
            remark = f"an offset of {topic[:100]}@{group[:100]}: topic or group have no such name"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        if queue_id < 0:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"an offset of queue {queue_id} of {topic}: no queue has that number",
            )
        refuse_beyond(
            self.count + 1,
            self._limits.offset_nums_max,
            "offsets of groups in queues",
            "offsetNumsMax",
        )

    def _queues(self, topic: str, group: str) -> Mapping[int, int]:
        """The offsets of a group in a topic, only for reading."""
        return self._offsets.get(topic, _NONE).get(group, _NONE)

    def _writable(self, topic: str, group: str) -> _Queues:
        """The offsets of a group in a topic, for writing: not shared with a returned table."""
        groups = self._writable_groups(topic)
        queues = groups.get(group)
        if queues is None:
            self._topics.setdefault(group, {})[topic] = None
        if queues is None or queues.age != self._age:
            queues = groups[group] = _Part(queues or {}, self._age)
        return queues

    def _writable_groups(self, topic: str) -> _Groups:
        groups = self._offsets.get(topic)
        if groups is None or groups.age != self._age:
            groups = self._offsets[topic] = _Part(groups or {}, self._age)
        return groups

    def forget_own(self, commit: Commit) -> None:
        """Forget a commit that the master has now; from here on the master's offset counts."""
        own = self._own.get((commit.topic, commit.group), {}) if self._own is not None else {}
        if own.get(commit.queue_id) == commit.offset:
            del own[commit.queue_id]

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next offset of a group in a queue; None: none was committed, or one below 0."""
        offset = self._queues(topic, group).get(queue_id, -1)
        return offset if offset >= 0 else None

    def set_back(self, within_queue: Callable[[str, int, int], int]) -> list[Commit]:
        """Set offsets beyond the end of their queue back to that end.

        :param within_queue: topic, queue id and offset -> the offset, or the queue's end if lower.
        :returns: the offsets that were set back, with their new values.
        """
        back = []
        for topic, groups in self._offsets.items():
            for group, queues in groups.items():
                for queue_id, offset in queues.items():
                    within = within_queue(topic, queue_id, offset)
                    if within < offset:
                        back.append(Commit(topic, group, queue_id, within))
        for each in back:
            self.commit(each.group, each.topic, each.queue_id, each.offset)
        return back

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group has offsets."""
        return list(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have offsets in a topic."""
        return list(self._offsets.get(topic, ()))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Set the offsets of `target` in a topic to those of `source`."""
        for queue_id, offset in list(self._queues(topic, source).items()):
            self.commit(target, topic, queue_id, offset)

    def forget_group(self, group: str) -> None:
        for topic in self.topics_of(group):
            self._forget(topic, group)

    def forget_topic(self, topic: str) -> None:
        """Delete all offsets in a topic, so that a later topic of this name starts without any."""
        for group in self.groups_of(topic):
            self._forget(topic, group)

    def _forget(self, topic: str, group: str) -> None:
        groups = self._writable_groups(topic)
        self.count -= len(groups.pop(group))
        if not groups:
            del self._offsets[topic]
        topics = self._topics[group]
        del topics[topic]
        if not topics:
            del self._topics[group]
        self.changes += 1

    def to_table(self) -> OffsetTable:
        """A table of the present offsets, which later commits do not change."""
        self._age += 1
        return OffsetTable(_ByKey(dict(self._offsets)))

    def restore(self, saved: OffsetTable) -> None:
        """Replace all offsets by the saved ones."""
        self._offsets = {}
        self._topics = {}
        for key, queues in saved.offsets.items():
            self._writable(*_split(key)).update(queues)
        self.count = sum(
            len(queues) for groups in self._offsets.values() for queues in groups.values()
        )

    # on a slave

    def copy_master(self, table: OffsetTable) -> Steps[bool]:
        """Copy the master's offsets of every topic and group in its table.

        Offsets that were committed to this slave are replaced, as on Apache's slaves. With
        `remembers`, those above the master's are kept. See
        docs/storage/replication.md#offsets-that-were-committed-to-a-slave.

        A table that is saved between two steps mixes old and new offsets. This does no harm: the
        offsets of one group in one topic are copied together, and groups are independent.

        :returns: whether anything changed.
        """
        before = self.changes
        for part in in_parts(table.offsets.items()):
            for key, queues in part:
                self._copy(*_split(key), queues)
            yield
        return self.changes != before

    def _copy(self, topic: str, group: str, of_master: Mapping[int, int]) -> None:
        known = self._queues(topic, group)
        offsets = dict(of_master)
        if self._own:
            offsets |= self._ahead(topic, group, of_master)
        if known != offsets:
            self.count += len(offsets) - len(known)
            self._writable_groups(topic)[group] = _Part(offsets, self._age)
            self._topics.setdefault(group, {})[topic] = None
            self.changes += 1

    def _ahead(self, topic: str, group: str, of_master: Mapping[int, int]) -> dict[int, int]:
        """The offsets committed to this slave that are above the master's; forgets the others."""
        own = (self._own or {}).get((topic, group), {})
        for queue_id in [
            queue_id for queue_id, offset in own.items() if offset <= of_master.get(queue_id, -1)
        ]:
            del own[queue_id]
        return own

    def own(self) -> Steps[list[Commit]]:
        """The offsets committed to this slave that are above those in the last copied table."""
        if self._own is None:
            return []
        commits = []
        for part in in_parts(list(self._own.items())):
            for (topic, group), offsets in part:
                commits += [
                    Commit(topic, group, queue_id, offset) for queue_id, offset in offsets.items()
                ]
                if not offsets:
                    del self._own[topic, group]
            yield
        return commits


class _ByKey(Mapping[str, Mapping[int, int]]):
    """The offsets of all topics and groups by `topic@group`, the keys of saved tables."""

    def __init__(self, topics: Mapping[str, Mapping[str, Mapping[int, int]]]) -> None:
        self._topics = topics

    def __getitem__(self, key: str) -> Mapping[int, int]:
        topic, group = _split(key)
        return self._topics[topic][group]

    def __iter__(self) -> Iterator[str]:
        return (f"{topic}@{group}" for topic, groups in self._topics.items() for group in groups)

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))


def _split(key: str) -> tuple[str, str]:
    """Topic and group of a key `topic@group`; `_refuse_new` admits no topic with an `@`."""
    topic, _, group = key.partition("@")
    return topic, group


class DelayOffsets:
    """The next queue offset to deliver of each delay level.

    Invariant: the table of `to_table`, which is saved and copied by slaves, has no offset above the
    durable ones. A broker that continues from it, after a crash or a promotion, may deliver a
    message twice, but leaves none out.
    """

    def __init__(self) -> None:
        self._offsets: dict[int, int] = {}
        self._safe: dict[int, int] = {}
        self._copied: tuple[int, dict[int, int]] | None = None

    def delivered(self, level: int, next_offset: int) -> None:
        """All messages of a level before `next_offset` were appended to their topics.

        The appended messages may not be durable yet.
        """
        self._offsets[level] = next_offset

    def next_offset(self, level: int) -> int:
        return self._offsets.get(level, 0)

    @property
    def offsets(self) -> Mapping[int, int]:
        """Level -> next offset, durable or not."""
        return self._offsets

    def settle(self, table: DelayOffsetTable) -> bool:
        """Mark the offsets of `table` as durable. Returns whether any of them changed."""
        is_news = self._safe != table.offsets
        self._safe = dict(table.offsets)
        return is_news

    def to_table(self) -> DelayOffsetTable:
        """The offsets whose deliveries are durable."""
        return DelayOffsetTable(dict(self._safe))

    def now(self) -> DelayOffsetTable:
        """The present offsets, durable or not."""
        return DelayOffsetTable(dict(self._offsets))

    def restore(self, saved: DelayOffsetTable) -> None:
        """Replace all offsets by the saved ones."""
        self._offsets = dict(saved.offsets)
        self._safe = dict(saved.offsets)

    def copy_master(self, table: DelayOffsetTable, log_end: int, flushed_to: int) -> bool:
        """Copy the master's table once this broker's log is durable up to `log_end`.

        The deliveries that the table counts may still be missing in this log. Until they are
        durable here, the table waits, and newer tables are ignored.

        :param log_end: at least the end of the master's log when the table was copied.
        :param flushed_to: the flushed offset of this broker's log.
        :returns: whether the durable offsets changed.
        """
        if self._copied is None or log_end < self._copied[0]:
            self._copied = log_end, dict(table.offsets)
        end, offsets = self._copied
        if flushed_to < end:
            return False
        self._copied = None
        self._offsets = dict(offsets)
        return self.settle(DelayOffsetTable(offsets))

    def forget_copy(self) -> None:
        """Drop a waiting table, because there is another master."""
        self._copied = None
