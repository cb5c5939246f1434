"""Senders of delayed messages and consumers that fail some of them, in a simulated cluster, and
what must hold of it.

A message's key says everything about it: how long it is delayed, and how often it fails before
somebody deals with it.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Final

from roquet.broker.config.delay_levels import DelayLevels
from roquet.broker.config.store import DELAY_LEVELS
from roquet.client._consume.redelivery import REDELIVERY_PAUSE_S
from roquet.client.consumer import Consumer, ReceivedMessage
from roquet.client.producer import Producer
from roquet.client.send_result import SendStatus
from roquet.errors import RoquetError
from roquet.protocol.records.message import DELAY, REAL_TOPIC, SCHEDULE_TOPIC, Message
from roquet.protocol.records.record import Record, decode
from roquet.storage.store import Store
from tests.simulation.clients import NO_ANSWER, body_of, place_of
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Host, Simulation

TOPIC: Final = "reminders"
GROUP: Final = "desk"
DEAD_LETTERS: Final = f"%DLQ%{GROUP}"
TRIES_MAX: Final = 3
LATE_MS_MAX: Final = 20
"""How late a message is at most while the broker serves."""
LATE_MS_MAX_AT_START: Final = 500
"""The same for what was due while none did, from its start on."""
ROUTE_KNOWN_MS: Final = 40_000
"""So long after a topic was made all clients have asked for its route again."""
LEVELS: Final = DelayLevels.parse(DELAY_LEVELS)


def failures_of(key: str) -> int:
    """How often the message fails; one more than the group's tries: for ever."""
    return random.Random(f"failures {key}").choice((0, 0, 0, 0, 1, 2, TRIES_MAX, TRIES_MAX + 1))


@dataclass(frozen=True)
class Sent:
    """A message that was sent: its level, and when its send began, ms since the epoch."""

    level: int
    began_ms: int


class SenderNode:
    """Invariant: `sent` are all messages, `acknowledged` those that were answered SEND_OK; each is sent
    once. `places` are the physical offsets where these were stored first.
    """

    def __init__(self, host: Host, name_server: str, levels: tuple[int, ...]) -> None:
        self.host = host
        self.sent: dict[str, Sent] = {}
        self.acknowledged: set[str] = set()
        self.places: dict[str, int] = {}
        self.is_sending = False
        self._levels = levels
        self._name_server = name_server
        self._keys = (f"reminder-{number}" for number in count())

    def send(self, number: int, pause_s: float) -> None:
        """Begin to send so many messages, at times that only the seed knows."""
        self.is_sending = True
        self.host.start(lambda: self._send_all(number, pause_s))

    async def _send_all(self, number: int, pause_s: float) -> None:
        client_id, runtime = f"{self.host.address}@sender", self.host.runtime()
        async with (
            Producer(
                self._name_server, "shop", client_id=client_id, runtime=runtime, retries=0
            ) as producer,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(number):
                await asyncio.sleep(self.host.random.expovariate(1 / pause_s))
                group.create_task(self._send(producer, next(self._keys)))
        self.is_sending = False

    async def _send(self, producer: Producer, key: str) -> None:
        level = self.host.random.choice(self._levels)
        self.sent[key] = Sent(level, self.host.now_ms())
        try:
            result = await producer.send(Message(TOPIC, body_of(key), keys=key, delay_level=level))
        except NO_ANSWER:
            return
        if result.status is SendStatus.SEND_OK:
            self.acknowledged.add(key)
            self.places[key] = place_of(result)


class DeskNode:
    """One member of the group, one process after the other; `received` says when each message came
    for which try, `by_itself` has the tries that its consumer made because no broker took the
    message back.
    """

    def __init__(self, host: Host, name_server: str) -> None:
        self.host = host
        self.received: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.by_itself: set[tuple[str, int]] = set()
        self._stored_tries: dict[tuple[str, int], int] = {}
        self._name_server = name_server
        self._lives = 0

    def start(self) -> None:
        self._lives += 1
        self.host.start(self._work)

    async def _work(self) -> None:
        while True:
            try:
                await self._work_for_ever()
            except RoquetError:
                await asyncio.sleep(1)

    async def _work_for_ever(self) -> None:
        client_id, runtime = f"{self.host.address}@{self._lives}", self.host.runtime()
        async with Consumer(
            self._name_server,
            GROUP,
            TOPIC,
            "earliest",
            max_reconsume_times=TRIES_MAX,
            client_id=client_id,
            runtime=runtime,
        ) as consumer:
            async for message in consumer:
                self._deal_with(message)

    def _deal_with(self, message: ReceivedMessage) -> None:
        (key,) = message.keys
        assert (message.topic, message.body) == (TOPIC, body_of(key)), (
            f"{key} is another message now"
        )
        self.received[key].append((message.reconsume_times, self.host.now_ms()))
        if message.reconsume_times > self._stored_tries.setdefault(
            (key, message.physical_offset), message.reconsume_times
        ):
            self.by_itself.add((key, message.reconsume_times))
        if message.reconsume_times < failures_of(key):
            message.retry()

    def dealt_with(self, key: str) -> bool:
        return any(times >= failures_of(key) for times, _ in self.received[key])


@dataclass
class Service:
    """When a broker served: `began_ms` and `ended_ms` alternate."""

    node: BrokerNode
    began_ms: list[int] = field(default_factory=list)
    ended_ms: list[int] = field(default_factory=list)
    _was: object = None
    _stopping: object = None

    def stops(self) -> None:
        """The broker is asked to stop: it does not serve while it does."""
        self._stopping = self.node.broker
        self.look()

    def look(self) -> None:
        """Called after every event of the simulation."""
        now = self.node.broker if self.node.broker is not self._stopping else None
        if now is not self._was:
            if self._was is not None:
                self.ended_ms.append(self.node.host.now_ms())
            if now is not None:
                self.began_ms.append(self.node.host.now_ms())
            self._was = now

    def late_after(self, due_ms: int) -> int:
        """When a message that is due then has been delivered at the latest."""
        life = bisect_right(self.began_ms, due_ms) - 1
        if life >= 0 and (life >= len(self.ended_ms) or self.ended_ms[life] > due_ms + LATE_MS_MAX):
            return due_ms + LATE_MS_MAX
        return max(due_ms, self.began_ms[life + 1]) + LATE_MS_MAX_AT_START

    def ended_between(self, first_ms: int, last_ms: int) -> bool:
        return any(first_ms <= ended <= last_ms for ended in self.ended_ms)


Identity = tuple[str, int, int, int]


def _identity(record: Record) -> Identity:
    """What a message has in the schedule topic and in its own."""
    return record.properties_text, record.born_ms, record.body_crc, record.reconsume_times


@dataclass
class Course:
    """One message's way, by the log: when it was due, and when it was stored in its own queue,
    ascending.
    """

    due_ms: list[int] = field(default_factory=list)
    delivered_ms: list[int] = field(default_factory=list)


def courses(store: Store) -> dict[Identity, Course]:
    """Of every delayed message in a log."""
    found: defaultdict[Identity, Course] = defaultdict(Course)
    for waiting, due_ms in _waiting(store):
        found[_identity(waiting)].due_ms.append(due_ms)
    for _, data in store.log.walk(store.log.start):
        record = decode(data, verify=True)
        if (
            record.properties.get(REAL_TOPIC) == record.topic
            and int(record.properties.get(DELAY, 0)) > 0
        ):
            found[_identity(record)].delivered_ms.append(record.store_ms)
    return found


def _waiting(store: Store) -> Iterator[tuple[Record, int]]:
    for queue in store.queues:
        if queue.topic == SCHEDULE_TOPIC:
            for offset in range(queue.max_offset):
                entry = queue.entry(offset)
                assert entry is not None
                record = decode(store.log.record_at(entry[0]) or b"")
                assert entry[2] == record.store_ms + LEVELS.ms[queue.queue_id], (
                    "the entry says when it is due"
                )
                yield record, entry[2]


def check_delivered(store: Store, now_ms: int) -> dict[Identity, Course]:
    """By a broker that has served for a while: nothing comes before its time, and nothing not at
    all.
    """
    found = courses(store)
    for identity, course in found.items():
        course.due_ms.sort()
        due = [ms for ms in course.due_ms if ms + LATE_MS_MAX_AT_START < now_ms]
        assert course.due_ms, f"{identity} was delivered and never delayed"
        assert len(course.delivered_ms) >= len(due), f"{identity} did not come"
        assert min(course.delivered_ms, default=course.due_ms[0]) >= course.due_ms[0], (
            f"{identity} came too early"
        )
    return found


def check_courses(store: Store, service: Service, now_ms: int) -> int:
    """The same, and nothing comes late, and twice only after a crash; how many did."""
    twice = 0
    for identity, course in check_delivered(store, now_ms).items():
        due = [ms for ms in course.due_ms if service.late_after(ms) < now_ms]
        if len(course.due_ms) == 1 and due:
            assert course.delivered_ms[0] <= service.late_after(due[0]), f"{identity} came late"
            for first_ms, second_ms in pairwise(course.delivered_ms):
                assert service.ended_between(first_ms, second_ms), (
                    f"{identity} came twice without a reason"
                )
                twice += 1
    return twice


def check_received(sender: SenderNode, desks: list[DeskNode]) -> None:
    """Each try comes when its delay is over and not before."""
    for key, sent in sender.sent.items():
        tries = sorted(each for desk in desks for each in desk.received[key])
        by_itself = {times for desk in desks for of, times in desk.by_itself if of == key}
        delay_ms = LEVELS.ms[sent.level - 1] if sent.level else 0
        for times, ms in tries:
            before_ms = min(
                (was_ms for was_times, was_ms in tries if was_times == times - 1),
                default=sent.began_ms,
            )
            pause_ms = (
                int(REDELIVERY_PAUSE_S * 1000) if times in by_itself else LEVELS.ms[times + 1]
            )
            earliest = before_ms + pause_ms if times else sent.began_ms + delay_ms
            assert ms >= earliest, f"{key}: try {times} came {earliest - ms} ms too early"


def check_not_late(sender: SenderNode, desk: DeskNode, late_ms_max: int) -> None:
    """Each try comes soon after its delay is over; for a broker that served all the time, and for
    what was sent after the consumer knew the topic.
    """
    known_ms = min(sent.began_ms for sent in sender.sent.values()) + ROUTE_KNOWN_MS
    for key in sender.acknowledged:
        sent, tries = sender.sent[key], sorted(desk.received[key])
        if sent.began_ms < known_ms:
            continue
        delay_ms = LEVELS.ms[sent.level - 1] if sent.level else 0
        latest = sent.began_ms + delay_ms + late_ms_max
        for times, ms in tries:
            assert ms <= latest, f"{key}: try {times} came {ms - latest} ms too late"
            latest = ms + LEVELS.ms[times + 2] + late_ms_max


class DelayWorld:
    """A sender and a desk beside the brokers of a simulation."""

    def __init__(
        self, sim: Simulation, name_server: str, node: BrokerNode, levels: tuple[int, ...]
    ) -> None:
        self.sim = sim
        self.sender = SenderNode(sim.host("10.0.8.1"), name_server, levels)
        self.desk = DeskNode(sim.host("10.0.8.2"), name_server)
        self.service = Service(node)
        sim.check_always(self.service.look)

    def unsettled(self, store: Store) -> set[str]:
        """Acknowledged messages that nobody has dealt with, and that are not among the dead
        letters.
        """
        open_ones = {key for key in self.sender.acknowledged if not self.desk.dealt_with(key)}
        return open_ones - set(_keys_in(store, DEAD_LETTERS)) if open_ones else open_ones

    def check(self, store: Store, now_ms: int) -> int:
        """Everything; how many messages came twice."""
        check_received(self.sender, [self.desk])
        dead = set(_keys_in(store, DEAD_LETTERS))
        assert all(failures_of(key) > TRIES_MAX for key in dead)
        assert all(
            max(self.desk.received[key])[0] == TRIES_MAX for key in dead & self.sender.acknowledged
        )
        return check_courses(store, self.service, now_ms)


def _keys_in(store: Store, topic: str) -> Iterator[str]:
    queue = store.queues.known(topic, 0)
    for offset in range(queue.max_offset if queue is not None else 0):
        assert queue is not None
        entry = queue.entry(offset)
        assert entry is not None
        yield decode(store.log.record_at(entry[0]) or b"").properties["KEYS"]
