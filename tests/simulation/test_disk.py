"""A drive forgets what it may forget, and nothing else."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.errors import StoreError
from roquet.storage.disk import Disk
from tests.simulation.disk import PAGE_SIZE, SECTOR_SIZE, DeadProcessError, Drive, DriveSpeed, MountedDisk
from tests.simulation.recorder import A
from tests.simulation.simulation import Simulation

FOLDER = Path("/store/commitlog")
PATH = FOLDER / "00000000000000000000"
PAGES = 8
SEEDS = range(200)

positions = st.integers(0, PAGES * PAGE_SIZE - 1)
sizes = st.integers(1, 3 * PAGE_SIZE)
steps = st.lists(st.tuples(st.sampled_from(["write", "sync"]), positions, sizes), max_size=30)


def _torn_pages(old: bytes, new: bytes) -> set[bytes]:
    """What a crash may make of a page: one of the two, or one up to the beginning of a sector and then the other."""
    cuts = range(0, PAGE_SIZE + 1, SECTOR_SIZE)
    return {first[:cut] + second[cut:] for cut in cuts for first, second in ((old, new), (new, old))}


@settings(deadline=None)
@given(seed=st.integers(0, 1_000_000), steps=steps)
def test_a_crash_forgets_pages_that_were_not_synced_and_only_those(
    seed: int, steps: list[tuple[str, int, int]]
) -> None:
    chance = random.Random(seed)
    drive = Drive(chance)
    file = drive.mount().open(PATH, PAGES * PAGE_SIZE)
    file.sync(0, 1)
    durable = bytearray(file.size)
    for kind, start, size in steps:
        end = min(start + size, file.size)
        if kind == "write":
            file.buffer[start:end] = chance.randbytes(end - start)
        else:
            file.sync(start, end)
            pages = slice(start - start % PAGE_SIZE, end + -end % PAGE_SIZE)
            durable[pages] = file.buffer[pages]
    written = bytes(file.buffer)
    drive.crash()
    survived = bytes(drive.mount().open(PATH, file.size).buffer)
    for at in range(0, len(written), PAGE_SIZE):
        page = slice(at, at + PAGE_SIZE)
        assert survived[page] in _torn_pages(bytes(durable[page]), written[page])


def test_of_unsynced_pages_some_survive_some_are_lost_and_some_are_torn() -> None:
    found: set[str] = set()
    for seed in SEEDS:
        drive = Drive(random.Random(seed))
        file = drive.mount().open(PATH, PAGES * PAGE_SIZE)
        file.sync(0, 1)
        file.buffer[:] = b"n" * file.size
        drive.crash()
        survived = drive.mount().open(PATH, file.size).buffer
        for at in range(0, file.size, PAGE_SIZE):
            found.add("".join(sorted({chr(byte) for byte in survived[at : at + PAGE_SIZE]})))
    assert found == {"n", "\0", "\0n"}


def _after_crash(seed: int, work: Callable[[MountedDisk], None]) -> MountedDisk:
    drive = Drive(random.Random(seed))
    work(drive.mount())
    drive.crash()
    return drive.mount()


def test_a_new_file_that_was_never_synced_may_be_gone_or_empty() -> None:
    def make(disk: MountedDisk) -> None:
        disk.open(PATH, PAGE_SIZE).buffer[:1] = b"x"

    assert {tuple(_after_crash(seed, make).names(FOLDER)) for seed in SEEDS} == {
        (),
        ((PATH.name, 0),),
        ((PATH.name, PAGE_SIZE),),
    }


def test_a_synced_file_stays_and_so_does_what_was_done_to_names_before_it() -> None:
    def make(disk: MountedDisk) -> None:
        disk.open(FOLDER / "a", PAGE_SIZE)
        disk.delete(FOLDER / "a")
        disk.open(FOLDER / "b", PAGE_SIZE)
        disk.open(FOLDER / "c", PAGE_SIZE).sync(0, 1)

    for seed in SEEDS:
        assert _after_crash(seed, make).names(FOLDER) == [("b", PAGE_SIZE), ("c", PAGE_SIZE)]


def test_a_deleted_file_stays_deleted() -> None:
    def delete_two(disk: MountedDisk) -> None:
        for name in ("a", "b", "c"):
            disk.open(FOLDER / name, PAGE_SIZE).sync(0, 1)
        disk.delete(FOLDER / "a")
        disk.delete(FOLDER / "b")

    for seed in SEEDS:
        assert _after_crash(seed, delete_two).names(FOLDER) == [("c", PAGE_SIZE)]


def test_a_replaced_file_is_durable() -> None:
    def replace(disk: MountedDisk) -> None:
        disk.replace(PATH, b"old")
        disk.replace(PATH, b"new")

    assert {_after_crash(seed, replace).read(PATH) for seed in SEEDS} == {b"new"}


def test_a_power_loss_can_be_put_before_any_change() -> None:
    found: list[bytes | None] = []
    for changes in range(4):
        drive = Drive(random.Random(0))
        disk = drive.mount()
        drive.lose_power_after(changes)
        for number in range(changes):
            disk.replace(PATH, b"%d" % number)
        with pytest.raises(DeadProcessError):
            disk.replace(PATH, b"too late")
        found.append(drive.mount().read(PATH))
    assert found == [None, b"0", b"1", b"2"]


def test_a_power_loss_inside_blocking_work_takes_the_host() -> None:
    async def save() -> None:
        await asyncio.to_thread(host.disk.replace, PATH, b"first")
        await asyncio.to_thread(host.disk.replace, PATH, b"second")

    with Simulation(1) as sim:
        host = sim.host(A)
        saving = host.start(save)
        host.drive.lose_power_after(1)
        sim.run_until(saving.done, within_s=5)
        assert saving.cancelled()
        assert not host.is_running
        host.boot()
        assert host.disk.read(PATH) == b"first"


def test_a_killed_process_loses_no_bytes_but_its_grip_on_them() -> None:
    drive = Drive(random.Random(0))
    disk = drive.mount()
    file = disk.open(PATH, PAGE_SIZE)
    file.buffer[:5] = b"alive"
    drive.unmount()
    file.buffer[:5] = b"ghost"
    with pytest.raises(DeadProcessError):
        file.sync(0, 5)
    with pytest.raises(DeadProcessError):
        disk.delete(PATH)
    assert drive.mount().open(PATH, PAGE_SIZE).buffer[:5] == b"alive"


def test_two_openings_of_a_file_share_its_bytes() -> None:
    disk = Drive(random.Random(0)).mount()
    first, second = disk.open(PATH, PAGE_SIZE), disk.open(PATH, PAGE_SIZE)
    first.buffer[10:12] = b"hi"
    assert second.buffer[10:12] == b"hi"
    first.close()
    with pytest.raises(ValueError, match="closed"):
        _ = first.buffer


@pytest.mark.parametrize(
    ("trouble", "operation"),
    [
        (errno.ENOSPC, lambda disk: disk.open(FOLDER / "new", PAGE_SIZE)),
        (errno.ENOSPC, lambda disk: disk.replace(PATH, b"")),
        (errno.EROFS, lambda disk: disk.open(PATH, PAGE_SIZE)),
        (errno.EROFS, lambda disk: disk.delete(PATH)),
        (errno.EROFS, lambda disk: disk.lock(PATH)),
        (errno.EIO, lambda disk: disk.replace(PATH, b"")),
    ],
)
def test_a_drive_in_trouble_refuses_until_it_is_well(trouble: int, operation: Callable[[MountedDisk], object]) -> None:
    drive = Drive(random.Random(0))
    disk = drive.mount()
    disk.open(PATH, PAGE_SIZE)
    drive.trouble = trouble
    with pytest.raises(OSError, match=os.strerror(trouble)):
        operation(disk)
    assert disk.read(PATH) == bytes(PAGE_SIZE)
    drive.trouble = None
    operation(disk)


def test_a_full_drive_still_syncs_and_deletes_what_it_has() -> None:
    drive = Drive(random.Random(0))
    disk = drive.mount()
    file = disk.open(PATH, PAGE_SIZE)
    drive.trouble = errno.ENOSPC
    file.sync(0, PAGE_SIZE)
    disk.delete(PATH)
    assert disk.names(FOLDER) == []


def test_a_slow_sync_takes_virtual_time() -> None:
    async def sync() -> float:
        file = host.disk.open(PATH, PAGE_SIZE)
        await asyncio.to_thread(file.sync, 0, 1)
        return sim.now_s

    with Simulation(1) as sim:
        host = sim.host(A)
        host.drive.speed = DriveSpeed(sync_s=(3.0, 3.0), spike_chance=0.0)
        assert 3.0 < host.call(sync) < 3.01


def test_a_lock_is_held_by_one_until_it_is_released_or_its_process_ends() -> None:
    drive = Drive(random.Random(0))
    disk = drive.mount()
    lock = disk.lock(FOLDER / "lock")
    with pytest.raises(StoreError, match="in use"):
        disk.lock(FOLDER / "lock")
    lock.release()
    disk.lock(FOLDER / "lock")
    drive.crash()
    drive.mount().lock(FOLDER / "lock")


def test_folders_are_made_as_needed_and_deleted_when_empty() -> None:
    disk: Disk = Drive(random.Random(0)).mount()
    disk.open(Path("/store/queue/topic/0/file"), PAGE_SIZE)
    disk.replace(Path("/store/queue/topic/1/file"), b"")
    assert (disk.folders(Path("/store/queue")), disk.folders(Path("/store/queue/topic"))) == (["topic"], ["0", "1"])
    with pytest.raises(OSError, match="not empty"):
        disk.delete_folder(Path("/store/queue/topic/0"))
    disk.delete(Path("/store/queue/topic/0/file"))
    disk.delete_folder(Path("/store/queue/topic/0"))
    disk.delete_folder(Path("/store/queue/topic/0"))
    assert disk.folders(Path("/store/queue/topic")) == ["1"]


def test_a_file_tells_when_it_was_written() -> None:
    times = iter((5, 6, 7))
    disk: Disk = Drive(random.Random(0), lambda: next(times)).mount()
    file = disk.open(PATH, PAGE_SIZE)
    assert disk.modified_ms(PATH) == 5
    file.sync(0, 1)
    assert disk.modified_ms(PATH) == 6
    with pytest.raises(FileNotFoundError):
        disk.modified_ms(FOLDER / "none")
