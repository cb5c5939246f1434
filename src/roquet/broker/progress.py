"""PURE: how far each group has consumed, and how far delayed messages are delivered (store-and-ha.md 1.3, 6.11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from roquet.broker.limits import Limits, refuse_beyond
from roquet.errors import Refused
from roquet.protocol.bodies import DelayOffsetTable, OffsetTable
from roquet.protocol.codes import ResponseCode
from roquet.units import QueueOffset

_KEY_SIZE_MAX: Final = 1000
"""Characters of a topic's and a group's name together; legal names have fewer."""


def start_of_young_queue(min_offset: int, *, first_in_memory: bool) -> QueueOffset | None:
    """Where a group without progress starts by the broker's word; None: the client has to decide.

    In a queue that still has its first message, and that in memory, everybody starts at 0, even who asked for the
    end (protocol.md 7.3, trap 29).
    """
    return QueueOffset(0) if min_offset <= 0 and first_in_memory else None


@dataclass(frozen=True, slots=True)
class Commit:
    """The next offset of one group in one queue."""

    topic: str
    group: str
    queue_id: int
    offset: int


class ConsumerProgress:
    """The next offset of each group in each queue.

    Keeps: the last word counts, also when it goes backwards or comes from a former owner of the queue (trap 30);
           `changes` grows with every change; `count` is how many offsets there are; `_topics` and `_groups` name
           exactly the pairs that `_offsets` has.

    :param remembers: (slaves) keep apart what is committed here, until the master has it.
    :param limits: how many offsets clients may make it keep.
    """

    def __init__(self, *, remembers: bool = False, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._offsets: dict[str, dict[int, int]] = {}
        self._topics: dict[str, dict[str, None]] = {}
        """Group -> topics in which it has progress."""
        self._groups: dict[str, dict[str, None]] = {}
        """Topic -> groups that have progress in it."""
        self.count = 0
        self._own: dict[tuple[str, int], int] | None = {} if remembers else None
        self.changes = 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """What a group says of a queue; neither has to be known.

        :raises Refused: it is the first word on that queue, and there are too many offsets, or a name is too long.
        """
        key = f"{topic}@{group}"
        queues = self._offsets.get(key)
        before = None if queues is None else queues.get(queue_id)
        if before is None:
            queues = self._room_for(key)
        if before != offset:
            assert queues is not None
            queues[queue_id] = offset
            self.changes += 1
        if self._own is not None:
            self._own[key, queue_id] = offset

    def _room_for(self, key: str) -> dict[int, int]:
        """The offsets of a topic and group, to which one more is added."""
        if len(key) > _KEY_SIZE_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"an offset of {key[:100]}...: topic or group have no such name")
        refuse_beyond(self.count + 1, self._limits.offset_nums_max, "offsets of groups in queues", "offsetNumsMax")
        self.count += 1
        queues = self._offsets.get(key)
        if queues is None:
            queues = {}
            self._put(key, queues)
        return queues

    def _put(self, key: str, queues: dict[int, int]) -> None:
        topic, group = _split(key)
        self._offsets[key] = queues
        self._topics.setdefault(group, {})[topic] = None
        self._groups.setdefault(topic, {})[group] = None

    def ahead_of(self, master: OffsetTable) -> list[Commit]:
        """What was committed here and goes beyond what the master has; what does not is forgotten."""
        own = self._own or {}
        for key, queue_id in list(own):
            if own[key, queue_id] <= master.offsets.get(key, {}).get(queue_id, -1):
                del own[key, queue_id]
        return [Commit(*_split(key), queue_id, offset) for (key, queue_id), offset in own.items()]

    def told(self, commit: Commit) -> None:
        """The master has this by now, and its word counts from here on, also where it sets the group back."""
        key = f"{commit.topic}@{commit.group}", commit.queue_id
        if self._own is not None and self._own.get(key) == commit.offset:
            del self._own[key]

    def committed(self, group: str, topic: str, queue_id: int) -> QueueOffset | None:
        """The next offset of a group in a queue; None: it never said, or something below 0."""
        queues = self._offsets.get(f"{topic}@{group}")
        offset = -1 if queues is None else queues.get(queue_id, -1)
        return QueueOffset(offset) if offset >= 0 else None

    def set_back(self, within_queue: Callable[[str, int, int], int]) -> list[Commit]:
        """Let no group be further than its queues; tells what was set back, and to where.

        :param within_queue: topic, queue id and offset -> the offset, or the end of the queue where that comes first.
        """
        back = []
        for key, queues in self._offsets.items():
            topic, group = _split(key)
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
        return list(self._groups.get(topic, ()))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Let one group stand in a topic where another does."""
        for queue_id, offset in self._offsets.get(f"{topic}@{source}", {}).items():
            self.commit(target, topic, queue_id, offset)

    def forget_group(self, group: str) -> None:
        self._forget(f"{topic}@{group}" for topic in self.topics_of(group))

    def forget_topic(self, topic: str) -> None:
        """A topic of that name made later starts from nothing."""
        self._forget(f"{topic}@{group}" for group in self.groups_of(topic))

    def _forget(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            topic, group = _split(key)
            self.count -= len(self._offsets.pop(key))
            _drop(self._topics, group, topic)
            _drop(self._groups, topic, group)
            self.changes += 1

    def present(self) -> OffsetTable:
        """The offsets themselves, for those who read them bit by bit: each is as it is then; no key comes or goes."""
        return OffsetTable(dict(self._offsets))

    def to_table(self) -> OffsetTable:
        return OffsetTable({key: dict(queues) for key, queues in self._offsets.items()})

    def restore(self, saved: OffsetTable) -> None:
        """Begin with what was saved, and nothing else."""
        self._offsets, self._topics, self._groups = {}, {}, {}
        for key, queues in saved.offsets.items():
            self._put(key, dict(queues))
        self.count = sum(map(len, self._offsets.values()))

    def copy_master(self, table: OffsetTable) -> bool:
        """Take the master's word for every topic and group that it names (protocol.md 2.6, store-and-ha.md 5.5).

        What was committed here meanwhile for these is lost, as on Apache's slaves, but for what is remembered and goes
        beyond it. Tells whether anything changed.
        """
        offsets = {key: dict(queues) for key, queues in table.offsets.items()}
        for own in self.ahead_of(table):
            offsets.setdefault(f"{own.topic}@{own.group}", {})[own.queue_id] = own.offset
        news = {key: queues for key, queues in offsets.items() if self._offsets.get(key) != queues}
        for key, queues in news.items():
            self.count += len(queues) - len(self._offsets.get(key, ()))
            self._put(key, queues)
        self.changes += len(news)
        return bool(news)


def _split(key: str) -> tuple[str, str]:
    """Topic and group; neither name can hold an `@`."""
    topic, _, group = key.partition("@")
    return topic, group


def _drop(index: dict[str, dict[str, None]], key: str, value: str) -> None:
    values = index[key]
    del values[value]
    if not values:
        del index[key]


class DelayProgress:
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
