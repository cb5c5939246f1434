"""How soon an append notices that somebody has cut the file of a queue, and that it then writes
nothing.
"""

from __future__ import annotations

import errno
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.errors import UnreadableFile
from roquet.protocol.records.uniform import UniformBatch, checksums, view_rows
from roquet.storage.config import StoreConfig
from roquet.storage.new_record import NewRecord
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.records import append_one

MANY = 40
PER_FILE = 100


class Clocked:
    """A store, its drive, and the wall clock that it goes by."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.drive = Drive(random.Random(1))
        config = StoreConfig(
            Path("/store"),
            [Path("/store/commitlog")],
            commit_log_file_size=1 << 16,
            consume_queue_file_size=20 * PER_FILE,
            index_slots=10,
            index_entries=40,
        )
        self.store = Store(config, lambda: self.now_ms, self.drive.mount())
        self.store.open()

    def run(self, *queue_ids: int) -> None:
        """A run of messages, one for each of these queues, in a millisecond of its own."""
        count = len(queue_ids)
        bodies = view_rows(b"body" * count, count)
        messages = UniformBatch(
            0,
            0,
            0,
            bytes(8),
            [1] * count,
            b"body",
            b"",
            bodies,
            checksums([(b"body",)] * count),
            [],
            [],
            0,
        )
        self.store.writer.append_alike(
            messages, [self.store.queue("T", queue_id) for queue_id in queue_ids]
        )
        self.now_ms += 1

    def records(self, *queue_ids: int) -> None:
        """The same by `append_records`."""
        queues = [self.store.queue("T", queue_id) for queue_id in queue_ids]
        self.store.writer.append_records(
            [NewRecord(queue, b"body", b"", 0, 0, 1, bytes(8), bytes(8), 0) for queue in queues]
        )
        self.now_ms += 1

    def singles(self, *queue_ids: int) -> None:
        """The same, one by one."""
        for queue_id in queue_ids:
            append_one(self.store, self.store.queue("T", queue_id), b"body")
        self.now_ms += 1

    def cut(self, queue_id: int) -> None:
        self.drive.lost_from[Path(f"/store/consumequeue/T/{queue_id}/{0:020d}")] = 0


@pytest.mark.parametrize("road", [Clocked.run, Clocked.records, Clocked.singles])
def test_who_writes_to_few_queues_notices_a_cut_file_of_any(road: Callable[..., None]) -> None:
    for cut in range(4):
        clocked = Clocked()
        road(clocked, 0, 1, 2, 3)
        road(clocked, 0, 1, 2, 3)
        clocked.cut(cut)
        end = clocked.store.log.end
        with pytest.raises(UnreadableFile):
            road(clocked, cut, cut)
        assert clocked.store.log.end == end


@pytest.mark.parametrize("road", [Clocked.run, Clocked.singles])
def test_a_queue_is_looked_at_once_a_millisecond(road: Callable[..., None]) -> None:
    clocked = Clocked()
    road(clocked, 7)
    looks, look = 0, clocked.store.queue("T", 7)._require_file

    def counted() -> None:
        nonlocal looks
        looks += 1
        look()

    clocked.store.queue("T", 7)._require_file = counted
    for milliseconds in (1, 2):
        road(clocked, *[7] * 10)
        assert looks == milliseconds


def test_a_run_that_repeats_few_queues_looks_at_each_of_them() -> None:
    clocked = Clocked()
    clocked.run(0, 1, 2, 3)
    clocked.cut(3)
    end = clocked.store.log.end
    with pytest.raises(UnreadableFile):
        clocked.run(0, 1, 2, 0, 1, 2, 3, 3)
    assert clocked.store.log.end == end


@pytest.mark.parametrize("road", [Clocked.run, Clocked.records])
def test_of_many_queues_those_are_looked_at_that_were_not_of_late(
    road: Callable[..., None],
) -> None:
    clocked = Clocked()
    clocked.run(MANY)
    clocked.now_ms += 1000
    clocked.run(*range(MANY))
    clocked.cut(MANY)
    end = clocked.store.log.end
    with pytest.raises(UnreadableFile):
        road(clocked, *range(MANY + 1))
    assert clocked.store.log.end == end


@pytest.mark.parametrize("passed_ms", [1000, 86_400_000, -86_400_000])
def test_a_look_serves_for_a_second(passed_ms: int) -> None:
    """A clock that is set back makes it serve no longer."""
    clocked = Clocked()
    clocked.run(*range(MANY))
    clocked.now_ms += passed_ms
    clocked.run(*range(MANY))
    clocked.cut(MANY - 1)
    clocked.now_ms += passed_ms
    end = clocked.store.log.end
    with pytest.raises(UnreadableFile):
        clocked.run(*range(MANY))
    assert clocked.store.log.end == end


def test_a_queue_whose_file_was_found_cut_takes_nothing_although_nobody_can_note_that() -> None:
    """A drive that is full takes no note of lost queues; who wrote to the mapping all the same
    ended the process.
    """
    clocked = Clocked()
    clocked.run(0)
    clocked.run(0)
    clocked.cut(0)
    clocked.drive.refuse("create", errno.ENOSPC, math.inf)
    clocked.now_ms -= 1  # in the millisecond of the last look
    end = clocked.store.log.end
    for queues in ([0] * PER_FILE, [0]):
        with pytest.raises(UnreadableFile):
            clocked.run(*queues)
    assert clocked.store.log.end == end
