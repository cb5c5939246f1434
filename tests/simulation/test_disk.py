"""A drive forgets what it may forget, and nothing else."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.errors import StoreError
from roquet.storage.files.disk import Disk
from tests.simulation.disk import (
    PAGE_SIZE,
    SECTOR_SIZE,
    Drive,
    DriveSpeed,
    MountedDisk,
    MountedFile,
)
from tests.simulation.loop import SimulationError, UnhandledError
from tests.simulation.recorder import A
from tests.simulation.simulation import Simulation
from tests.simulation.threads import DeadProcessError

FOLDER = Path("/store/commitlog")
PATH = FOLDER / "00000000000000000000"
PAGES = 8
SEEDS = range(200)

positions = st.integers(0, PAGES * PAGE_SIZE - 1)
sizes = st.integers(1, 3 * PAGE_SIZE)
steps = st.lists(st.tuples(st.sampled_from(["write", "sync"]), positions, sizes), max_size=30)


def _named(drive: Drive) -> tuple[MountedDisk, MountedFile]:
    """A new file of `PAGES` that is there after a crash."""
    disk = drive.mount()
    file = disk.open(PATH, PAGES * PAGE_SIZE)
    disk.sync_names(PATH)
    return disk, file


def _torn_pages(old: bytes, new: bytes) -> set[bytes]:
    """What a crash may make of a page: one of the two, or one up to the beginning of a sector and
    then the other.
    """
    cuts = range(0, PAGE_SIZE + 1, SECTOR_SIZE)
    return {
        first[:cut] + second[cut:] for cut in cuts for first, second in ((old, new), (new, old))
    }


@settings(deadline=None)
@given(seed=st.integers(0, 1_000_000), steps=steps)
def test_a_crash_forgets_pages_that_were_not_synced_and_only_those(
    seed: int, steps: list[tuple[str, int, int]]
) -> None:
    chance = random.Random(seed)
    drive = Drive(chance)
    _, file = _named(drive)
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
        _, file = _named(drive)
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


def test_a_synced_file_may_be_gone_as_long_as_its_name_is_not_synced() -> None:
    def make(disk: MountedDisk) -> None:
        disk.open(PATH, PAGE_SIZE).sync(0, 1)

    found = {tuple(_after_crash(seed, make).names(FOLDER)) for seed in SEEDS}
    assert found >= {(), ((PATH.name, PAGE_SIZE),)}


def test_a_name_that_was_synced_stays_and_so_does_what_was_done_to_names_before_it() -> None:
    def make(disk: MountedDisk) -> None:
        disk.open(FOLDER / "a", PAGE_SIZE)
        disk.delete(FOLDER / "a")
        disk.open(FOLDER / "b", PAGE_SIZE)
        disk.open(FOLDER / "c", PAGE_SIZE)
        disk.sync_names(FOLDER / "c")

    for seed in SEEDS:
        assert _after_crash(seed, make).names(FOLDER) == [("b", PAGE_SIZE), ("c", PAGE_SIZE)]


def test_a_deleted_file_stays_deleted() -> None:
    def delete_two(disk: MountedDisk) -> None:
        for name in ("a", "b", "c"):
            disk.open(FOLDER / name, PAGE_SIZE)
        disk.delete(FOLDER / "a")
        disk.delete(FOLDER / "b")

    for seed in SEEDS:
        assert _after_crash(seed, delete_two).names(FOLDER) == [("c", PAGE_SIZE)]


def test_a_replaced_file_is_durable() -> None:
    def replace(disk: MountedDisk) -> None:
        disk.replace(PATH, b"old")
        disk.replace(PATH, b"new")

    assert {_after_crash(seed, replace).read(PATH) for seed in SEEDS} == {b"new"}


def _replaced_until(changes: int, seed: int) -> bytes | None:
    drive = Drive(random.Random(seed))
    disk = drive.mount()
    disk.replace(PATH, b"old")
    drive.lose_power_after(changes)
    with suppress(DeadProcessError):
        disk.replace(PATH, b"new")
        disk.replace(PATH, b"too late")
    return drive.mount().read(PATH)


def test_a_power_loss_can_be_put_before_any_change() -> None:
    """A file is replaced by: make another one, sync it, rename it, sync the folder."""
    found = [{_replaced_until(changes, seed) for seed in range(20)} for changes in range(5)]
    assert found == [{b"old"}, {b"old"}, {b"old"}, {b"old", b"new"}, {b"new"}]


def test_a_power_loss_inside_blocking_work_takes_the_host() -> None:
    async def save() -> None:
        await asyncio.to_thread(host.disk.replace, PATH, b"first")
        host.drive.lose_power_after(1)
        await asyncio.to_thread(host.disk.replace, PATH, b"second")

    with Simulation(1) as sim:
        host = sim.host(A)
        saving = host.start(save)
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
    ("failure", "operation"),
    [
        (errno.ENOSPC, lambda disk: disk.open(FOLDER / "new", PAGE_SIZE)),
        (errno.ENOSPC, lambda disk: disk.replace(PATH, b"")),
        (errno.EROFS, lambda disk: disk.open(PATH, PAGE_SIZE)),
        (errno.EROFS, lambda disk: disk.delete(PATH)),
        (errno.EROFS, lambda disk: disk.lock(PATH)),
        (errno.EIO, lambda disk: disk.replace(PATH, b"")),
    ],
)
def test_a_failing_drive_refuses_until_it_is_well(
    failure: int, operation: Callable[[MountedDisk], object]
) -> None:
    drive = Drive(random.Random(0))
    disk = drive.mount()
    disk.open(PATH, PAGE_SIZE)
    drive.failure = failure
    with pytest.raises(OSError, match=os.strerror(failure)):
        operation(disk)
    assert disk.read(PATH) == bytes(PAGE_SIZE)
    drive.failure = None
    operation(disk)


def test_a_full_drive_still_syncs_and_deletes_what_it_has() -> None:
    drive = Drive(random.Random(0))
    disk = drive.mount()
    file = disk.open(PATH, PAGE_SIZE)
    drive.failure = errno.ENOSPC
    file.sync(0, PAGE_SIZE)
    disk.delete(PATH)
    assert disk.names(FOLDER) == []


def test_what_a_failed_sync_dropped_is_clean_for_every_later_one_and_gone_with_the_power() -> None:
    lost = 0
    for seed in SEEDS:
        drive = Drive(random.Random(seed))
        _, file = _named(drive)
        file.buffer[:] = b"a" * file.size
        file.sync(0, file.size)
        file.buffer[:] = b"b" * file.size
        drive.failure = errno.EIO
        with pytest.raises(OSError, match=PATH.name):
            file.sync(0, file.size)
        drive.failure = None
        file.sync(0, file.size)
        assert bytes(file.buffer) == b"b" * file.size, "whoever looks sees nothing of it"
        file.buffer[: PAGE_SIZE + 1] = b"c" * (PAGE_SIZE + 1)
        file.sync(0, file.size)
        drive.crash()
        after = bytes(drive.mount().open(PATH, file.size).buffer)
        assert after[: PAGE_SIZE + 1] == b"c" * (PAGE_SIZE + 1), (
            "who writes a page anew has it written"
        )
        lost += after.count(b"a" * PAGE_SIZE)
    assert lost > PAGES


def test_each_open_file_is_told_once_of_what_could_not_be_written() -> None:
    drive = Drive(random.Random(0))
    disk, file = _named(drive)
    other = disk.open(PATH, file.size)
    file.buffer[:] = b"b" * file.size
    drive.failure = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        file.sync(0, 1)
    drive.failure = None
    file.sync(0, 1)
    with pytest.raises(OSError, match="Input/output"):
        other.sync(0, 1)
    other.sync(0, 1)
    disk.open(PATH, file.size).sync(0, 1)


def test_a_system_that_writes_back_unasked_tells_of_its_failure_at_the_next_sync() -> None:
    told = 0
    for seed in SEEDS:
        drive = Drive(random.Random(seed))
        _, file = _named(drive)
        file.buffer[:] = b"b" * file.size
        drive.failure = errno.EIO
        drive.failure = None
        try:
            file.sync(0, file.size)
        except OSError:
            told += 1
        else:
            drive.crash()
            assert bytes(drive.mount().open(PATH, file.size).buffer) == b"b" * file.size
    assert 0 < told < len(SEEDS)


def test_what_is_forgotten_is_read_from_the_drive_again() -> None:
    drive = Drive(random.Random(0))
    _, file = _named(drive)
    file.buffer[:1] = b"b"
    drive.failure = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        file.sync(0, 1)
    drive.failure = None
    drive.unmount()
    disk = drive.mount()
    disk.forget_cached(PATH)
    again = disk.open(PATH, file.size)
    kept = bytes(again.buffer)
    drive.crash()
    assert bytes(drive.mount().open(PATH, file.size).buffer) == kept


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
    assert (disk.folders(Path("/store/queue")), disk.folders(Path("/store/queue/topic"))) == (
        ["topic"],
        ["0", "1"],
    )
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


# descriptors


def test_a_descriptor_is_used_again_once_it_is_closed() -> None:
    disk = Drive(random.Random(0)).mount()
    first, second = disk.open(FOLDER / "a", PAGE_SIZE), disk.open(FOLDER / "b", PAGE_SIZE)
    first.close()
    third = disk.open(FOLDER / "c", PAGE_SIZE)
    assert (first.descriptor, second.descriptor, third.descriptor) == (0, 1, 0)


def test_closing_a_file_twice_is_a_fault_and_closes_whatever_has_its_descriptor_now() -> None:
    faults: list[SimulationError] = []
    disk = Drive(random.Random(0), on_fault=faults.append).mount()
    first = disk.open(FOLDER / "a", PAGE_SIZE)
    first.close()
    second = disk.open(FOLDER / "b", PAGE_SIZE)
    first.close()
    assert "/a (closed)> closed descriptor 0, which is of </store/commitlog/b>" in str(faults[0])
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        second.sync(0, 1)


def test_a_closed_file_cannot_be_used_and_whoever_does_is_told_of() -> None:
    faults: list[SimulationError] = []
    disk = Drive(random.Random(0), on_fault=faults.append).mount()
    file = disk.open(PATH, PAGE_SIZE)
    file.close()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        file.sync(0, 1)
    assert len(faults) == 1


def test_a_fault_with_descriptors_fails_the_simulation() -> None:
    async def close_twice() -> None:
        file = host.disk.open(PATH, PAGE_SIZE)
        for _ in range(2):
            with suppress(Exception):
                file.close()

    with Simulation(1) as sim:
        host = sim.host(A)
        with pytest.raises(UnhandledError, match="on 10"):
            host.call(close_twice)


@pytest.mark.parametrize(
    "operation",
    [
        lambda disk: disk.open(FOLDER / "new", PAGE_SIZE),
        lambda disk: disk.replace(PATH, b""),
        lambda disk: disk.delete(PATH),
        lambda disk: disk.names(FOLDER),
    ],
)
def test_a_process_has_only_so_many_descriptors(operation: Callable[[MountedDisk], object]) -> None:
    drive = Drive(random.Random(0))
    disk = drive.mount()
    file = disk.open(PATH, PAGE_SIZE)
    drive.descriptors_max = 1
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        operation(disk)
    assert len(disk.descriptors) == 1
    file.close()
    operation(disk)


# what fails once


@pytest.mark.parametrize("number", [errno.EPERM, errno.EIO, errno.EROFS, errno.EBUSY])
def test_deletions_can_fail_once_or_for_a_while(number: int) -> None:
    drive = Drive(random.Random(0))
    disk = drive.mount()
    disk.open(PATH, PAGE_SIZE)
    drive.refuse("delete", number)
    with pytest.raises(OSError, match=os.strerror(number)):
        disk.delete(PATH)
    assert disk.names(FOLDER) == [(PATH.name, PAGE_SIZE)]
    drive.failure = number
    with pytest.raises(OSError, match=os.strerror(number)):
        disk.delete(PATH)
    drive.failure = None
    disk.delete(PATH)
    assert disk.names(FOLDER) == []


def test_the_last_step_of_a_deletion_can_fail_and_be_tried_again() -> None:
    drive = Drive(random.Random(0))
    disk = drive.mount()
    disk.open(PATH, PAGE_SIZE).sync(0, 1)
    drive.refuse("sync", errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disk.delete(PATH)
    disk.delete(PATH)
    drive.crash()
    assert drive.mount().names(FOLDER) == []


def test_a_rename_can_fail_and_leaves_the_old_file() -> None:
    drive = Drive(random.Random(0))
    disk = drive.mount()
    disk.replace(PATH, b"old")
    drive.refuse("rename", errno.EBUSY)
    with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
        disk.replace(PATH, b"new")
    assert disk.read(PATH) == b"old"


# threads


def test_two_threads_that_replace_one_file_get_in_each_others_way() -> None:
    async def replace_at_once() -> list[BaseException | None]:
        both = (asyncio.to_thread(host.disk.replace, PATH, b"%d" % number) for number in range(2))
        return await asyncio.gather(*both, return_exceptions=True)

    failed = 0
    for seed in range(20):
        with Simulation(seed) as sim:
            host = sim.host(A)
            failed += sum(
                isinstance(result, FileNotFoundError) for result in host.call(replace_at_once)
            )
    assert failed


def test_what_is_written_while_a_sync_runs_is_not_on_the_platter_after_it() -> None:
    async def write_meanwhile() -> None:
        file = host.disk.open(PATH, PAGE_SIZE)
        host.disk.sync_names(PATH)
        file.buffer[:3] = b"old"
        syncing = asyncio.create_task(asyncio.to_thread(file.sync, 0, 3))
        await asyncio.sleep(1)
        file.buffer[:3] = b"new"
        await syncing

    found: set[bytes] = set()
    for seed in range(10):
        with Simulation(seed) as sim:
            host = sim.host(A)
            host.drive.speed = DriveSpeed(sync_s=(2.0, 2.0), spike_chance=0.0)
            host.call(write_meanwhile)
            host.crash()
            host.boot()
            found.add(bytes(host.disk.open(PATH, PAGE_SIZE).buffer[:3]))
    assert found == {b"old", b"new"}


def test_a_slow_sync_brings_no_older_bytes_over_those_of_a_later_one() -> None:
    async def sync_twice() -> None:
        file = host.disk.open(PATH, PAGE_SIZE)
        host.disk.sync_names(PATH)
        file.buffer[:3] = b"old"
        host.drive.speed = DriveSpeed(sync_s=(5.0, 5.0), spike_chance=0.0)
        slow = asyncio.create_task(asyncio.to_thread(file.sync, 0, 3))
        await asyncio.sleep(1)
        file.buffer[:3] = b"new"
        host.drive.speed = DriveSpeed(sync_s=(1.0, 1.0), spike_chance=0.0)
        await asyncio.to_thread(file.sync, 0, 3)
        assert not slow.done()
        await slow

    for seed in range(10):
        with Simulation(seed) as sim:
            host = sim.host(A)
            host.call(sync_twice)
            host.crash()
            host.boot()
            assert host.disk.open(PATH, PAGE_SIZE).buffer[:3] == b"new"
