"""A host's drive, in memory: it forgets what was never synced, is slow, full or read-only when a
test wants it.

Data and names are kept twice, as the running machine sees them and as they stand on the platter.
`sync` carries pages over, the sync of a folder carries every name. Of the rest a crash leaves any
subset of the pages, some of them torn, and of the changes to names the first so-and-so many, as
journals do.

A sync that fails treats pages as Linux does: those that the drive did not take are clean from then
on. They can be read, no later sync writes them, and they are gone with the power or
`forget_cached`. Each open file hears of it once.

What blocks gives way to others before each operation and while it waits for the drive
(`threads.py`). Open files have descriptors: small numbers, which the next file gets again once they
are closed.
"""

from __future__ import annotations

import errno
import heapq
import mmap
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from roquet.errors import StoreError, UnreadableFile
from roquet.storage.files.mapped_file import GONE, tell_gone
from tests.simulation.loop import SimulationError
from tests.simulation.threads import DeadProcessError, block, current_process, step

Note: TypeAlias = Callable[..., None]

PAGE_SIZE: Final = 4096
SECTOR_SIZE: Final = 512
COMPARED_AT_ONCE: Final = 16 * PAGE_SIZE
TORN_CHANCE: Final = 0.1
WRITTEN_BACK_CHANCE: Final = 0.5
"""That the system wrote back a file, or tried to, while its drive failed and nobody asked for a
sync.
"""

REFUSED_BY: Final[dict[int, frozenset[str]]] = {
    errno.ENOSPC: frozenset({"create", "write"}),
    errno.EROFS: frozenset({"open", "create", "delete", "rename", "lock"}),
    errno.EIO: frozenset({"sync", "delete"}),
    errno.EPERM: frozenset({"delete", "rename"}),
    errno.EBUSY: frozenset({"delete", "rename"}),
}
"""The operations that fail while a drive has the failure with this number."""


@dataclass(frozen=True)
class Flaky:
    """Operations that fail now and then, with one of these error numbers; `pread` is a read of an
    open file.
    """

    operations: frozenset[str]
    numbers: tuple[int, ...]
    chance: float

    def draw(self, operation: str, chance: random.Random) -> int:
        """The number that this operation fails with now; 0: it does not."""
        if operation not in self.operations or chance.random() >= self.chance:
            return 0
        return chance.choice(self.numbers)


@dataclass(frozen=True)
class DriveSpeed:
    """How long a sync takes."""

    sync_s: tuple[float, float] = (0.0002, 0.004)
    spike_chance: float = 0.01
    spike_s: tuple[float, float] = (0.05, 0.5)

    def draw_s(self, chance: random.Random) -> float:
        seconds = chance.uniform(*self.sync_s)
        if chance.random() < self.spike_chance:
            seconds += chance.uniform(*self.spike_s)
        return seconds


@dataclass(frozen=True)
class Pages:
    """The bytes of whole pages from `first` on, as they were when a file's sync with this number
    began.
    """

    first: int
    data: bytes
    sync: int


class StoredFile:
    """Bytes of a fixed size: `cached` as programs see them, `durable` as they stand on the
    platter.
    """

    def __init__(self, size: int, now_ms: int) -> None:
        self.size = size
        self.cached = _memory(size)
        self.durable = bytearray(size)
        self.modified_ms = now_ms
        self.failures = self.told = 0
        """How often pages could not be written, and how many of these times somebody heard of."""
        self._syncs_begun = 0
        self._synced_by: dict[int, int] = {}
        """Which sync has brought a page to the platter last."""
        self._lost: dict[int, bytes] = {}
        """What stood in pages when they could not be written: while that stands there they count as
        clean.
        """

    def rewrite(self, data: bytes) -> None:
        """Let programs see these bytes and no others."""
        durable = bytes(self.durable[: len(data)])
        self.size = len(data)
        self.cached = _memory(self.size)
        self.cached[:] = data
        self.durable = bytearray(durable.ljust(self.size, b"\0"))

    def resized(self, size: int) -> StoredFile:
        other = StoredFile(size, self.modified_ms)
        kept = min(size, self.size)
        other.cached[:kept] = self.cached[:kept]
        other.durable[:kept] = self.durable[:kept]
        other.failures, other.told = self.failures, self.told
        other._lost = {page: held for page, held in self._lost.items() if page + len(held) <= size}
        return other

    def pages(self, start: int, end: int) -> Pages:
        """What `sync` brings to the platter if it begins now: whole pages, as a drive writes
        them.
        """
        first = start - start % PAGE_SIZE
        self._syncs_begun += 1
        return Pages(
            first,
            bytes(self.cached[first : min(self.size, end + -end % PAGE_SIZE)]),
            self._syncs_begun,
        )

    def sync(self, pages: Pages) -> None:
        """Bring these pages to the platter, but for those that count as clean, and those that a
        sync which began later has brought there already.
        """
        first, data = pages.first, pages.data
        for at in range(0, len(data), PAGE_SIZE):
            is_newest = self._synced_by.get(first + at, 0) < pages.sync
            if is_newest and not self._is_lost(first + at):
                self._synced_by[first + at] = pages.sync
                self._write(first + at, data[at : at + PAGE_SIZE])

    def _write(self, page: int, data: bytes) -> None:
        self._lost.pop(page, None)
        self.durable[page : page + len(data)] = data

    def fail_to_sync(self, chance: random.Random) -> None:
        """Of the dirty pages some reach the platter; the others count as clean all the same."""
        written = chance.random()
        for page in self.dirty_pages():
            data = bytes(self.cached[page : page + PAGE_SIZE])
            if chance.random() < written:
                self._write(page, data)
            else:
                self._lost[page] = data
        self.failures += 1

    def forget_cached(self) -> None:
        """Clean pages are read from the platter again."""
        for page in self._lost:
            if self._is_lost(page):
                self.cached[page : page + PAGE_SIZE] = self.durable[page : page + PAGE_SIZE]
        self._lost.clear()

    def _is_lost(self, page: int) -> bool:
        return page in self._lost and self.cached[page : page + PAGE_SIZE] == self._lost[page]

    def dirty_pages(self) -> list[int]:
        """Where the pages begin that differ on the platter, and do not count as clean."""
        return [page for page in self._unwritten_pages() if not self._is_lost(page)]

    def _unwritten_pages(self) -> list[int]:
        return [
            page
            for start in range(0, self.size, COMPARED_AT_ONCE)
            if self.cached[start : start + COMPARED_AT_ONCE]
            != self.durable[start : start + COMPARED_AT_ONCE]
            for page in range(start, min(start + COMPARED_AT_ONCE, self.size), PAGE_SIZE)
            if self.cached[page : page + PAGE_SIZE] != self.durable[page : page + PAGE_SIZE]
        ]

    def detach(self) -> None:
        """Who still holds the cached bytes holds a copy from now on that nobody else sees."""
        held, self.cached = self.cached, _memory(self.size)
        self.cached[:] = held[:]

    def forget_unsynced(self, chance: random.Random, survival: float) -> None:
        for page in self.dirty_pages():
            if chance.random() < TORN_CHANCE:
                self._tear(page, chance)
            elif chance.random() < survival:
                self.sync(self.pages(page, page + 1))
        self.cached = _memory(self.size)
        self.cached[:] = self.durable
        self._lost.clear()
        self.told = self.failures

    def _tear(self, page: int, chance: random.Random) -> None:
        """Of the page, the sectors up to a random one are new and the others old, or the other way
        round.
        """
        middle = min(self.size, page + SECTOR_SIZE * chance.randrange(1, PAGE_SIZE // SECTOR_SIZE))
        end = min(self.size, page + PAGE_SIZE)
        start, end = (page, middle) if chance.random() < 0.5 else (middle, end)
        self.durable[start:end] = self.cached[start:end]


def _memory(size: int) -> mmap.mmap | bytearray:
    """The very type that production works on; files too small to be mapped there are spared it."""
    return mmap.mmap(-1, size) if size >= PAGE_SIZE else bytearray(size)


@dataclass(frozen=True)
class Names:
    """What a file system's folders say at one moment."""

    files: dict[Path, StoredFile]
    folders: frozenset[Path]


def _raise(fault: SimulationError) -> None:
    raise fault


class Drive:
    """Invariant: `durable_names` and then each of `unsynced_names`, in order, is what the folders said
    after some change; the last of them all is what they say now.

    :param now_ms: the wall clock, for the times of files.
    :param note: told every fact that must repeat when the same seed runs again.
    :param on_fault: told what no correct program does with a descriptor.
    """

    def __init__(
        self,
        chance: random.Random,
        now_ms: Callable[[], int] = lambda: 0,
        note: Note = lambda *_: None,
        on_fault: Callable[[SimulationError], None] = _raise,
    ) -> None:
        self.speed = DriveSpeed()
        self.used_ratio = 0.5
        """How full it is said to be, unless it has a capacity."""
        self.capacity: int | None = None
        """Bytes."""
        self.room: int | None = None
        """So many bytes a new file of the store may have at most: the drive is nearly full. Small
        files that are replaced always find room."""
        self.unreadable: set[Path] = set()
        """Files that fail each read."""
        self.lost_from: dict[Path, int] = {}
        """Files that somebody has cut, and at which byte."""
        self.undeletable: dict[Path, int] = {}
        """Files that somebody has protected, and how often it was tried to delete them."""
        self.signed: set[Path] = set()
        """Locks of which one of our brokers has noted that it had them last."""
        self.flaky: Flaky | None = None
        self.fails_beside_another = False
        """Whether the next sync fails that ends while another one of the same file runs: only one
        of the two hears of it."""
        self.descriptors_max = 1_000
        """How many a process may have."""
        self.on_power_loss: Callable[[], None] = self.crash
        self.now_ms = now_ms
        self.note = note
        self.on_fault = on_fault
        self._random = chance
        self._refused: dict[str, tuple[int, float]] = {}
        self._durable_names = Names({}, frozenset())
        self._unsynced_names: list[Names] = []
        self._mounted: MountedDisk | None = None
        self._changes_left: int | None = None
        self._writes_left: int | None = None
        self._erasures_left: int | None = None
        self._end_of_process: Callable[[], None] = self.crash
        self._failure: int | None = None

    @property
    def failure(self) -> int | None:
        """The error number of what is refused now; None: the drive is well."""
        return self._failure

    @failure.setter
    def failure(self, failure: int | None) -> None:
        if self._failure == errno.EIO and failure is None:
            for file in self.names.files.values():
                if file.dirty_pages() and self._random.random() < WRITTEN_BACK_CHANCE:
                    file.fail_to_sync(self._random)
        self._failure = failure

    @property
    def used(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.names.files.values())

    @property
    def fullness(self) -> float:
        return self.used_ratio if self.capacity is None else min(1.0, self.used / self.capacity)

    @property
    def is_well(self) -> bool:
        """Whether nothing is refused now."""
        return self._failure is None and self.flaky is None

    @property
    def names(self) -> Names:
        return self._unsynced_names[-1] if self._unsynced_names else self._durable_names

    def mount(self) -> MountedDisk:
        """The drive for a new process; the one before must be gone."""
        assert self._mounted is None, "still mounted: crash or unmount first"
        self._mounted = MountedDisk(self)
        return self._mounted

    def unmount(self) -> None:
        """The process ended, the machine goes on: nothing is lost, but nothing the dead does counts
        any more.
        """
        if self._mounted is not None:
            self._mounted.is_gone = True
            self._mounted = None
            for file in self.names.files.values():
                file.detach()

    def crash(self) -> None:
        """The power fails. (A folder entry that comes back brings the bytes that its file had on
        the platter.)
        """
        self.unmount()
        self._changes_left = self._writes_left = self._erasures_left = None
        versions = [self._durable_names, *self._unsynced_names]
        self._durable_names = versions[self._random.randrange(len(versions))]
        self._unsynced_names.clear()
        survival = self._random.choice((0.0, 1.0, self._random.random()))
        for file in self._durable_names.files.values():
            file.forget_unsynced(self._random, survival)

    def refuse(self, operation: str, number: int, times: float = 1) -> None:
        """Let the next so many operations of a kind (`create`, `rename`, `delete`, ...) fail with
        this error.
        """
        self._refused[operation] = number, times
        if not times:
            del self._refused[operation]

    def lose_power_after(self, changes: int) -> None:
        """Let so many more changes (create, size, sync, rename, delete) happen; the one after them
        meets a crash.
        """
        self._changes_left = changes

    def end_in_a_write(self, writes: int | None, end: Callable[[], None]) -> None:
        """Let so many more writes of more than a page happen; the process ends in the middle of the
        one after them.

        :param writes: None: as many as there are.
        :param end: kills the process, or has the power fail.
        """
        self._writes_left, self._end_of_process = writes, end

    def end_in_an_erasure(self, pages: int | None, end: Callable[[], None]) -> None:
        """Let so many more pages be erased; the process ends before the one after them.

        :param pages: None: as many as there are.
        :param end: as of `end_in_a_write`.
        """
        self._erasures_left, self._end_of_process = pages, end

    # for MountedDisk

    def admit(self, operation: str) -> None:
        """
        :raises OSError: the drive fails, and does not let this operation happen.
        """
        number, times = self._refused.pop(operation, (0, 0.0))
        if times > 1:
            self._refused[operation] = number, times - 1
        if not times and self.failure is not None and operation in REFUSED_BY[self.failure]:
            number = self.failure
        if not number and self.flaky is not None:
            number = self.flaky.draw(operation, self._random)
        if number:
            self.note("refused", operation, number)
            raise OSError(number, os.strerror(number))

    def refuses_now(self, operation: str) -> bool:
        """Whether this operation fails now, as it does at times."""
        number = self.flaky.draw(operation, self._random) if self.flaky is not None else 0
        if number:
            self.note("refused", operation, number)
        return number > 0

    def change(self, operation: str, path: Path) -> None:
        """A change is about to happen.

        :raises DeadProcessError: the power fails right before it.
        """
        if self._changes_left is not None:
            if self._changes_left == 0:
                self._changes_left = None
                self.on_power_loss()
                raise DeadProcessError(f"the power failed at {operation} {path}")
            self._changes_left -= 1
        self.note(operation, str(path))

    def write(
        self, path: Path, memory: mmap.mmap | bytearray, at: int, data: bytes | memoryview
    ) -> None:
        """
        :raises DeadProcessError: the process ended while pages were written, one after the other.
        """
        if self._writes_left is None or len(data) <= PAGE_SIZE:
            memory[at : at + len(data)] = data
            return
        if self._writes_left:
            self._writes_left -= 1
            memory[at : at + len(data)] = data
            return
        self._writes_left = None
        pages = range(PAGE_SIZE - at % PAGE_SIZE, len(data), PAGE_SIZE)
        written = self._random.choice(pages)
        memory[at : at + written] = data[:written]
        self.note("ends in a write", str(path), at, written)
        self._end_of_process()
        raise DeadProcessError(f"the process ended while it wrote to {path}")

    def erase(self, path: Path, memory: mmap.mmap | bytearray, at: int, size: int) -> None:
        """
        :raises DeadProcessError: the process ends before this page.
        """
        if self._erasures_left is not None:
            self._erasures_left -= 1
            if self._erasures_left < 0:
                self._erasures_left = None
                self.note("ends before it erases", str(path), at, size)
                self._end_of_process()
                raise DeadProcessError(f"the process ended while it erased the end of {path}")
        memory[at : at + size] = bytes(size)

    def remove(self, path: Path) -> None:
        """Somebody deletes a file, under whoever has it open; that is on the platter at once."""
        self.rename({other: file for other, file in self.names.files.items() if other != path})
        self.sync_names()

    def rename(self, files: dict[Path, StoredFile], folders: frozenset[Path] | None = None) -> None:
        """The folders say something new, so far only in memory."""
        self._unsynced_names.append(
            Names(files, self.names.folders if folders is None else folders)
        )

    def sync_names(self) -> None:
        self._durable_names = self.names
        self._unsynced_names.clear()

    def sync(self, file: StoredFile, pages: Pages) -> None:
        """
        :raises OSError: the drive does not take the pages.
        """
        try:
            self.admit("sync")
        except OSError:
            file.fail_to_sync(self._random)
            raise
        file.sync(pages)
        file.modified_ms = self.now_ms()

    def wait_for_sync(self) -> None:
        block(self.speed.draw_s(self._random))


class Descriptors:
    """What a process has open.

    Invariant: the next one to be opened gets the lowest number that is free.
    """

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._open: dict[int, object] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._open)

    def require_one(self) -> None:
        """
        :raises OSError: there are too many.
        """
        if len(self._open) >= self._drive.descriptors_max:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def open(self, who: object) -> int:
        """
        :raises OSError: there are too many.
        """
        self.require_one()
        number = heapq.heappop(self._free) if self._free else len(self._open)
        self._open[number] = who
        return number

    def check(self, number: int, who: object) -> None:
        """
        :raises OSError: the number is not, or no longer, that of this file.
        """
        if self._open.get(number) is not who:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def close(self, number: int, who: object) -> None:
        """Close what has this number; a fault where that is somebody else, or nobody."""
        open_now = self._open.pop(number, None)
        if open_now is not None:
            heapq.heappush(self._free, number)
        if open_now is not who:
            self._drive.on_fault(
                SimulationError(f"{who} closed descriptor {number}, which is of {open_now}")
            )


class MountedFile:
    """An open file, as `roquet.storage.files.disk.DiskFile` describes it."""

    def __init__(self, disk: MountedDisk, path: Path, file: StoredFile, *, is_new: bool) -> None:
        self.size = file.size
        self.is_new = is_new
        self._disk = disk
        self._path = path
        self._file = file
        self._bytes: mmap.mmap | bytearray | None = file.cached
        self._told = file.told
        self._is_discarded = self._is_told = False
        self._syncs = 0
        self.descriptor = disk.descriptors.open(self)

    def __repr__(self) -> str:
        return f"<{self._path}{' (closed)' if self._bytes is None else ''}>"

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        if self._bytes is None:
            raise ValueError(f"{self._path} is closed")
        return self._bytes

    def _drive(self, operation: str) -> Drive:
        """The drive, if it lets this file's descriptor be used for that now.

        :raises OSError: it fails; the file was closed, which only a wrong program meets.
        """
        drive = self._disk.drive(operation)
        if self._bytes is None:
            drive.on_fault(SimulationError(f"{operation} of {self}"))
        self._disk.descriptors.check(self.descriptor, self)
        return drive

    def read(self, at: int, size: int) -> bytes:
        if self._path in self._disk.unreadable or not self._disk.gives_reads():
            raise UnreadableFile(errno.EIO, "the drive does not give it", str(self._path))
        lost_from = self._disk.lost_from.get(self._path)
        if lost_from is not None and min(self.size, at + size) > lost_from:
            raise UnreadableFile(
                errno.EIO, f"it has lost its bytes from {lost_from} on", str(self._path)
            )
        return bytes(self.buffer[at : at + size])

    def require_whole(self) -> None:
        if self._path in self._disk.lost_from:
            raise UnreadableFile(errno.EIO, "it is shorter than it was made", str(self._path))

    def require_name(self) -> None:
        if self._disk.file_at(self._path) is not self._file and not self._is_discarded:
            if not self._is_told:
                tell_gone(self._path)
            self._is_told = True
            raise UnreadableFile(errno.EIO, GONE, str(self._path))

    def next_data(self, at: int) -> int:
        return min(at, self.size)

    def write(self, at: int, data: bytes | memoryview) -> None:
        if any(data):
            self._drive("write").write(self._path, self.buffer, at, data)
        else:  # in the place of what has its room already
            self._drive("erase").erase(self._path, self.buffer, at, len(data))

    def reserve(self, start: int, end: int) -> None:
        self._drive("write")

    def sync(self, start: int, end: int) -> None:
        if self._is_discarded:
            return
        self._syncs += 1
        try:
            self._sync(start, end)
        finally:
            self._syncs -= 1
            if self._is_discarded and not self._syncs and not self._disk.is_gone:
                self.close()
        self.require_name()

    def _sync(self, start: int, end: int) -> None:
        file, drive = self._file, self._drive("begin a sync")
        drive.change("sync", self._path)
        pages = file.pages(start, end)
        drive.wait_for_sync()
        if self._syncs > 1 and drive.fails_beside_another:
            drive.fails_beside_another = False
            drive.refuse("sync", errno.EIO)
        try:
            drive.sync(file, pages)
        except OSError as error:
            raise self._failed(error.errno or errno.EIO) from None
        if self._told < file.failures:
            raise self._failed(errno.EIO)

    def _failed(self, number: int) -> OSError:
        self._told = self._file.told = self._file.failures
        return OSError(number, os.strerror(number), str(self._path))

    def expect_reads(self) -> None:
        """Advice to a kernel that is not there."""

    def discard(self) -> None:
        self._is_discarded = True
        if not self._syncs:
            self.close()

    def close(self) -> None:
        if self._syncs:
            self._disk.drive("close").on_fault(
                SimulationError(f"{self} is closed while it is synced")
            )
        self._disk.descriptors.close(self.descriptor, self)
        self._bytes = None


class MountedLock:
    """A lock on a store; the end of its process releases it, too."""

    def __init__(self, disk: MountedDisk, locked: set[Path], path: Path) -> None:
        self._disk = disk
        self._locked = locked
        self._path = path
        self._descriptor = disk.descriptors.open(self)
        self.was_ours = path in disk.drive("read").signed
        locked.add(path)

    def sign(self) -> None:
        self._disk.drive("write").signed.add(self._path)

    def release(self) -> None:
        self._disk.descriptors.close(self._descriptor, self)
        self._locked.discard(self._path)


class MountedDisk:
    """A drive as one process sees it, as `roquet.storage.files.disk.Disk` describes it."""

    def __init__(self, drive: Drive) -> None:
        self.is_gone = False
        self.descriptors = Descriptors(drive)
        self._drive = drive
        self._locked: set[Path] = set()

    def drive(self, operation: str) -> Drive:
        """The drive, if it lets this process do that now; others may have run before it does.

        :raises DeadProcessError: there is no such process any more.
        :raises OSError: the drive fails.
        """
        if not self.is_gone:
            step()
        if self.is_gone:
            raise DeadProcessError(f"{operation} by a dead process")
        self._drive.admit(operation)
        return self._drive

    def require_descriptors(self, path: Path) -> None:
        """As many as anybody wants."""

    def gives_reads(self) -> bool:
        """Whether a read of an open file by a program, not by one of the tests' checks, goes well
        now.
        """
        flaky = self._drive.flaky
        return (
            flaky is None or current_process.get() is None or not self._drive.refuses_now("pread")
        )

    def require_file(self, path: Path, size: int) -> None:
        file = self.drive("read").names.files.get(path)
        if file is None or file.size != size:
            raise UnreadableFile(errno.EIO, "it is not there any more, or cut", str(path))

    def reopen(self, path: Path, size: int) -> MountedFile:
        self.require_file(path, size)
        return self.open(path, size)

    @property
    def unreadable(self) -> set[Path]:
        return self._drive.unreadable

    @property
    def lost_from(self) -> dict[Path, int]:
        return self._drive.lost_from

    def open(self, path: Path, size: int) -> MountedFile:
        drive = self.drive("open")
        self.descriptors.require_one()
        known = drive.names.files.get(path)
        if known is None and drive.room is not None and size > drive.room:
            drive.note("refused", "open", errno.ENOSPC)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        file = known or self._store(path, StoredFile(0, drive.now_ms()), "create")
        if file.size != size:
            file = self._store(path, file.resized(size), "size")
        return MountedFile(self, path, file, is_new=known is None)

    def _store(self, path: Path, file: StoredFile, operation: str) -> StoredFile:
        drive = self._drive
        drive.admit("create")
        drive.change(operation, path)
        names = drive.names
        folders = names.folders if path in names.files else names.folders | set(path.parents)
        drive.rename({**names.files, path: file}, folders)
        return file

    def file_at(self, path: Path) -> StoredFile | None:
        """What the path of an open file leads to now."""
        return self._drive.names.files.get(path)

    def names(self, folder: Path) -> list[tuple[str, int]]:
        files = self._read_names().files
        sizes = (
            (path, min(file.size, self.lost_from.get(path, file.size)))
            for path, file in files.items()
        )
        return sorted((path.name, size) for path, size in sizes if path.parent == folder)

    def _read_names(self) -> Names:
        names = self.drive("read").names
        self.descriptors.require_one()
        return names

    def folders(self, folder: Path) -> list[str]:
        return sorted(
            path.name for path in self._read_names().folders if path.parent == folder != path
        )

    def read(self, path: Path) -> bytes | None:
        file = self._read_names().files.get(path)
        return None if file is None else bytes(file.cached)

    @contextmanager
    def _opened(self, path: Path) -> Iterator[None]:
        """What is open while one operation lasts."""
        number = self.descriptors.open(path)
        try:
            yield
        finally:
            if not self.is_gone:
                self.descriptors.close(number, path)

    def replace(self, path: Path, data: bytes) -> None:
        fresh = path.with_name(path.name + ".tmp")
        with self._opened(fresh):
            file = self._emptied(fresh)
            self.drive("write")
            file.rewrite(data)
            self._sync_unnamed(fresh, file)
        self._rename(fresh, path)
        self._sync_folder(path.parent)

    def _emptied(self, path: Path) -> StoredFile:
        """A file of no bytes: a new one, or the one of that name."""
        drive = self.drive("create")
        file = drive.names.files.get(path)
        if file is None:
            return self._store(path, StoredFile(0, drive.now_ms()), "create")
        drive.change("size", path)
        file.rewrite(b"")
        return file

    def _sync_unnamed(self, path: Path, file: StoredFile) -> None:
        drive = self.drive("sync")
        drive.change("sync", path)
        pages = file.pages(0, file.size)
        drive.wait_for_sync()
        file.sync(pages)

    def _rename(self, path: Path, to: Path) -> None:
        drive = self.drive("rename")
        files = dict(drive.names.files)
        file = files.pop(path, None)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        drive.change("rename", to)
        drive.rename({**files, to: file})

    def _sync_folder(self, folder: Path) -> None:
        drive = self.drive("sync")
        with self._opened(folder):
            drive.change("sync", folder)
            drive.sync_names()

    def delete(self, path: Path) -> None:
        drive = self.drive("delete")
        if path in drive.undeletable:
            drive.undeletable[path] += 1
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        if path in drive.names.files:
            drive.change("delete", path)
            drive.rename(
                {other: file for other, file in drive.names.files.items() if other != path}
            )
            drive.lost_from.pop(path, None)
            drive.unreadable.discard(path)
        if path.parent in drive.names.folders:
            self._sync_folder(path.parent)

    def delete_folder(self, folder: Path) -> None:
        drive = self.drive("delete")
        if self.names(folder) or self.folders(folder):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))
        if folder in drive.names.folders:
            drive.change("delete", folder)
            drive.rename(drive.names.files, drive.names.folders - {folder})

    def sync_names(self, path: Path) -> None:
        if path.parent in self.drive("begin a sync").names.folders:
            self._sync_folder(path.parent)

    def forget_cached(self, path: Path) -> None:
        file = self.drive("read").names.files.get(path)
        if file is not None:
            file.forget_cached()

    def modified_ms(self, path: Path) -> int:
        file = self.drive("read").names.files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return file.modified_ms

    def used_ratio(self, folder: Path) -> float:
        return self.drive("read").fullness

    def lock(self, path: Path) -> MountedLock:
        if path in self._locked:
            raise StoreError(f"{path.parent} is in use by another broker: {path} is locked")
        drive = self.drive("lock")
        if path not in drive.names.files:
            self._store(path, StoredFile(0, drive.now_ms()), "create")
        return MountedLock(self, self._locked, path)
