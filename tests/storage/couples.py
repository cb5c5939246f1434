"""A master and a copy of it on simulated drives, whose queues lose files."""

from __future__ import annotations

import random
from collections.abc import Collection
from itertools import count
from pathlib import Path

from roquet.storage.config import StoreConfig
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.records import append_one, bodies_in

LOG_FILE = 8192
PER_FILE = 20
CONFIG = StoreConfig(
    Path("/s"),
    [Path("/s/commitlog")],
    LOG_FILE,
    20 * PER_FILE,
    index_slots=20,
    index_entries=101,
    ext_file_size=None,
)


def opened(
    drive: Drive, config: StoreConfig = CONFIG, watched: Collection[ConsumeQueue] = ()
) -> Store:
    clock = count(1_700_000_000_000).__next__  # a look at a file serves a millisecond
    store = Store(config, clock, drive.mount(), watched=watched)
    store.open()
    return store


def put(store: Store, number: int, topic: str) -> int:
    at = append_one(store, store.queue(topic, 0), b"%d" % number)
    store.end_turn()
    return at


def queue_files(drive: Drive, topic: str) -> list[Path]:
    return sorted(
        path for path in drive.names.files if path.parent == Path(f"/s/consumequeue/{topic}/0")
    )


def numbers(store: Store, topic: str) -> list[int]:
    return [int(body) for body in bodies_in(store, topic)]


class Couple:
    """A master, and a copy of it that gets its bytes by `replicate`."""

    def __init__(self, config: StoreConfig = CONFIG) -> None:
        self.drive = Drive(random.Random(2))
        self.master = opened(Drive(random.Random(1)))
        self.watched: set[ConsumeQueue] = set()
        self.copy = opened(self.drive, config, self.watched)
        self.count = 0

    def put(self, count: int) -> None:
        for _ in range(count):
            put(self.master, self.count, "T")
            put(self.master, self.count, "other")
            self.count += 1

    def replicate(self) -> None:
        log = self.copy.log
        while log.end < self.master.log.end:
            log.replicate(log.end, self.master.log.read(log.end, LOG_FILE))
        self.copy.replicated()

    def assert_copied(self) -> None:
        for topic in "T", "other":
            assert numbers(self.copy, topic) == list(range(self.count))
