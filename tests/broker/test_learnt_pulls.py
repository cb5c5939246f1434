"""The learnt path of pulls and the general one are one: same answers, same progress, same pulls held."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.broker.arrivals import Arrivals
from roquet.broker.catalogue import Catalogue
from roquet.broker.groups import GroupRegistry
from roquet.broker.handlers.learnt_pulls import LearntPulls
from roquet.broker.handlers.pull import PullConfig, Pulls
from roquet.broker.members import Consumers, Member
from roquet.broker.progress import ConsumerProgress
from roquet.broker.read_balance import ReadBalance
from roquet.broker.state_files import Then
from roquet.broker.topics import TopicRegistry, topics_at_start
from roquet.protocol.bodies import ConsumerData, Subscription, TopicConfig
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import BINARY, JSON, Command, decode
from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.message import Permission, tag_code
from roquet.storage.fetch import FetchLimits
from roquet.storage.store import Store, StoreConfig
from roquet.transport.connection import Connection
from tests.simulation.disk import Drive

NOW_MS = 1_700_000_000_000
QUEUES = 12
PER_QUEUE = 120
USUAL = PullHeader("group", "T", 0, 0, 32, 3, 0, 15_000, "*", 1, "TAG")


class Side:
    """One broker's pull path on one connection."""

    def __init__(self, *, is_slave: bool = False) -> None:
        limits = FetchLimits(20_000, size_in_memory=4000, size_on_disk=1500)
        config = StoreConfig(Path("/s"), [Path("/s/commitlog")], 1 << 16, 20 * 50, index_enabled=False, limits=limits)
        self.store = Store(config, lambda: NOW_MS, Drive(random.Random(1)).mount())
        self.store.open()
        for number in range(QUEUES * PER_QUEUE):
            queue, tag = self.store.queue("T", number // 7 % QUEUES), "ab"[number % 2]
            self.store.append(queue, b"%d" % number, f"TAGS\x01{tag}".encode(), (), tag_code(tag), 0, 0, 1, bytes(8))
        self.topics = TopicRegistry(topics_at_start("C", "b"), NOW_MS)
        self.topics.update(TopicConfig("T", QUEUES, QUEUES, Permission.READ | Permission.WRITE), NOW_MS)
        catalogue = Catalogue(self.topics, GroupRegistry(NOW_MS), self._changed, self._changed, lambda: NOW_MS)
        self.consumers: Consumers[Connection] = Consumers()
        self.progress = ConsumerProgress()
        pulls = Pulls(
            PullConfig(is_slave=is_slave),
            self.store,
            catalogue,
            self.consumers,
            self.progress,
            ReadBalance(slave_reads=True, memory_size=5000),
            Arrivals(lambda: 0.0),
        )
        self.connection = Connection(pulls.routes())
        self.subscribe("*")

    def _changed(self, then: Then | None = None) -> None:
        assert then is None

    def subscribe(self, expression: str, version: int = 1) -> None:
        wanted = (Subscription("T", expression, version=version),)
        data = ConsumerData("group", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", wanted)
        self.consumers.register(self.connection, Member("c@1", "JAVA", 399, "10.0.0.9:1", 0), data)

    def forbid_reading(self) -> None:
        self.topics.update(TopicConfig("T", QUEUES, QUEUES, Permission.WRITE), NOW_MS)

    def held(self) -> list[tuple[int, int]]:
        """Queue and offset of each pull that waits."""
        return [
            (queue.queue_id, pull.offset)  # type: ignore[attr-defined]
            for queue in self.store.queues
            for pull in queue.waiting or ()
        ]

    def forms(self) -> int:
        learnt = (known for known in self.connection.shortcuts if isinstance(known, LearntPulls))
        return sum(len(forms) for known in learnt for forms in known._forms.known.values())


def pull_frame(opaque: int, header: PullHeader, form: int, code: int = RequestCode.PULL_MESSAGE) -> bytes:
    return Command(code, header.write(), b"", opaque, header_type=form, language="JAVA").encode()[4:]


def compare(frames: list[bytes], learning: Side, general: Side, *, per_read: int = 3) -> bytes:
    """Give frames to both sides, and compare all they did; the answers."""
    reads = [frames[at : at + per_read] for at in range(0, len(frames), per_read)]
    answers = [learning.connection._answers(read) for read in reads]
    by_general = [general.connection._take(frame) or b"" for frame in frames]
    assert b"".join(answers) == b"".join(by_general)
    assert learning.progress.to_table() == general.progress.to_table()
    assert learning.held() == general.held()
    return b"".join(answers)


def random_pull(chance: random.Random) -> PullHeader:
    return replace(
        USUAL,
        queue_id=chance.choice((*range(QUEUES), QUEUES, -1)),
        queue_offset=chance.choice((*range(PER_QUEUE), PER_QUEUE, PER_QUEUE + 1, -1)),
        commit_offset=chance.randrange(PER_QUEUE),
        max_msg_nums=chance.choice((1, 32)),
        sys_flag=chance.choice((3, 3, 3, 2, 7)),
        subscription=chance.choice(("*", "*", "a")),
        consumer_group=chance.choice(("group", "group", "group", "other")),
    )


@pytest.mark.parametrize("form", [JSON, BINARY])
@pytest.mark.parametrize("is_slave", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_any_pulls_are_answered_as_on_the_general_path(seed: int, form: int, is_slave: bool) -> None:
    async def run() -> int:
        learning, general = Side(is_slave=is_slave), Side(is_slave=is_slave)
        chance = random.Random(seed)
        frames = [pull_frame(number, random_pull(chance), form) for number in range(100, 500)]
        compare(frames, learning, general)
        return learning.forms()

    assert asyncio.run(run()) > 10


@pytest.mark.parametrize("form", [JSON, BINARY])
def test_what_changes_meanwhile_counts_for_learnt_pulls_too(form: int) -> None:
    async def run() -> None:
        learning, general = Side(), Side()
        frames = [pull_frame(n, replace(USUAL, queue_offset=n, commit_offset=n), form) for n in range(20, 40)]
        everything = compare(frames, learning, general)
        for side in (learning, general):
            side.subscribe("a", version=2)
        assert compare(frames, learning, general) != everything
        for side in (learning, general):
            side.forbid_reading()
        refusals = compare(frames[:1], learning, general)
        assert decode(refusals[4:]).code == ResponseCode.NO_PERMISSION

    asyncio.run(run())


@pytest.mark.parametrize("form", [JSON, BINARY])
def test_no_changed_byte_makes_a_learnt_pull_mean_something_else(form: int) -> None:
    async def run() -> None:
        learning, general = Side(), Side()
        frame = pull_frame(1234, replace(USUAL, queue_id=3, queue_offset=45, commit_offset=40), form)
        compare([frame, frame], learning, general, per_read=1)
        assert learning.forms() == 1
        chance = random.Random(form)
        for at in range(4, len(frame)):
            for byte in (*b'0 -9"x', chance.randrange(256)):
                changed = frame[:at] + bytes([byte]) + frame[at + 1 :]
                try:
                    expected = general.connection._take(changed)
                except Exception as error:
                    with pytest.raises(type(error)):
                        learning.connection._answers([changed])
                else:
                    assert learning.connection._answers([changed]) == (expected or b"")
        assert learning.progress.to_table() == general.progress.to_table()

    asyncio.run(run())
