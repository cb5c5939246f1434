"""What a store makes of its files after a crash, and how much of them it has to read for that."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.common.steps import finished
from roquet.protocol.records.record import decode
from roquet.storage.checkpoint import Checkpoint
from roquet.storage.config import StoreConfig
from roquet.storage.files.disk import RealDisk
from roquet.storage.store import Store
from tests.storage.deletions import delete_topic
from tests.storage.records import append_one, bodies_in, found_by_key

LOG_FILE: int = 65_536


class Lives:
    """One store directory, opened again and again; each message has its number as body and a
    key.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ms = 1_700_000_000_000
        self.stored = 0

    def open(self) -> Store:
        config = StoreConfig(
            self.folder,
            [self.folder / "commitlog"],
            LOG_FILE,
            20 * 100,
            index_slots=50,
            index_entries=200,
        )
        store = Store(config, lambda: self.now_ms)
        store.open()
        return store

    def put(self, store: Store, count: int) -> None:
        for _ in range(count):
            self.now_ms += 10
            key = b"key-%d" % self.stored
            queue = store.queue(f"T{self.stored % 3}", 0)
            append_one(store, queue, b"%d" % self.stored, b"KEYS\x01" + key, [key])
            self.stored += 1

    def assert_complete(self, store: Store) -> None:
        """Every message is in its queue, and found by its key, once."""
        for topic in range(3):
            expected = [b"%d" % number for number in range(topic, self.stored, 3)]
            assert bodies_in(store, f"T{topic}") == expected
        for number in range(self.stored):
            hits = found_by_key(store, f"T{number % 3}", f"key-{number}", 32, 0, 1 << 62)
            assert [decode(record).body for record in hits.records] == [b"%d" % number]


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path)


def test_what_a_checkpoint_covers_is_not_read_again(lives: Lives) -> None:
    store = lives.open()
    lives.put(store, 1000)
    store.make_checkpoint()
    lives.put(store, 50)
    end = store.log.end
    store.abandon()
    path = lives.folder / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[4:8] = b"gone"
    path.write_bytes(data)
    store = lives.open()
    assert store.log.end == end
    assert [store.max_offset(f"T{topic}", 0) for topic in range(3)] == [350, 350, 350]
    store.abandon()


@pytest.mark.parametrize("index_files_before", [0, 1, 3])
def test_after_a_crash_all_are_there_once_whatever_the_index_had(
    lives: Lives, index_files_before: int
) -> None:
    store = lives.open()
    lives.put(store, 190 * index_files_before)
    store.make_checkpoint()
    for _ in range(3):
        lives.put(store, 77)
        finished(store.flush_index())
        store.abandon()
        store = lives.open()
        lives.assert_complete(store)
    store.close()
    store = lives.open()
    lives.assert_complete(store)
    store.abandon()


def test_a_clock_that_is_set_back_between_two_index_files_costs_no_key(lives: Lives) -> None:
    """Recovery, retention and Apache's broker know by their names which file is newer."""
    store = lives.open()
    lives.put(store, 150)
    finished(store.flush_index())
    lives.now_ms -= 3_600_000
    lives.put(store, 300)
    store.make_checkpoint()
    lives.put(store, 10)
    store.abandon()
    store = lives.open()
    assert len(store.index.files if store.index is not None else ()) > 1
    lives.assert_complete(store)
    store.abandon()


def test_index_files_that_are_lost_are_made_again_from_the_log(lives: Lives) -> None:
    store = lives.open()
    lives.put(store, 500)
    store.make_checkpoint()
    store.abandon()
    shutil.rmtree(lives.folder / "index")
    (lives.folder / "checkpoint").unlink()
    store = lives.open()
    lives.assert_complete(store)
    store.abandon()


def test_the_mark_of_another_log_does_not_count(lives: Lives) -> None:
    store = lives.open()
    lives.put(store, 300)
    store.close()
    for name in ("commitlog", "consumequeue", "index"):
        shutil.rmtree(lives.folder / name)
    lives.stored = 0
    lives.now_ms += 1
    store = lives.open()
    lives.put(store, 350)
    store.abandon()
    store = lives.open()
    lives.assert_complete(store)
    store.abandon()


def test_a_checkpoint_keeps_its_mark_when_apache_writes_the_times(
    tmp_path: Path, lives: Lives
) -> None:
    store = lives.open()
    lives.put(store, 30)
    store.close()
    path = tmp_path / "checkpoint"
    data = path.read_bytes()
    path.write_bytes(bytes(8) * 3 + data[24:])
    checkpoint = Checkpoint(RealDisk(), path)
    checkpoint.load()
    assert (checkpoint.log_ms, checkpoint.queues_ms, checkpoint.index_ms) == (0, 0, 0)
    assert checkpoint.mark is not None
    assert checkpoint.mark.position == store.log.end
    path.write_bytes(data[:70] + bytes([data[70] ^ 1]) + data[71:])
    damaged = Checkpoint(RealDisk(), path)
    damaged.load()
    assert damaged.mark is None
    assert damaged.log_ms == lives.now_ms


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("lost", ["T1", "T1/0", ""])
def test_queues_that_are_lost_are_made_again_from_the_log(
    lives: Lives, lost: str, *, is_clean: bool
) -> None:
    store = lives.open()
    lives.put(store, 500)
    store.make_checkpoint()
    store.close() if is_clean else store.abandon()
    shutil.rmtree(lives.folder / "consumequeue" / lost)
    store = lives.open()
    lives.assert_complete(store)
    store.abandon()


def test_a_deleted_topic_is_not_taken_for_a_lost_one(lives: Lives) -> None:
    store = lives.open()
    lives.put(store, 500)
    store.make_checkpoint()
    delete_topic(store, "T1")
    store.abandon()
    store = lives.open()
    assert [store.max_offset(f"T{topic}", 0) for topic in range(3)] == [167, 0, 166]
    store.abandon()


def lines_of(caplog: pytest.LogCaptureFixture, lives: Lives, *, kill: bool = True) -> list[str]:
    """What a start logs of recovery and the checkpoint."""
    caplog.clear()
    with caplog.at_level(logging.INFO):
        store = lives.open()
    lives.assert_complete(store)
    if kill:
        store.abandon()
    else:
        store.close()
    return [record.getMessage() for record in caplog.records]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "short": lambda data: data[:20],
    "mark": lambda data: data[:70] + b"x" + data[71:],
    "entries": lambda data: data[:130] + b"x" + data[131:],
}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_checkpoint_that_cannot_be_read_is_told_of_once(
    caplog: pytest.LogCaptureFixture, lives: Lives, damage: str, *, is_clean: bool
) -> None:
    store = lives.open()
    lives.put(store, 50)
    store.close()
    if not is_clean:
        (lives.folder / "abort").touch()
    path = lives.folder / "checkpoint"
    path.write_bytes(DAMAGES[damage](path.read_bytes()))

    told = [line for line in lines_of(caplog, lives, kill=False) if "checkpoint" in line]

    assert len(told) == 1
    assert re.match(
        r"checkpoint cannot be read, more of the log is checked: checked_from=\d+ reason=", told[0]
    )
    assert not [line for line in lines_of(caplog, lives) if "checkpoint" in line]


@pytest.mark.parametrize("kind", ["Apache's", "an earlier version's", "a rebuild's", "none"])
def test_a_sound_checkpoint_of_anybody_is_not_told_of(
    caplog: pytest.LogCaptureFixture, lives: Lives, kind: str
) -> None:
    store = lives.open()
    lives.put(store, 50)
    store.close()
    path = lives.folder / "checkpoint"
    data = path.read_bytes()
    if kind == "a rebuild's":
        checkpoint = Checkpoint(RealDisk(), path)
        checkpoint.load()
        assert checkpoint.mark is not None
        checkpoint.mark = replace(checkpoint.mark, entry_count=-1)
        checkpoint.save()
    elif kind == "none":
        path.unlink()
    else:
        path.write_bytes(data[: 24 if kind == "Apache's" else 124].ljust(4096, b"\0"))

    assert not [line for line in lines_of(caplog, lives) if "checkpoint" in line]


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_ordinary_end_of_a_log_does_not_read_as_damage(
    caplog: pytest.LogCaptureFixture, lives: Lives, *, is_clean: bool
) -> None:
    store = lives.open()
    lives.put(store, 50)
    end = store.log.end
    if is_clean:
        store.close()
    else:
        store.abandon()

    lines = lines_of(caplog, lives)

    assert f"commit log ends: physical_offset={end}" in lines
    assert not [line for line in lines if "valid" in line]


@pytest.mark.parametrize("place", [0, 9000])
def test_other_bytes_behind_the_log_s_end_are_told_of(
    caplog: pytest.LogCaptureFixture, lives: Lives, place: int
) -> None:
    store = lives.open()
    lives.put(store, 50)
    end = store.log.end
    store.abandon()
    with (lives.folder / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(end + place)
        file.write(b"left over")

    lines = lines_of(caplog, lives)

    assert [
        line
        for line in lines
        if line.startswith(f"commit log ends before invalid bytes: physical_offset={end} reason=")
    ]
    assert f"commit log ends: physical_offset={end}" not in lines
