"""The index: key and store time -> physical offsets of records.

New keys are collected in memory, and then hashed and chained many at a time, in columns. A query
flushes them first, so that it finds all of them.

See docs/storage/index.md.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from roquet.common.steps import Steps, finished
from roquet.errors import UnreadableFile
from roquet.protocol.records.columns import Ints, ShortInts
from roquet.storage.files.deletion import Deletion
from roquet.storage.files.disk import Disk, DiskFile
from roquet.storage.files.segments import is_number
from roquet.storage.index.layout import (
    ENTRY,
    HEADER,
    NAME_DIGITS,
    SLOT,
    entry_at,
    key_hash,
    key_hashes,
    slot_at,
)
from roquet.storage.log.dispatch_request import keys_by_size

log = logging.getLogger(__name__)

_TIME_MIN_MS: Final = 0
_TIME_MAX_MS: Final = 253_402_000_000_000
_KEYS_PER_PASS: Final = 2048
_CHAINED_PER_STEP: Final = 8192
"""Keys that are chained in one step; they take 2 ms."""
_MANY_KEYS: Final = 256
"""The keys of a record that has this many are collected in columns."""
_ROUNDS_MAX: Final = 8
_RESERVED_AT_ONCE: Final = 1024 * 1024
"""Bytes reserved on the drive at a time, so that few flushes need a system call."""
_CHAINED_AT_ONCE: Final = 1 << 20
_LOOKED_AT_ONCE: Final = 32
"""Entries of a chain that are read in one step; each takes some 3 us."""


class IndexFile:
    """One index file: hash slots, and chains of entries that begin at them.

    Invariant: entry 0 is never used, and `count` is the number of the next entry. A slot has the
    number of the newest entry of its chain, an entry that of the one before it. The state of the
    file with `_synced` entries is durable.
    """

    def __init__(self, file: DiskFile, path: Path, slots: int, entries: int) -> None:
        self.path = path
        self._file = file
        self._capacity = entries
        self._slots: npt.NDArray[Any] = np.frombuffer(file.buffer, SLOT, slots, slot_at(0))
        self._entries: npt.NDArray[Any] = np.frombuffer(
            file.buffer, ENTRY, entries, entry_at(slots, 0)
        )
        header = HEADER.unpack(file.read(0, HEADER.size))
        self.begin_ms, self.end_ms, self.begin_at, self.end_at, self._used_slots, count = header
        self.count: int = min(max(count, 1), entries)
        self._synced = 0
        self._is_in_use = True
        self._room_to = 0
        """The byte up to which the file has room on the drive."""

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return self._capacity - self.count

    def continue_from(self, end_ms: int, end_at: int) -> None:
        """Begin a new file where the one before it ended; the first entry sets the true values."""
        self.begin_ms = self.end_ms = end_ms
        self.begin_at = self.end_at = end_at

    def add(self, hashes: Ints, offsets: Ints, times_ms: Ints) -> None:
        """Append entries, oldest first, to their chains; the file must have `room` for them.

        :raises OSError: the drive is full, or the file was truncated; nothing changed.
        """
        self._file.require_whole()
        count = self.count
        more = len(hashes)
        assert more <= self.room, f"{more} entries for an index file with room for {self.room}"
        self._reserve(count + more)
        if count == 1:
            self.begin_ms, self.begin_at = int(times_ms[0]), int(offsets[0])
        numbers = np.arange(count, count + more)
        slots = hashes % len(self._slots)
        previous = self._slots[slots].astype(np.int64)
        previous[(previous < 0) | (previous >= count)] = 0
        order = np.argsort(slots, kind="stable")
        same = slots[order][1:] == slots[order][:-1]
        previous[order[1:][same]] = numbers[order[:-1][same]]
        entries = self._entries[count : count + more]
        entries["hash"] = hashes
        entries["at"] = offsets
        seconds = (times_ms - self.begin_ms) // 1000
        entries["seconds"] = (
            np.minimum(np.maximum(seconds, 0), 0x7FFFFFFF) if self.begin_ms > 0 else 0
        )
        entries["previous"] = previous
        last = np.append(~same, True)
        self._slots[slots[order[last]]] = numbers[order[last]]
        self._used_slots += int(np.count_nonzero(previous == 0))
        self.count = count + more
        self.end_ms, self.end_at = int(times_ms[-1]), int(offsets[-1])
        self._save_header()

    def _reserve(self, count: int) -> None:
        """Reserve room on the drive for all slots and the entries before number `count`."""
        end = entry_at(len(self._slots), count)
        if end > self._room_to:
            room_to = min(self._file.size, end + _RESERVED_AT_ONCE)
            self._file.reserve(self._room_to, room_to)
            self._room_to = room_to

    def truncate(self, count: int, end_ms: int) -> None:
        """Drop the entries from number `count` on, and restore the chains of those before it.

        :param end_ms: store time of the record of the last entry that stays.
        :raises OSError: the drive is full, and the file has no room yet; nothing changed.
        """
        self._file.require_whole()
        self._reserve(count)
        slots = self._slots
        is_later = (slots >= count) | (slots < 0)
        slots[is_later] = 0
        for first in range(1, count, _CHAINED_AT_ONCE):
            numbers = np.arange(first, min(count, first + _CHAINED_AT_ONCE))
            used = self._entries["hash"][numbers] % len(slots)
            is_lost = is_later[used]
            slots[used[is_lost]] = numbers[is_lost]
        self._used_slots = int(np.count_nonzero(slots))
        self.count = count
        self._synced = 0
        self.end_ms = end_ms
        self.end_at = self.place(count - 1)
        self._save_header()

    def place(self, number: int) -> int:
        """The physical offset of an entry."""
        return int(self._entries["at"][number])

    def count_before(self, log_end: int) -> int:
        """`count` without the entries of records from `log_end` on."""
        return 1 + int(np.searchsorted(self._entries["at"][1 : self.count], log_end))

    def _save_header(self) -> None:
        times = (
            self.begin_ms,
            self.end_ms,
            self.begin_at,
            self.end_at,
            self._used_slots,
            self.count,
        )
        HEADER.pack_into(self._file.buffer, 0, *times)

    def find(self, wanted: int, begin_ms: int, end_ms: int, count_max: int) -> Steps[list[int]]:
        """Physical offsets of entries with the hash `wanted` and a time in the range, newest first.

        It runs in steps, since millions of messages may have the same key and so be in one chain.
        If the file is deleted between two steps, it returns what it has found.

        :param begin_ms: inclusive; `end_ms` as well. Entries have their times in seconds.
        """
        found: list[int] = []
        if self.count == 1:  # without entries: reading the slots may need room on the drive (tmpfs)
            return found
        self._file.require_whole()
        number = int(self._slots[wanted % len(self._slots)])
        looked_at = 0
        while 0 < number < self.count and len(found) < count_max:
            looked_at += 1
            if not looked_at % _LOOKED_AT_ONCE:
                yield
                if not self._is_in_use:
                    break
                self._file.require_whole()
            entry_hash, at, seconds, previous = self._entries[number].tolist()
            time_ms = self.begin_ms + seconds * 1000
            if seconds < 0 or time_ms + 999 < begin_ms:
                break
            if entry_hash == wanted and time_ms <= end_ms:
                found.append(at)
            if previous >= number:
                break
            number = previous
        return found

    @property
    def is_durable(self) -> bool:
        """Whether all entries are durable."""
        return self.count == self._synced

    def sync_work(self) -> Callable[[], None] | None:
        """A function that makes the present entries durable, also off the loop, or None."""
        if self.is_durable:
            return None
        count = self.count

        def work() -> None:
            # a deleted file has been logged; its keys are found while this process runs
            with suppress(UnreadableFile):
                self._file.sync(0, self._file.size)
            self._synced = count

        return work

    def let_go(self) -> DiskFile:
        """Stop to use the file; the caller closes it."""
        del self._slots, self._entries
        self._is_in_use = False
        return self._file

    def close(self) -> None:
        self.let_go().close()


@dataclass(slots=True)
class _Keys:
    """Collected keys of one size and topic: single ones, and `blocks` of records stored together.

    A block has its keys end to end, for each key the physical offset of its record less a base, the
    base, and the store time of each record or of all.
    """

    keys: list[bytes]
    places: list[int]
    times_ms: list[int]
    blocks: list[tuple[bytes | bytearray, Ints | ShortInts, int, int | Ints]]

    @property
    def text(self) -> bytes:
        """All keys, end to end."""
        return b"".join([*self.keys, *(block[0] for block in self.blocks)])

    def rows(self) -> tuple[Ints, Ints]:
        """Physical offset and store time of each key in `text`."""
        places = (
            places.astype(np.int64) + base if base else places for _, places, base, _ in self.blocks
        )
        offsets = np.concatenate([np.array(self.places, np.int64), *places])
        times = [np.full(len(places), store_ms) for _, places, _, store_ms in self.blocks]
        return offsets, np.concatenate([np.array(self.times_ms, np.int64), *times])


_NOTHING: Final[Ints] = np.empty((0, 3), np.int64)


class Index:
    """All index files, oldest first, and the keys that were collected for them.

    Invariant: all collected keys are of records that are in the log. `_collected` has the keys of
    the newest records, by topic and size; `_parts` has those of earlier records, oldest first;
    `_hashed` has the rows (hash, physical offset, store time) of still earlier ones. `flush` chains
    all of them.
    """

    def __init__(self, disk: Disk, folder: Path, slots: int, entries: int) -> None:
        self._disk = disk
        self._folder = folder
        self._slots = slots
        self._capacity = entries
        self._size = entry_at(slots, entries)
        self._collected: dict[tuple[str, int], _Keys] = {}
        self._collected_count = 0
        self._parts: deque[dict[tuple[str, int], _Keys]] = deque()
        self._parts_hashed = 0
        """How many parts were taken off `_parts` so far."""
        self._hashed = _NOTHING
        self.files: list[IndexFile] = []

    def forget_cached(self) -> None:
        """Drop the cached pages of all files; to be called before `load`."""
        for name, _ in self._disk.names(self._folder):
            self._disk.forget_cached(self._folder / name)

    def load(self) -> None:
        """Open the files."""
        for name, size in self._disk.names(self._folder):
            path = self._folder / name
            if len(name) == NAME_DIGITS and is_number(name) and size == self._size:
                file = IndexFile(
                    self._disk.open(path, self._size), path, self._slots, self._capacity
                )
                self.files.append(file)
            else:
                log.warning(
                    "file is ignored, it is no index file (17 digits as name, and this size): "
                    "path=%s bytes=%d index_file_bytes=%d", path, size, self._size,
                )  # fmt: skip

    def truncate_to_mark(self, name: int, count: int, end_ms: int) -> bool:
        """After a crash: truncate the index to the state of a checkpoint mark.

        :param name: of the newest file, as a number; 0 for none. `count` and `end_ms` are the
            file's.
        :returns: False if the file does not exist or cannot be truncated.
        """
        if name and name not in (int(file.path.name) for file in self.files):
            return False
        while self.files and int(self.files[-1].path.name) != name:
            self._forget(self.files.pop())()
        if not self.files:
            return True
        try:
            self.files[-1].truncate(count, end_ms)
        except OSError as error:
            log.warning(
                "index file cannot be truncated, it will be rebuilt: path=%s error=%s",
                self.files[-1].path,
                error,
            )
            return False
        return True

    def truncate_to_time(self, valid_until_ms: int) -> int | None:
        """After a crash: delete every file with entries of records stored after a time (ms).

        :returns: the physical offset from which the log must be dispatched to the index again; None
            if no file was deleted.
        """
        late = [file for file in self.files if file.end_ms > valid_until_ms]
        self.files = [file for file in self.files if file.end_ms <= valid_until_ms]
        for file in late:
            self._forget(file)()
        return min((file.begin_at for file in late), default=None)

    def truncate(self, log_end: int, store_ms: Callable[[int], int]) -> None:
        """Drop the entries of records from physical offset `log_end` on.

        :param store_ms: returns the store time of the record at a physical offset.
        """
        while self.files and (last := self.files[-1]).end_at >= log_end:
            count = last.count_before(log_end)
            if count > 1:
                last.truncate(count, store_ms(last.place(count - 1)))
                return
            self._forget(self.files.pop())()

    @property
    def end_at(self) -> int:
        """The physical offset of the newest indexed record; -1 without files."""
        return self.files[-1].end_at if self.files else -1

    @property
    def end_ms(self) -> int:
        """The store time of the newest indexed record, ms; 0 without files."""
        return self.files[-1].end_ms if self.files else 0

    @property
    def mark(self) -> tuple[int, int, int]:
        """Name as a number, entry count and last store time of the newest file; zeros if none."""
        if not self.files:
            return 0, 0, 0
        file = self.files[-1]
        return int(file.path.name), file.count, file.end_ms

    def add(self, topic: str, keys: Sequence[bytes], at: int, store_ms: int) -> None:
        """Collect a record's keys; `flush` writes them to the index."""
        if len(keys) >= _MANY_KEYS:
            self._add_one_records(topic, keys, at, store_ms)
            return
        for key in keys:
            alike = self._collected.get((topic, len(key))) or self._alike(topic, len(key))
            alike.keys.append(key)
            alike.places.append(at)
            alike.times_ms.append(store_ms)
        self._collected_count += len(keys)

    def add_many(
        self,
        topic: str,
        keys: bytes | bytearray,
        places: Ints | ShortInts,
        store_ms: int | Ints,
        base: int = 0,
    ) -> None:
        """Collect one key for each of several records.

        :param keys: of one size, end to end.
        :param places: physical offset of each key's record, less `base`.
        :param store_ms: of each record, or one time for all.
        """
        size = len(keys) // len(places)
        alike = self._collected.get((topic, size)) or self._alike(topic, size)
        alike.blocks.append((keys, places, base, store_ms))
        self._collected_count += len(places)

    def _add_one_records(self, topic: str, keys: Sequence[bytes], at: int, store_ms: int) -> None:
        for size, text in keys_by_size(keys).items():
            self.add_many(topic, text, np.full(len(text) // size, at), store_ms)
        self.end_part()

    def end_part(self) -> None:
        """Close a part of the keys, if they are many; later keys are of later records."""
        if self._collected_count >= _KEYS_PER_PASS:
            self._parts.append(self._collected)
            self._collected, self._collected_count = {}, 0

    def _alike(self, topic: str, size: int) -> _Keys:
        alike = self._collected[topic, size] = _Keys([], [], [], [])
        return alike

    @property
    def is_due(self) -> bool:
        """Whether enough keys are collected to chain them in columns cheaply."""
        return self._collected_count >= _KEYS_PER_PASS or bool(self._parts) or len(self._hashed) > 0

    def flush(self) -> None:
        """Chain all collected keys, in the order of their records.

        :raises OSError: there is no room for another file; keys that are not chained stay
            collected.
        """
        finished(self.flush_steps())

    def flush_steps(self) -> Steps[None]:
        """`flush` in steps of some thousands of keys; no key is left when it ends.

        Batches with a million keys may arrive between two steps. Their keys are chained in steps as
        well, but not for ever: after `_ROUNDS_MAX` rounds the last step chains all that are left.
        """
        for _ in range(_ROUNDS_MAX):
            until = self._parts_hashed + len(self._parts)
            while self._parts_hashed < until or len(self._hashed):
                self.flush_some()
                yield
            if not self._parts:
                break
        while self._collected_count or self._parts or len(self._hashed):
            self.flush_some()

    def flush_some(self) -> None:
        """Chain the oldest collected keys, `_CHAINED_PER_STEP` at most.

        :raises OSError: as `flush`.
        """
        if not len(self._hashed):
            self._hash()
        left = _CHAINED_PER_STEP
        while left and len(self._hashed):
            if not self.files or not self.files[-1].room:
                self._grow(int(self._hashed[0, 2]))
            chained = self._hashed[: min(left, self.files[-1].room)]
            self.files[-1].add(chained[:, 0], chained[:, 1], chained[:, 2])
            self._hashed = self._hashed[len(chained) :]
            left -= len(chained)

    def _hash(self) -> None:
        """Turn the oldest part of the keys into rows of hash, physical offset and store time."""
        if self._parts:
            part = self._parts.popleft()
            self._parts_hashed += 1
        else:
            part, self._collected, self._collected_count = self._collected, {}, 0
        parts = [_NOTHING]
        for (topic, size), alike in part.items():
            hashes = key_hashes(topic, alike.text, size)
            parts.append(np.stack((hashes, *alike.rows()), axis=1))
        rows = np.concatenate(parts)
        self._hashed = rows[np.argsort(rows[:, 1], kind="stable")]

    def _grow(self, now_ms: int) -> None:
        """Add a file, named by its time of creation, or by a higher number than all other files.

        Recovery and Apache's broker order files by name. So after a clock that was set back, or in
        an hour that the end of summer time repeats, the name is the next number after the newest
        file's. Files that wait for their deletion count, too.
        """
        names = [file.path.name for file in self.files] + [
            name for name, _ in self._disk.names(self._folder)
        ]
        newest = max(
            (name for name in names if len(name) == NAME_DIGITS and is_number(name)), default="0"
        )
        name = max(_time_name(now_ms), f"{int(newest) + 1:0{NAME_DIGITS}d}")
        path = self._folder / name
        fresh = IndexFile(self._disk.open(path, self._size), path, self._slots, self._capacity)
        if self.files:
            fresh.continue_from(self.files[-1].end_ms, self.files[-1].end_at)
        self.files.append(fresh)

    def find(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int
    ) -> Steps[list[int]]:
        """Physical offsets of at most `count_max` records that may have a key, newest first.

        The caller flushes first. Only hashes are compared, so the caller has to check the key
        itself (docs/pitfalls.md#trap-45).
        """
        wanted, found = key_hash(topic, key), list[int]()
        for file in self.files[::-1]:
            yield
            if file in self.files and file.begin_ms <= end_ms and file.end_ms >= begin_ms:
                found += yield from file.find(wanted, begin_ms, end_ms, count_max - len(found))
            if len(found) >= count_max or file.begin_ms < begin_ms:
                break
        return found

    def sync_work(self) -> list[Callable[[], None]]:
        """Functions that make all chained keys durable; they may run off the loop."""
        return [work for file in self.files if (work := file.sync_work()) is not None]

    def forget_before(self, log_start: int) -> list[Deletion]:
        """Forget all files but the last whose records are before `log_start`; returns deletions."""
        deletions: list[Deletion] = []
        while len(self.files) > 1 and self.files[0].end_at < log_start and self.files[0].is_durable:
            deletions.append(self._forget(self.files.pop(0)))
        return deletions

    def _forget(self, file: IndexFile) -> Deletion:
        return Deletion(self._disk, file.path, file.let_go())

    def close(self) -> None:
        for file in self.files:
            file.close()
        self.files.clear()


def _time_name(now_ms: int) -> str:
    """`yyyyMMddHHmmssSSS` in local time; a damaged record's time is taken for 1970 or 9999."""
    now_ms = min(max(now_ms, _TIME_MIN_MS), _TIME_MAX_MS)
    local = datetime.fromtimestamp(now_ms / 1000)  # noqa: DTZ006
    return local.strftime("%Y%m%d%H%M%S") + f"{now_ms % 1000:03d}"
