"""What must be true of each set of brokers after every event; `quiet` says what must be once all is
calm.

A check is made for one set and then called after every event, so each of them looks only at what is
new since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from roquet.broker.server import Broker
from roquet.protocol.records.message import (
    DELAY,
    KEYS,
    SCHEDULE_TOPIC,
    TAGS,
    TRANSACTION_PREPARED,
    tag_code,
)
from roquet.protocol.records.record import Record, decode
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE, ENTRY_SIZE, ConsumeQueue
from roquet.storage.store import Store
from tests.simulation.clients import GROUP, TOPIC, place_of
from tests.simulation.lasting import may_go
from tests.simulation.nodes import QUEUES

if TYPE_CHECKING:
    from tests.simulation.broker_set import BrokerSet
    from tests.simulation.nodes import BrokerNode

Check: TypeAlias = "Callable[[BrokerSet], Callable[[], None]]"


def record_at(store: Store, at: int) -> Record | None:
    """The whole record at a physical offset, if one stands there."""
    data = store.log.record_at(at)
    return decode(data, verify=True) if data is not None else None


def key_at(store: Store, at: int) -> str | None:
    """The key of the message at a physical offset."""
    record = record_at(store, at)
    return record.properties.get(KEYS) if record is not None else None


def read_log(log: CommitLog, start: int, end: int) -> bytes:
    """The bytes from `start` to `end`, whatever files they are in."""
    parts: list[bytes] = []
    while start < end:
        part = bytes(log.read(start, end - start))
        assert part, (
            f"the log has nothing at {start}, though it reaches from {log.start} to {log.end}"
        )
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def logs_agree_where_they_overlap(brokers: BrokerSet) -> Callable[[], None]:
    """A slave's log is its master's, byte for byte.

    One exception: a master whose power failed may have lost what a slave has, and a slave that
    became the master may not have had what another slave had. Such a master may go on in another
    way, but that slave must not from there on.
    """
    pairs = {name: LogPair(node) for name, node in brokers.brokers.items()}

    def check() -> None:
        master = brokers.master
        for slave in brokers.slaves:
            pairs[slave.name].check(master)

    return check


class LogPair:
    """A slave's log and its master's.

    Invariant: all that both had before `same_to` was equal in these two lives; `is_ahead`: since they
    were last known to be equal, the slave had more than its master.
    """

    def __init__(self, slave: BrokerNode) -> None:
        self._slave = slave
        self._lives = ("", 0, 0)
        self._ends = (0, 0)
        self._same_to = 0
        self._is_ahead = False

    def check(self, its_master: BrokerNode) -> None:
        master, slave = its_master.broker, self._slave.broker
        if master is None or slave is None:
            return
        lives = (its_master.name, its_master.life, self._slave.life)
        ends = (master.store.log.end, slave.store.log.end)
        if (lives, ends) == (self._lives, self._ends):
            return
        has_grown = self._lives[2] == lives[2] and ends[1] > self._ends[1]
        if lives != self._lives:
            self._same_to = 0
        self._lives, self._ends = lives, ends
        different_at = self._compare(master.store.log, slave.store.log)
        if different_at is not None and (has_grown or not self._is_ahead):
            raise AssertionError(
                f"{self._slave.name} has another byte than its master at {different_at} of {ends}"
            )
        self._is_ahead = ends[1] > ends[0] or different_at is not None

    def _compare(self, master: CommitLog, slave: CommitLog) -> int | None:
        """The first place where they differ."""
        start = max(self._same_to, master.start, slave.start)
        end = min(master.end, slave.end)
        if start >= end:
            return None
        left, right = read_log(master, start, end), read_log(slave, start, end)
        if left == right:
            self._same_to = end
            return None
        return start + next(index for index in range(end - start) if left[index] != right[index])


def queues_agree_with_the_log(brokers: BrokerSet) -> Callable[[], None]:
    """Every record has its entry and every entry its record, on every broker."""
    followers = [QueueFollower(node) for node in brokers.brokers.values()]

    def check() -> None:
        for follower in followers:
            follower.check()

    return check


class QueueFollower:
    """Walks the log of one broker and counts what its queues must hold.

    Invariant: every record before `_position` was found in its queue, which goes on at `_next[topic,
    queue id]`.
    """

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._life = 0
        self._position = 0
        self._next: dict[tuple[str, int], int] = {}

    def check(self) -> None:
        broker = self._node.broker
        if broker is None:
            return
        store = broker.store
        if self._node.life != self._life:
            self._life, self._position = self._node.life, store.log.start
            self._next.clear()
        if self._position == store.dispatch.position or _is_closed(store):
            return
        for at, data in store.log.walk(max(self._position, store.log.start)):
            if at >= store.dispatch.position:
                break
            self._check_record(store, decode(data, verify=True))
        self._position = store.dispatch.position
        for queue in store.queues:
            if may_go(queue.topic):
                continue
            end = self._next.get((queue.topic, queue.queue_id), queue.min_offset)
            where = self._where(queue.topic, queue.queue_id)
            is_known = queue.max_offset == end or (
                store.dispatch.is_held_up and queue.max_offset > end
            )
            assert is_known, f"{where} ends at {queue.max_offset}, the log has records up to {end}"

    def _check_record(self, store: Store, record: Record) -> None:
        """Records whose flags say prepared or rolled back are in no queue."""
        if record.sys_flag & TRANSACTION_PREPARED or may_go(record.topic):
            return
        place = (record.topic, record.queue_id)
        where = f"{self._where(*place)} offset {record.queue_offset}, record at {record.physical_offset}"
        queue = store.queues.known(*place)
        assert queue is not None, f"{where}: no such queue"
        due = self._next.get(place, queue.min_offset)
        if record.queue_offset > due and _goes_on_in_its_next_file(store, queue, record, due):
            due = record.queue_offset
        assert record.queue_offset == due, f"{where}: {due} is due"
        wanted = (
            record.physical_offset,
            len(record.encode()),
            _code(record, store.config.delay_levels_ms),
        )
        assert queue.entry(due) == wanted, f"{where}: the entry is {queue.entry(due)}"
        self._next[place] = due + 1

    def _where(self, topic: str, queue_id: int) -> str:
        return f"{self._node.name}, queue {queue_id} of {topic}"


def _code(record: Record, delay_levels_ms: Sequence[int]) -> int:
    """What its queue entry says of it: when it is due, or the hash of its tag."""
    if record.topic == SCHEDULE_TOPIC:
        return record.store_ms + delay_levels_ms[int(record.properties[DELAY]) - 1]
    return tag_code(record.properties.get(TAGS))


def _goes_on_in_its_next_file(store: Store, queue: ConsumeQueue, record: Record, due: int) -> bool:
    """Whether a start of the master could not read the queue, of which the log had no record left.

    The queue's end was not known then, so its next record is the first one of the next file. Slaves
    that know the end have blanks in between.
    """
    between = list(queue.entries(due, record.queue_offset - due))
    return (
        record.queue_offset * ENTRY_SIZE % store.config.consume_queue_file_size == 0
        and len(between) == record.queue_offset - due
        and all(size == BLANK_RECORD_SIZE for _, size, _ in between)
    )


def _is_closed(store: Store) -> bool:
    """A store that closes dispatches what is left in the same event, and shows its log no more."""
    return not store.log.file_starts


def progress_only_grows(brokers: BrokerSet) -> Callable[[], None]:
    """What the group committed to the master covers only what the group got, and never goes back
    while that lives; a slave that becomes the master has at least what it had before, as far as its
    queues reach.

    It may where words come late: from who gave a queue away after its new owner's, or from an old
    connection after a newer one's. The broker keeps the last word (Apache's does, too), so a
    restart may bring messages again.
    """
    return ProgressFollower(brokers).check


class ProgressFollower:
    """Invariant: in this life of the master, `_committed[queue id]` is the most that was committed, and
    all before it had been received then; `_at_slaves` is what each slave had last, and in which
    life.
    """

    def __init__(self, brokers: BrokerSet) -> None:
        self._set = brokers
        self._of = ("", 0)
        self._changes = -1
        self._committed: dict[int, int] = {}
        self._at_slaves: dict[str, tuple[int, dict[int, int]]] = {}

    def check(self) -> None:
        for slave in self._set.slaves:
            if slave.broker is not None:
                self._at_slaves[slave.name] = slave.life, _committed(slave.broker)
        node = self._set.master
        broker = node.broker
        if broker is None:
            return
        if self._of != (node.name, node.life):
            self._of = node.name, node.life
            self._begin(broker, self._at_slaves.get(node.name))
        if broker.store.dispatch.is_held_up:
            return  # there are messages whose queue entries are not written yet: the group's word counts
        if broker.parts.tables.offsets.changes == self._changes:
            return
        self._changes = broker.parts.tables.offsets.changes
        for queue_id, offset in _committed(broker).items():
            self._check_queue(broker, queue_id, offset)

    def _begin(self, broker: Broker, as_slave: tuple[int, dict[int, int]] | None) -> None:
        self._changes = -1
        before = as_slave[1] if as_slave is not None and as_slave[0] == self._of[1] else {}
        self._committed = {
            number: min(offset, broker.store.max_offset(TOPIC, number))
            for number, offset in before.items()
        }

    def _check_queue(self, broker: Broker, queue_id: int, offset: int) -> None:
        before = self._committed.get(queue_id, 0)
        went_back = f"the progress of queue {queue_id} went back from {before} to {offset}"
        assert offset >= before or self._set.cluster.words_may_come_late, went_back
        received = self._set.cluster.received()
        for passed in range(before, offset):
            queue = broker.store.queues.known(TOPIC, queue_id)
            assert queue is not None
            entry = queue.entry(passed)
            if entry is None and passed < queue.min_offset and self._set.deleted_to:
                continue
            assert entry is not None, (
                f"progress of queue {queue_id} is {offset}, offset {passed} does not exist"
            )
            key = key_at(broker.store, entry[0])
            is_due = (
                not self._set.may_be_passed(queue_id, passed) and entry[0] >= self._set.deleted_to
            )
            assert key in received or not is_due, (
                f"progress of queue {queue_id} is {offset}, {key} at {passed} was not received"
            )
        self._committed[queue_id] = max(before, offset)


def _committed(broker: Broker) -> dict[int, int]:
    """Where the group stands in each queue."""
    offsets = {
        number: broker.parts.tables.offsets.committed(GROUP, TOPIC, number)
        for number in range(QUEUES)
    }
    return {number: offset for number, offset in offsets.items() if offset is not None}


def acknowledged_is_kept(brokers: BrokerSet) -> Callable[[], None]:
    """At every moment, each acknowledged message is in the log of at least one broker that serves.

    That holds for as long as one broker at a time is in trouble and the others have caught up
    before the next one is, and where the slave that has most of the log takes the place of a master
    that does not come back: but for the moment in which it starts as such. A slave that had to
    start anew begins with its master's last file: older messages it never had. What some broker has
    deleted, as it may, is not looked for.
    """
    return KeptMessages(brokers).check


class KeptMessages:
    """Invariant: of the first `_known` acknowledged messages each was found in these lives of the
    brokers.
    """

    def __init__(self, brokers: BrokerSet) -> None:
        self._set = brokers
        self._brokers: list[Broker] = []
        self._known = 0

    def check(self) -> None:
        if self._set.master.is_changing:
            return
        nodes = [self._set.master, *self._set.slaves]
        brokers = [node.broker for node in nodes if node.broker is not None]
        acknowledged = self._set.acknowledged
        is_known = brokers == self._brokers
        if is_known and self._known == len(acknowledged):
            return
        stores = [broker.store for broker in brokers]
        new = list(acknowledged.items())[self._known if is_known else 0 :]
        for key, result in new if stores else ():
            at = place_of(result)
            if at < self._set.deleted_to:
                continue
            is_kept = any(key_at(store, at) == key for store in stores) or all(
                store.log.start > at for store in stores
            )
            assert is_kept, f"{key}, acknowledged at {at}, is in no log"
        self._brokers, self._known = brokers, len(acknowledged)
