"""Any crash at any point, with any part of what was not synced lost or torn: what was promised is
there afterwards.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.common.steps import finished
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.record import decode
from roquet.storage.batch_records import BatchItem
from roquet.storage.config import StoreConfig
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.simulation.threads import DeadProcessError
from tests.storage.records import append_one, put_batch, records_in

CONFIG = StoreConfig(
    Path("/store"),
    [Path("/store/commitlog")],
    commit_log_file_size=16384,
    consume_queue_file_size=400,
    index_slots=32,
    index_entries=64,
)
LIVES = 6
HISTORIES = 30


class History:
    """What a store was given over several lives of its process, and what it must still have.

    Invariant: `stored` are the records that nobody has proven lost; those before `durable` may not be
    lost. What an append wrote before the power went may be there or not.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._config = replace(CONFIG, pooled=self._chance.random() < 0.2)
        self._clock_chance = random.Random(f"clock {seed}")
        self._drive = Drive(random.Random(seed + 1))
        self._now_ms = 1_700_000_000_000
        self.stored: dict[int, tuple[str, bytes]] = {}
        self.unfinished: list[tuple[str, bytes]] = []
        self.durable = 0
        self.deletions: list[Callable[[], None]] = []

    def live(self) -> None:
        """One life: recover, check, append, sync now and then, and end well or badly."""
        store = Store(self._config, lambda: self._now_ms, self._drive.mount())
        self.deletions = []
        self._maybe_lose_power(0.2, 8)
        try:
            store.open()
            self.check(store)
            self._maybe_lose_power(0.3, 30)
            for _ in range(self._chance.randrange(1500)):
                self._append(store)
                self._maybe_sync(store)
                self._maybe_clean(store)
            if self._chance.random() < 0.25:
                store.close()
        except DeadProcessError:
            return
        if self._chance.random() < 0.3:
            self._drive.unmount()
        else:
            self._drive.crash()

    def _maybe_lose_power(self, likely: float, changes_max: int) -> None:
        if self._chance.random() < likely:
            self._drive.lose_power_after(self._chance.randrange(changes_max))

    def _append(self, store: Store) -> None:
        chance = self._chance
        self._now_ms += chance.randrange(50)
        if self._clock_chance.random() < 0.01:
            self._now_ms += self._clock_chance.choice((-1, 1)) * self._clock_chance.randrange(
                3 * 3_600_000
            )
        topic, keys = f"t{chance.randrange(3)}", [b"k%d" % chance.randrange(5)]
        bodies = [
            chance.randbytes(chance.randrange(400)) for _ in range(chance.choice((1, 1, 1, 5)))
        ]
        self.unfinished = [(topic, body) for body in bodies]
        queue = store.queue(topic, 0)
        if len(bodies) == 1:
            places = [append_one(store, queue, bodies[0], b"", keys, born_ms=self._now_ms)]
        else:
            items = [BatchItem(0, body, b"", keys, 0) for body in bodies]
            places = put_batch(store, queue, items, self._now_ms)
        self.stored.update(zip(places, self.unfinished, strict=True))
        self.unfinished = []
        store.end_turn()

    def _maybe_sync(self, store: Store) -> None:
        draw, end = self._chance.random(), store.log.end
        if draw < 0.1:
            store.log.sync_work(end)()
        elif draw < 0.15:
            store.make_checkpoint()
        elif draw < 0.2:
            store.log.commit()
            return
        else:
            return
        store.log.synced(end)
        self.durable = end

    def _maybe_clean(self, store: Store) -> None:
        """Let old files go, maybe not all the way, as a process does that ends meanwhile."""
        if self._chance.random() < 0.02:
            expired = finished(store.old_files.forget_oldest(self._chance.randrange(3)))
            self.deletions += [*expired.log, *expired.queues, *expired.index]
            for _ in range(min(len(self.deletions), self._chance.randrange(20))):
                self.deletions.pop(0)()

    def check(self, store: Store) -> None:
        """Nothing durable is lost, and the queues say what the log says."""
        assert store.log.end >= self.durable
        self.stored = {at: value for at, value in self.stored.items() if at < store.log.end}
        found = {queue.topic: self._in_queue(store, queue.topic) for queue in store.queues}
        left = {at: value for at, value in self.stored.items() if at >= store.log.start}
        for at, (_, body) in left.items():
            record = store.log.record_at(at)
            assert record is not None
            assert decode(record, verify=True).body == body
        assert +Counter(found) == Counter(topic for topic, _ in left.values())

    def _in_queue(self, store: Store, topic: str) -> int:
        """How many messages a queue gives; each must say that it is this one."""
        offset = store.min_offset(topic, 0)
        first = offset
        while offset < store.max_offset(topic, 0):
            fetched = store.fetch(topic, 0, offset, 32, TagFilter())
            records = records_in(fetched)
            for expected, record in enumerate(records, offset):
                assert (record.topic, record.queue_offset) == (topic, expected)
                if (topic, record.body) in self.unfinished:
                    self.stored[record.physical_offset] = topic, record.body
                assert self.stored[record.physical_offset] == (topic, record.body)
            assert fetched.next_offset == offset + len(records)
            offset = fetched.next_offset
        return offset - first


@pytest.mark.parametrize("number", range(HISTORIES))
def test_a_store_keeps_its_promises_over_crashes(seed: int, number: int) -> None:
    live(seed * HISTORIES + number)


@pytest.mark.parametrize("number", [227, 256, 324, 694, 781, 1002])
def test_a_history_that_once_failed_keeps_them(number: int) -> None:
    live(number)


def live(number: int) -> None:
    history = History(number)
    for _ in range(LIVES):
        history.live()
