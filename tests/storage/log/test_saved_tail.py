"""What recovery cuts off is saved first, in a form that `roquet store dump` reads."""

from __future__ import annotations

import errno
import json
import logging
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from roquet.cli.main import main
from roquet.storage.log import saved_tail
from roquet.storage.store import Store
from tests.simulation.disk import Drive, MountedDisk, MountedFile
from tests.storage.torn_logs import SECTOR, config, crashed, numbers, put, reopened, tear


def dumped(folder: Path) -> list[int]:
    """The numbers of the messages that `roquet store dump` prints."""
    result = CliRunner().invoke(main, ["store", "dump", str(folder)])
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return [int(line["body"].rstrip(".")) for line in lines]


def test_what_stood_behind_the_cut_can_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crashed(tmp_path, lost=3)
    caplog.set_level(logging.WARNING)
    kept = reopened(tmp_path)
    (folder,) = (tmp_path / "lost").iterdir()
    saved = dumped(folder)
    assert kept == list(range(len(kept)))
    assert saved == list(range(saved[0], 100))
    assert saved[0] - kept[-1] in (3, 4)
    (line,) = (record.getMessage() for record in caplog.records)
    assert f"whole_records={len(saved)}" in line
    assert f"physical_offset={int(folder.name)}" in line
    assert f"roquet store dump {folder}" in line


def test_it_reaches_over_the_files_of_the_log_and_takes_no_more_room_than_it_has_bytes(
    tmp_path: Path,
) -> None:
    crashed(tmp_path, lost=30, count=200)
    before = {path.name: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()}
    reopened(tmp_path)
    (folder,) = (tmp_path / "lost").iterdir()
    for path in (folder / "commitlog").iterdir():
        start = max(0, int(folder.name) - int(path.name))
        assert path.read_bytes() == bytes(start) + before[path.name][start:]
    assert len(before) == len(list((folder / "commitlog").iterdir())) > 2


def test_a_second_crash_at_the_same_place_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    crashed(tmp_path, lost=3)
    kept = reopened(tmp_path)
    store = Store(config(tmp_path), lambda: 1_700_000_000_000)
    store.open()
    put(store, 500, 20)
    store.abandon()
    tear(tmp_path, 3)
    assert reopened(tmp_path) == kept
    folders = sorted((tmp_path / "lost").iterdir())
    assert [int(folder.name[:20]) for folder in folders] == [int(folders[0].name)] * 2
    assert dumped(folders[0])[-1] == 99
    assert dumped(folders[1])[-1] == 519


def test_a_start_that_ends_before_the_cut_is_done_saves_it_once(tmp_path: Path) -> None:
    """Whoever starts a broker anew for as long as it fails does not fill the drive with copies."""
    crashed(tmp_path, lost=30, count=200)
    before = {path: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()}
    saved: set[tuple[Path, bytes]] = set()
    for _ in range(3):
        reopened(tmp_path)
        for path, data in before.items():
            path.write_bytes(data)
        saved |= {
            path: path.read_bytes() for path in (tmp_path / "lost").rglob("0*") if path.is_file()
        }.items()
    (folder,) = (tmp_path / "lost").iterdir()
    assert {path.parent.parent for path, _ in saved} == {folder}
    assert len(saved) == len(before)


def test_a_folder_that_lacks_a_byte_of_it_does_not_count(tmp_path: Path) -> None:
    crashed(tmp_path, lost=3)
    before = {path: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()}
    reopened(tmp_path)
    (folder,) = (tmp_path / "lost").iterdir()
    (path,) = sorted((folder / "commitlog").iterdir())[-1:]
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0"))
    path.write_bytes(whole[: end - 1] + bytes(len(whole) - end + 1))
    for changed, data in before.items():
        changed.write_bytes(data)
    reopened(tmp_path)
    assert len(list((tmp_path / "lost").iterdir())) == 2


def test_what_is_cut_off_after_a_clean_stop_never_comes_back(tmp_path: Path) -> None:
    """Apache's broker leaves what its recovery cuts off behind the log's end. A new record that
    takes the place of the first of them must not lead to the others.
    """
    store = Store(config(tmp_path), lambda: 1_700_000_000_000)
    store.open()
    put(store, 10, 20)
    queue = store.queue("T", 0)
    cut = queue.entry(10)
    assert cut is not None
    store.close()
    log, entries = (
        tmp_path / "commitlog" / f"{0:020d}",
        tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}",
    )
    data = log.read_bytes()
    log.write_bytes(data[: cut[0]] + bytes(SECTOR // 8) + data[cut[0] + SECTOR // 8 :])
    entries.write_bytes(entries.read_bytes()[: 10 * 20].ljust(20 * 1000, b"\0"))
    (tmp_path / "checkpoint").unlink()
    for _ in range(3):
        store = Store(config(tmp_path), lambda: 1_700_000_000_000)
        store.open()
        assert numbers(store) == list(range(10, 20))
        store.close()
    assert len(list((tmp_path / "lost").iterdir())) == 1
    store = Store(config(tmp_path), lambda: 1_700_000_000_000)
    store.open()
    put(store, 90, 1)
    store.abandon()
    assert reopened(tmp_path) == [*range(10, 20), 90]


def test_half_a_record_is_saved_too_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_tail, "WITHOUT_RECORDS_MAX", 3)
    store = Store(config(tmp_path), lambda: 1_700_000_000_000)
    store.open()
    for number in range(6):
        put(store, number, 1)
        end = store.log.end
        put(store, 1000, 1)
        store.abandon()
        path = tmp_path / "commitlog" / f"{0:020d}"
        data = bytearray(path.read_bytes())
        data[end + 100 :] = bytes(len(data) - end - 100)
        path.write_bytes(data)
        store = Store(config(tmp_path), lambda: 1_700_000_000_000)
        store.open()
    assert numbers(store) == list(range(6))
    store.abandon()
    assert len(list((tmp_path / "lost").iterdir())) == 3


def test_nothing_is_saved_where_only_zeros_stand(tmp_path: Path) -> None:
    store = Store(config(tmp_path), lambda: 1_700_000_000_000)
    store.open()
    put(store, 0, 10)
    store.abandon()
    assert reopened(tmp_path) == list(range(10))
    assert not (tmp_path / "lost").exists()


class FullForTails(MountedDisk):
    """A drive without room for one more file."""

    def open(self, path: Path, size: int) -> MountedFile:
        if "lost" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return super().open(path, size)


@pytest.mark.parametrize("used", [0.5, 0.96])
def test_a_drive_without_room_is_told_of_and_the_broker_starts(
    used: float, caplog: pytest.LogCaptureFixture
) -> None:
    drive = Drive(random.Random(1))
    store = Store(config(Path("/s")), lambda: 1_700_000_000_000, drive.mount())
    store.open()
    put(store, 0, 20)
    file = drive.names.files[Path("/s/commitlog") / f"{0:020d}"]
    file.cached[3 * SECTOR : 4 * SECTOR] = bytes(SECTOR)
    drive.unmount()
    drive.used_ratio = used
    caplog.set_level(logging.WARNING)
    store = Store(config(Path("/s")), lambda: 1_700_000_000_000, FullForTails(drive))
    store.open()
    assert numbers(store) == [0, 1, 2, 3, 4]
    (line,) = (record.getMessage() for record in caplog.records)
    assert "commit log tail truncated, not saved:" in line
    assert ("No space" if used < 0.9 else "is used to 96%") in line


class FailsForTails(MountedDisk):
    """A drive that does not take what is saved, and says so when that is synced."""

    error = errno.EIO

    def open(self, path: Path, size: int) -> MountedFile:
        if "lost" in path.parts:
            self.drive("open").refuse("sync", self.error)
        return super().open(path, size)


class FullForSyncsOfTails(FailsForTails):
    """Some file systems find room for what was written when it is synced only."""

    error = errno.ENOSPC


@pytest.fixture
def torn_drive() -> Drive:
    """Of 200 messages the sixth and seventh never reached it."""
    drive = Drive(random.Random(1))
    store = Store(config(Path("/s")), lambda: 1_700_000_000_000, drive.mount())
    store.open()
    put(store, 0, 200)
    first = drive.names.files[Path("/s/commitlog") / f"{0:020d}"]
    first.cached[3 * SECTOR : 4 * SECTOR] = bytes(SECTOR)
    drive.unmount()
    return drive


def test_a_copy_that_finds_no_room_when_it_is_synced_says_nothing_of_the_log(
    torn_drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a copy that was not made, as if its writes had found no room; the log's own syncs go
    on.
    """
    store = Store(config(Path("/s")), lambda: 1_700_000_000_000, FullForSyncsOfTails(torn_drive))
    store.open()
    assert store.failure is None
    assert "reason=[Errno 28]" in caplog.text
    assert not [path for path in torn_drive.names.files if "lost" in path.parts]
    put(store, 5, 3)
    store.log.sync_work(store.log.end)()
    store.log.synced(store.log.end)
    assert (numbers(store), store.log.flushed_to) == ([*range(8)], store.log.end)


def test_a_start_on_a_drive_that_fails_cuts_nothing_off(
    torn_drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    """What could not be saved is there for the next start, on another drive maybe."""
    drive = torn_drive
    before = {
        path: bytes(file.cached)
        for path, file in drive.names.files.items()
        if path.parent.name == "commitlog"
    }
    store = Store(config(Path("/s")), lambda: 1_700_000_000_000, FailsForTails(drive))
    with pytest.raises(OSError, match="no file of the store is synced any more"):
        store.open()
    store.abandon()
    drive.unmount()
    assert "not saved" in caplog.text
    left = {
        path: bytes(drive.names.files[path].cached) for path in before if path in drive.names.files
    }
    assert left == before
    assert len(before) > 2
