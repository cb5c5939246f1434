"""What recovery cuts off is erased so that it may end at any moment, and so that nothing of it
comes back.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from roquet.storage.files.disk import RealDisk
from roquet.storage.files.erasure import erase
from roquet.storage.queues.consume_queue import ENTRY_SIZE
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.simulation.threads import DeadProcessError
from tests.storage.records import append_one
from tests.storage.torn_logs import FILE, SECTOR, config, crashed, put, reopened

PAGE = 4096
ENTRIES_OF_PAGE = PAGE // ENTRY_SIZE
LOST_SECTOR = 3
ROOT = Path("/store")
LOG_FILE = Path("commitlog", f"{0:020d}")
QUEUE_FILE = Path("consumequeue", "T", "0", f"{0:020d}")


class KilledError(BaseException):
    """Nothing more of this process happens."""


def opened(root: Path) -> Store:
    store = Store(config(root), lambda: 1_700_000_000_000)
    try:
        store.open()
    except BaseException:
        store.abandon()
        raise
    return store


def let_it_end_before(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Let so many calls that change a file happen; the process is killed before the next one."""
    left = calls

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any) -> Any:
            nonlocal left
            if not left:
                raise KilledError
            left -= 1
            return call(*args)

        return counting

    for name in ("ftruncate", "pwrite"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))


def test_a_start_that_is_killed_while_it_erases_leaves_less_to_erase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No gap comes in front of what is left: a record behind it could be taken for one of the log,
    or an entry for one of its queue.
    """
    crashed(tmp_path / "other", LOST_SECTOR)
    whole = (tmp_path / "other" / LOG_FILE).read_bytes()
    kept = reopened(tmp_path / "other")
    lengths: set[int] = set()
    for calls in range(40):
        root = tmp_path / str(calls)
        crashed(root, LOST_SECTOR)
        with monkeypatch.context() as patched, suppress(KilledError):
            let_it_end_before(patched, calls)
            opened(root).abandon()
            assert len(lengths) > 2, "there was more to erase than one page"
            return
        left = (root / LOG_FILE).read_bytes()
        data = left.rstrip(b"\0")
        assert len(left) == FILE
        assert whole.startswith(data)
        assert reopened(root) == kept
        if left != whole:
            lengths.add(len(data))
            assert len(list((root / "lost").iterdir())) == 1, "it is saved once"
    raise AssertionError("it never came to its end")


def test_only_pages_that_hold_something_are_written(tmp_path: Path) -> None:
    """A page that was never written may have no room on the drive."""
    path = tmp_path / "a"
    file = RealDisk().open(path, FILE)
    file.write(100, b"kept")
    file.write(2 * PAGE + 5, b"erased")
    blocks = path.stat().st_blocks
    erase(file, 103)
    file.close()
    assert path.read_bytes() == (bytes(100) + b"kep").ljust(FILE, b"\0")
    assert path.stat().st_blocks == blocks


def store_on(drive: Drive) -> Store:
    store = Store(config(ROOT), lambda: 1_700_000_000_000, drive.mount())
    store.open()
    return store


def kill_at_a_start(drive: Drive, changes: int) -> None:
    """A process opens the store, and is killed before the next change of its drive after so
    many.
    """
    drive.unmount()
    drive.on_power_loss = drive.unmount
    drive.lose_power_after(changes)
    with suppress(DeadProcessError):
        store_on(drive)
    drive.lose_power_after(1 << 30)
    drive.unmount()


@pytest.mark.parametrize("changes", range(6))
def test_entries_that_a_killed_start_has_erased_do_not_come_back(changes: int) -> None:
    """Its successor finds zeros, which may not be on the drive."""
    drive = Drive(random.Random(0))
    store = store_on(drive)
    put(store, 0, 10)
    store.make_checkpoint()
    put(store, 10, ENTRIES_OF_PAGE)
    queue_file = drive.names.files[ROOT / QUEUE_FILE]
    queue_file.durable[:] = queue_file.cached[:]
    drive.unmount()
    drive.names.files[ROOT / LOG_FILE].forget_unsynced(random.Random(0), 0.0)
    kill_at_a_start(drive, changes)
    store = store_on(drive)
    for _ in range(10):
        append_one(store, store.queue("U", 0), bytes(200))
    store.make_checkpoint()
    assert not any(queue_file.durable[10 * ENTRY_SIZE :])
    drive.unmount()
    queue_file.forget_unsynced(random.Random(0), 0.0)
    assert store_on(drive).max_offset("T", 0) == 10


@pytest.mark.parametrize("changes", range(6))
def test_bytes_of_the_log_that_a_killed_start_has_erased_do_not_come_back(changes: int) -> None:
    drive = Drive(random.Random(0))
    store = store_on(drive)
    put(store, 0, 10)
    store.make_checkpoint()
    end = store.log.end
    put(store, 10, 10)
    log_file = drive.names.files[ROOT / LOG_FILE]
    lost = end - end % SECTOR + SECTOR
    log_file.cached[lost : lost + SECTOR] = bytes(SECTOR)
    log_file.durable[:] = log_file.cached[:]
    kill_at_a_start(drive, changes)
    assert store_on(drive).log.end == end
    assert not any(log_file.durable[end:])
