"""A log that diverged from its master's: the place is found, and the store is truncated there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.broker.ha.rejoin import common_end
from roquet.common.steps import finished
from roquet.errors import StoreError
from roquet.protocol.bodies.ha_status import LogRange
from roquet.storage.config import StoreConfig
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.records import append_one, found_by_key

LOG_FILE = 4096
CONFIG = StoreConfig(
    Path("/store"), [Path("/store/commitlog")], LOG_FILE, 20 * 10, index_slots=10, index_entries=41
)
NUMBERS = range(8)


class Written:
    """A store in memory, and what was put into it."""

    def __init__(self) -> None:
        self.drive = Drive(random.Random(1))
        self.store = Store(CONFIG, lambda: 1_700_000_000_000, self.drive.mount())
        self.store.open()
        self.keys: list[tuple[str, int]] = []

    def put(self, chance: random.Random, count: int, owner: str) -> None:
        for _ in range(count):
            key = f"{owner}-{len(self.keys)}"
            queue = self.store.queue(chance.choice(("T", "U")), chance.randrange(2))
            body = key.encode() + bytes(chance.randrange(300))
            at = append_one(self.store, queue, body, b"KEYS\x01" + key.encode(), [key.encode()])
            self.keys.append((key, at))
            if chance.random() < 0.3:
                self.store.end_turn()
        self.store.end_turn()

    def found(self) -> list[str]:
        """The keys that the index leads to."""
        return [
            key
            for key, _ in self.keys
            if any(
                found_by_key(self.store, topic, key, 5, 0, 1 << 62).records for topic in ("T", "U")
            )
        ]

    def queues(self) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
        return {
            (queue.topic, queue.queue_id): [
                entry
                for offset in range(queue.min_offset, queue.max_offset)
                if (entry := queue.entry(offset)) is not None
            ]
            for queue in self.store.queues
            if queue.max_offset
        }

    def close(self) -> None:
        self.store.close()
        self.drive.unmount()


@pytest.fixture(params=NUMBERS)
def chance(seed: int, request: pytest.FixtureRequest) -> random.Random:
    return random.Random(f"{seed} {request.param}")


@pytest.fixture
def couple(chance: random.Random) -> Iterator[tuple[Written, Written]]:
    """A former master and the one that took its place, equal for a while."""
    former, master = Written(), Written()
    begin = chance.choice((1, 5, 40, 100))
    same = chance.randrange(1 << 30)
    for each in (former, master):
        each.put(random.Random(same), begin, "both")
    former.put(chance, chance.choice((0, 1, 30, 60)), "former")
    master.put(chance, chance.choice((0, 1, 30, 60)), "master")
    yield former, master
    former.close()
    master.close()


def shared(former: Written, master: Written) -> int:
    """The end of the last record that both have, found the slow way."""
    end = 0
    for at, data in former.store.log.walk(former.store.log.start):
        if at < master.store.log.start:
            continue
        if master.store.log.record_at(at) != bytes(data):
            break
        end = at + len(data)
    return end


async def divergence(former: Written, master: Written) -> int:
    async def is_same(physical: int) -> bool:
        return master.store.log.record_at(physical) == former.store.log.record_at(physical)

    log = master.store.log
    return await common_end(former.store.log, LogRange(log.start, log.end), is_same)


async def test_the_place_is_where_the_last_record_ends_that_both_have(
    couple: tuple[Written, Written],
) -> None:
    former, master = couple
    assert await divergence(former, master) == shared(former, master) > 0


async def test_a_master_that_gave_up_its_first_files_is_compared_from_there(
    couple: tuple[Written, Written],
) -> None:
    former, master = couple
    if len(master.store.log.file_starts) < 3:
        return
    master.store.make_checkpoint()
    master.store.log.synced(master.store.log.end)
    finished(master.store.old_files.forget_oldest(1))
    assert master.store.log.start > 0
    expected = shared(former, master)
    if expected:
        assert await divergence(former, master) == expected
    else:
        with pytest.raises(StoreError, match="delete the store, the broker copies it from"):
            await divergence(former, master)


async def test_a_cut_store_is_what_it_was_when_both_were_equal(
    couple: tuple[Written, Written],
) -> None:
    former, master = couple
    at = await divergence(former, master)
    former.store.truncate(at)
    kept = [key for key, place in former.keys if place < at]
    assert (former.store.log.end, former.found()) == (at, kept)
    assert all(entry[0] < at for entries in former.queues().values() for entry in entries)
    assert sum(map(len, former.queues().values())) == len(kept)
    queues = former.queues()

    former.drive.crash()
    former.store = Store(CONFIG, lambda: 1_700_000_000_000, former.drive.mount())
    former.store.open()
    assert (former.store.log.end, former.queues(), former.found()) == (at, queues, kept)
    while (end := former.store.log.end) < master.store.log.end:
        former.store.log.replicate(end, bytes(master.store.log.read(end, LOG_FILE)))
        former.store.replicated()
    former.store.end_turn()
    former.keys = master.keys
    assert (former.queues(), former.found()) == (master.queues(), master.found())


async def test_logs_without_anything_in_common_are_told_apart() -> None:
    former, master = Written(), Written()
    former.put(random.Random(1), 5, "former")
    master.put(random.Random(2), 5, "master")
    with pytest.raises(StoreError, match="no record in common"):
        await divergence(former, master)
    former.close()
    master.close()
