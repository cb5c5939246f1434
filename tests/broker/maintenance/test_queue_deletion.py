"""Queues of thousands of topics are deleted a part at a time: what is used again meanwhile
stays.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from roquet.broker.maintenance.queue_deletion import QueueDeletion
from roquet.common.runtime import Runtime
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store
from roquet.transport.slices import Slices
from tests.simulation.disk import Drive
from tests.storage import couples
from tests.storage.couples import Couple, queue_files
from tests.storage.records import bodies_in
from tests.storage.small_stores import Clock, opened, put

TOPICS: Final = ("T0", "T1", "T2")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A message in each topic."""
    store = opened(tmp_path, Clock())
    for topic in TOPICS:
        put(store, b"old", topic=topic)
    yield store
    store.abandon()


def deletion(store: Store) -> QueueDeletion:
    return QueueDeletion(store, Runtime(), asyncio.Lock(), Slices())


def test_a_topic_that_is_used_again_before_its_turn_stays(store: Store) -> None:
    asked = Counter[str]()

    def is_gone(topic: str) -> bool:
        """T1 until the moment when it would be deleted."""
        asked[topic] += 1
        return topic == "T0" or (topic == "T1" and asked[topic] <= 2)

    asyncio.run(deletion(store).of_topics(is_gone))

    assert [bodies_in(store, topic) for topic in TOPICS] == [[], [b"old"], [b"old"]]


def test_other_work_has_its_turn_between_two_topics(store: Store) -> None:
    left: list[int] = []

    async def delete() -> None:
        deleting = asyncio.create_task(deletion(store).of_topics(lambda _: True))
        while not deleting.done():
            left.append(sum(bool(store.max_offset(topic, 0)) for topic in TOPICS))
            await asyncio.sleep(0)
        await deleting

    asyncio.run(delete())

    assert set(left) >= {3, 2, 1}


def test_other_work_has_its_turn_between_two_queues_of_a_topic(store: Store) -> None:
    """One of them is sent to meanwhile, and goes with the topic."""
    count = 20
    for queue_id in range(count):
        put(store, b"old", topic="many", queue_id=queue_id)
    left: list[int] = []

    async def delete() -> None:
        deleting = asyncio.create_task(deletion(store).of_topic("many"))
        while not deleting.done():
            left.append(sum(queue.max_offset > 0 for queue in store.queues.of_topic("many")))
            if left[-1] == count - 1:
                put(store, b"late", topic="many", queue_id=count - 1)
            await asyncio.sleep(0)
        await deleting

    asyncio.run(delete())

    assert set(left) >= set(range(1, count + 1))
    assert not store.queues.of_topic("many")


def test_what_is_stored_in_a_topic_while_another_is_deleted_does_not_come_back(
    store: Store, tmp_path: Path
) -> None:
    async def delete() -> None:
        deleting = asyncio.create_task(deletion(store).of_topics(lambda topic: topic != "T2"))
        while store.max_offset("T0", 0):
            await asyncio.sleep(0)
        put(store, b"late", topic="T1")
        await deleting

    asyncio.run(delete())
    store.abandon()
    again = opened(tmp_path, Clock())

    assert again.was_crashed
    assert [bodies_in(again, topic) for topic in TOPICS] == [[], [], [b"old"]]
    again.abandon()


def test_expired_queues_are_looked_for_in_steps(store: Store) -> None:
    for queue_id in range(2000):
        store.queue("many", queue_id)
    assert sum(1 for _ in store.old_files.expired_queues(())) > 5


def assert_equal(queue: ConsumeQueue, copy: ConsumeQueue) -> None:
    assert queue.max_offset == copy.max_offset
    for offset in range(queue.min_offset, queue.max_offset):
        assert queue.entry(offset) == copy.entry(offset) != None, offset  # noqa: E711


@pytest.mark.parametrize("kept", range(3))
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_queue_that_cannot_be_deleted_whole_goes_on_where_its_copies_do(
    kept: int, *, is_killed: bool
) -> None:
    """Offsets that are given a second time would be those of other messages on slaves, which pass
    over the new ones.
    """
    couple = Couple()
    drive, couple.master = couple.drive, couple.copy
    couple.copy = couples.opened(Drive(random.Random(3)))
    couple.put(50)
    couple.replicate()
    drive.undeletable[queue_files(drive, "T")[kept]] = 0
    with pytest.raises(OSError, match="not permitted"):
        asyncio.run(deletion(couple.master).of_topic("T"))
    if is_killed:
        drive.unmount()
        couple.master = couples.opened(drive)
    couple.put(30)
    couple.replicate()
    assert_equal(couple.master.queue("T", 0), couple.copy.queue("T", 0))
    drive.undeletable.clear()
    asyncio.run(deletion(couple.master).of_topic("T"))
    assert not queue_files(drive, "T")
    couple.put(30)
    couple.replicate()
    assert couple.master.max_offset("T", 0) == 30
    assert_equal(couple.master.queue("T", 0), couple.copy.queue("T", 0))
