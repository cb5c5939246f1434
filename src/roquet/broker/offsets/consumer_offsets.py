"""PURE: how far each group has consumed, and how far delayed messages are delivered.

See docs/storage/files.md#the-json-of-state-files and docs/broker/consumers.md#consumer-offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from roquet.broker.config.limits import Limits, refuse_beyond
from roquet.common.steps import Steps, in_parts
from roquet.common.units import QueueOffset
from roquet.errors import Refused
from roquet.protocol.bodies.tables import DelayOffsetTable, OffsetTable
from roquet.protocol.remoting.codes import ResponseCode

K = TypeVar("K")
V = TypeVar("V")

_KEY_SIZE_MAX: Final = 1000
"""Characters of a topic's and a group's name together; legal names have fewer."""
_NONE: Final[Mapping[Any, Any]] = {}


def start_of_young_queue(min_offset: int, *, first_in_memory: bool) -> QueueOffset | None:
    """Where a group without progress starts by the broker's word; None: the client has to decide.

    In a queue that still has its first message, and that in memory, everybody starts at 0, even who asked for the
    end (docs/pitfalls.md#trap-29).
    """
    return QueueOffset(0) if min_offset <= 0 and first_in_memory else None


@dataclass(frozen=True, slots=True)
class Commit:
    """The next offset of one group in one queue."""

    topic: str
    group: str
    queue_id: int
    offset: int


class _Part(dict[K, V]):
    """A part of the offsets. Tables that were given out share it, unless it was made since the last of them (`age`)."""

    __slots__ = ("age",)

    def __init__(self, items: Mapping[K, V], age: int) -> None:
        super().__init__(items)
        self.age = age


_Queues: TypeAlias = _Part[int, int]
_Groups: TypeAlias = _Part[str, _Queues]


class ConsumerOffsets:
    """The next offset of each group in each queue.

    Keeps: the last word counts, also when it goes backwards or comes from a former owner of the queue
    (docs/pitfalls.md#trap-30); `changes` grows with every change; `count` is how many offsets there are; `_topics`
    names exactly the pairs that `_offsets` has. What a table shares with `_offsets` is not changed any more, but
    replaced by a copy: a table is one moment's, and taking it costs no more than a list of the topics.

    :param remembers: (slaves) keep apart what is committed here, until the master has it.
    :param limits: how many offsets clients may make it keep.
    """

    def __init__(self, *, remembers: bool = False, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._offsets: dict[str, _Groups] = {}
        """Topic -> group -> queue id -> offset."""
        self._topics: dict[str, dict[str, None]] = {}
        """Group -> topics in which it has progress."""
        self._age = 0
        """Tables given out so far."""
        self.count = 0
        self._own: dict[tuple[str, str], dict[int, int]] | None = {} if remembers else None
        self.changes = 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """What a group says of a queue; neither has to be known.

        :raises Refused: it is the first word on that queue, and there are too many offsets, or it has an odd name
            or number.
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
        if (
            len(topic) + len(group) >= _KEY_SIZE_MAX or "@" in topic
        ):  # which ends the topic in a saved table
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
        """The offsets of a group in a topic, to be read."""
        return self._offsets.get(topic, _NONE).get(group, _NONE)

    def _writable(self, topic: str, group: str) -> _Queues:
        """The same to be changed: no table shares them."""
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

    def told(self, commit: Commit) -> None:
        """The master has this by now, and its word counts from here on, also where it sets the group back."""
        own = self._own.get((commit.topic, commit.group), {}) if self._own is not None else {}
        if own.get(commit.queue_id) == commit.offset:
            del own[commit.queue_id]

    def committed(self, group: str, topic: str, queue_id: int) -> QueueOffset | None:
        """The next offset of a group in a queue; None: it never said, or something below 0."""
        offset = self._queues(topic, group).get(queue_id, -1)
        return QueueOffset(offset) if offset >= 0 else None

    def set_back(self, within_queue: Callable[[str, int, int], int]) -> list[Commit]:
        """Let no group be further than its queues; tells what was set back, and to where.

        :param within_queue: topic, queue id and offset -> the offset, or the end of the queue where that comes first.
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
        """Topics in which the group has progress."""
        return list(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have progress in the topic."""
        return list(self._offsets.get(topic, ()))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Let one group stand in a topic where another does."""
        for queue_id, offset in list(self._queues(topic, source).items()):
            self.commit(target, topic, queue_id, offset)

    def forget_group(self, group: str) -> None:
        for topic in self.topics_of(group):
            self._forget(topic, group)

    def forget_topic(self, topic: str) -> None:
        """A topic of that name made later starts from nothing."""
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
        """As it is now, whatever is committed later."""
        self._age += 1
        return OffsetTable(_ByKey(dict(self._offsets)))

    def restore(self, saved: OffsetTable) -> None:
        """Begin with what was saved, and nothing else."""
        self._offsets, self._topics = {}, {}
        for key, queues in saved.offsets.items():
            self._writable(*_split(key)).update(queues)
        self.count = sum(
            len(queues) for groups in self._offsets.values() for queues in groups.values()
        )

    # a slave's

    def copy_master(self, table: OffsetTable) -> Steps[bool]:
        """Take the master's word for every topic and group that it names.

        See docs/storage/replication.md#offsets-that-were-committed-to-a-slave.

        What was committed here meanwhile for these is lost, as on Apache's slaves, but for what is remembered and goes
        beyond it. Tells whether anything changed. A table that is saved between two steps is of two moments at the
        master: what it says of a group in a topic is of one, and one group does not depend on another.
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
        """What was committed here and goes beyond what the master has; what does not is forgotten."""
        own = (self._own or {}).get((topic, group), {})
        for queue_id in [
            queue_id for queue_id, offset in own.items() if offset <= of_master.get(queue_id, -1)
        ]:
            del own[queue_id]
        return own

    def own(self) -> Steps[list[Commit]]:
        """What was committed here, and goes beyond the table of the master that was copied last."""
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
    """The offsets of all topics and groups by `topic@group`, as tables have them."""

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
    """Topic and group; neither name can hold an `@`."""
    topic, _, group = key.partition("@")
    return topic, group


class DelayOffsets:
    """The next offset to deliver of each delay level.

    Keeps: what `to_table` gives, which is saved and told to slaves, is never further than what is safe: whoever goes on
    from there, after a crash or in the master's place, may deliver a message twice, but leaves none out.
    """

    def __init__(self) -> None:
        self._offsets: dict[int, int] = {}
        self._safe: dict[int, int] = {}
        self._copied: tuple[int, dict[int, int]] | None = None

    def delivered(self, level: int, next_offset: int) -> None:
        """All before `next_offset` of this level is in the log where it belongs, but maybe not on disk."""
        self._offsets[level] = next_offset

    def next_offset(self, level: int) -> QueueOffset:
        return QueueOffset(self._offsets.get(level, 0))

    @property
    def offsets(self) -> Mapping[int, int]:
        """Level -> next offset, as far as it came."""
        return self._offsets

    def settle(self, table: DelayOffsetTable) -> bool:
        """All that `table` says was delivered is on disk now; tells whether that is news."""
        is_news = self._safe != table.offsets
        self._safe = dict(table.offsets)
        return is_news

    def to_table(self) -> DelayOffsetTable:
        """As far as it is safe."""
        return DelayOffsetTable(dict(self._safe))

    def now(self) -> DelayOffsetTable:
        """As far as it came."""
        return DelayOffsetTable(dict(self._offsets))

    def restore(self, saved: DelayOffsetTable) -> None:
        """Begin with what was saved, and nothing else."""
        self._offsets, self._safe = dict(saved.offsets), dict(saved.offsets)

    def copy_master(self, table: DelayOffsetTable, log_end: int, flushed_to: int) -> bool:
        """The master's table, from a time when its log reached no further than `log_end`; tells whether ours changed.

        What it says was delivered may still be missing in our log: it counts once that is on disk up to there. Until
        then what comes later is not looked at.
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
        """There is another master: what the one before said does not count any more, unless it does already."""
        self._copied = None
