"""Key and time -> physical offsets.

Keys are gathered, then hashed and linked in one pass over columns, not one by one; a query sees them all.

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
"""Keys; 2 ms."""
_MANY_KEYS: Final = 256
"""Of one record; they are noted in columns."""
_ROUNDS_MAX: Final = 8
_RESERVED_AT_ONCE: Final = 1024 * 1024
_CHAINED_AT_ONCE: Final = 1 << 20
_LOOKED_AT_ONCE: Final = 32
"""Entries of a chain that are looked at in one step; each takes some 3 us."""


class IndexFile:
    """One file: hash slots, and entries chained from them.

    Keeps: entry 0 is never used; `count` is the number of the next entry; a slot names the newest entry of its
    chain, an entry the one before it; what was there when the file had `_synced` entries is durable.
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
        """Up to where the file has room on the drive."""

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return self._capacity - self.count

    def continue_from(self, end_ms: int, end_at: int) -> None:
        """Begin where the file before ended, until the first entry says better."""
        self.begin_ms = self.end_ms = end_ms
        self.begin_at = self.end_at = end_at

    def add(self, hashes: Ints, offsets: Ints, times_ms: Ints) -> None:
        """Chain entries, oldest first; there must be places for them.

        :raises OSError: the drive is full, or the file has lost bytes; nothing changed.
        """
        self._file.require_whole()
        count, more = self.count, len(hashes)
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
        """See to it that the drive has room for all slots and the entries before number `count`."""
        end = entry_at(len(self._slots), count)
        if end > self._room_to:
            room_to = min(self._file.size, end + _RESERVED_AT_ONCE)
            self._file.reserve(self._room_to, room_to)
            self._room_to = room_to

    def cut(self, count: int, end_ms: int) -> None:
        """Forget the entries from number `count` on; the ones before it and their chains are as they were then.

        :param end_ms: store time of the record of the last entry that stays.
        :raises OSError: the drive is full, and this file has no room yet; nothing changed.
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
        self.count, self._synced = count, 0
        self.end_ms, self.end_at = end_ms, self.place(count - 1)
        self._save_header()

    def place(self, number: int) -> int:
        """The physical offset of an entry."""
        return int(self._entries["at"][number])

    def count_before(self, log_end: int) -> int:
        """`count` if only the entries of records before `log_end` were there; they are in the records' order."""
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

        Millions of messages may have one key, and so one chain. If the file is given up between two steps, what was
        found so far is all.
        """
        found: list[int] = []
        if self.count == 1:  # a look at the slots may need room on the drive (tmpfs)
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
        """Whether all entries are on disk."""
        return self.count == self._synced

    def sync_work(self) -> Callable[[], None] | None:
        """What makes all entries of now durable, may be called off the loop; None where they are."""
        if self.is_durable:
            return None
        count = self.count

        def work() -> None:
            with suppress(
                UnreadableFile
            ):  # which was told of; its keys are found for as long as this process runs
                self._file.sync(0, self._file.size)
            self._synced = count

        return work

    def let_go(self) -> DiskFile:
        """Use the file no more; it is for the caller to close."""
        del self._slots, self._entries
        self._is_in_use = False
        return self._file

    def close(self) -> None:
        self.let_go().close()


@dataclass(slots=True)
class _Keys:
    """Keys of one size, of records of one topic: one by one, and `blocks` of many that were stored together.

    A block has its keys end to end, the place of each one's record, a physical offset to which these are to be added,
    and each record's store time or the one of all.
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
    """All index files, by age.

    Keeps: `_noted` are keys of records already in the log, by topic and size; `_parts` are those of records before
    these, oldest first, and `_hashed` what was made of still earlier ones, until `flush` has chained them all.
    """

    def __init__(self, disk: Disk, folder: Path, slots: int, entries: int) -> None:
        self._disk = disk
        self._folder = folder
        self._slots = slots
        self._capacity = entries
        self._size = entry_at(slots, entries)
        self._noted: dict[tuple[str, int], _Keys] = {}
        self._noted_count = 0
        self._parts: deque[dict[tuple[str, int], _Keys]] = deque()
        self._parts_hashed = 0
        """How many parts were taken from there so far."""
        self._hashed = _NOTHING
        self.files: list[IndexFile] = []

    def forget_cached(self) -> None:
        """Read all files anew; before `load`."""
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
                    "%s is left alone: an index file has 17 digits as name and %d bytes",
                    path,
                    self._size,
                )

    def cut_to_mark(self, name: int, count: int, end_ms: int) -> bool:
        """After a crash: let the index end with file `name` and its `count` entries.

        False: that file is not there, or cannot be cut.
        """
        if name and name not in (int(file.path.name) for file in self.files):
            return False
        while self.files and int(self.files[-1].path.name) != name:
            self._forget(self.files.pop())()
        if not self.files:
            return True
        try:
            self.files[-1].cut(count, end_ms)
        except OSError as error:
            log.warning(
                "index file cannot be cut, it is rebuilt: path=%s error=%s",
                self.files[-1].path,
                error,
            )
            return False
        return True

    def cut_to_time(self, valid_until_ms: int) -> int | None:
        """After a crash: delete every file with later entries.

        Gives the physical offset from which the log must be dispatched again to refill those, None for nowhere.
        """
        late = [file for file in self.files if file.end_ms > valid_until_ms]
        self.files = [file for file in self.files if file.end_ms <= valid_until_ms]
        for file in late:
            self._forget(file)()
        return min((file.begin_at for file in late), default=None)

    def cut_to_place(self, log_end: int, store_ms: Callable[[int], int]) -> None:
        """Forget the entries of records from `log_end` on.

        :param store_ms: store time of the record at a physical offset.
        """
        while self.files and (last := self.files[-1]).end_at >= log_end:
            count = last.count_before(log_end)
            if count > 1:
                last.cut(count, store_ms(last.place(count - 1)))
                return
            self._forget(self.files.pop())()

    @property
    def end_at(self) -> int:
        """The newest physical offset that is indexed."""
        return self.files[-1].end_at if self.files else -1

    @property
    def end_ms(self) -> int:
        return self.files[-1].end_ms if self.files else 0

    @property
    def mark(self) -> tuple[int, int, int]:
        """Name as a number, entry count and last store time of the newest file; zeros without files."""
        if not self.files:
            return 0, 0, 0
        file = self.files[-1]
        return int(file.path.name), file.count, file.end_ms

    def add(self, topic: str, keys: Sequence[bytes], at: int, store_ms: int) -> None:
        """Note a record's keys; `flush` makes them findable."""
        if len(keys) >= _MANY_KEYS:
            self._add_one_records(topic, keys, at, store_ms)
            return
        for key in keys:
            noted = self._noted.get((topic, len(key))) or self._alike(topic, len(key))
            noted.keys.append(key)
            noted.places.append(at)
            noted.times_ms.append(store_ms)
        self._noted_count += len(keys)

    def add_many(
        self,
        topic: str,
        keys: bytes | bytearray,
        places: Ints | ShortInts,
        store_ms: int | Ints,
        base: int = 0,
    ) -> None:
        """Note a key of each of several records; the keys, of one size, end to end.

        :param places: physical offsets, less `base`.
        """
        size = len(keys) // len(places)
        noted = self._noted.get((topic, size)) or self._alike(topic, size)
        noted.blocks.append((keys, places, base, store_ms))
        self._noted_count += len(places)

    def _add_one_records(self, topic: str, keys: Sequence[bytes], at: int, store_ms: int) -> None:
        for size, text in keys_by_size(keys).items():
            self.add_many(topic, text, np.full(len(text) // size, at), store_ms)
        self.end_part()

    def end_part(self) -> None:
        """What is noted from now on is of later records. Many keys that were noted before are chained by themselves."""
        if self._noted_count >= _KEYS_PER_PASS:
            self._parts.append(self._noted)
            self._noted, self._noted_count = {}, 0

    def _alike(self, topic: str, size: int) -> _Keys:
        noted = self._noted[topic, size] = _Keys([], [], [], [])
        return noted

    @property
    def is_due(self) -> bool:
        """Whether enough keys are noted for a pass over columns to pay."""
        return self._noted_count >= _KEYS_PER_PASS or bool(self._parts) or len(self._hashed) > 0

    def flush(self) -> None:
        """Chain all noted keys, in the order of their records.

        :raises OSError: there is no room for another file; what is not chained yet stays noted.
        """
        finished(self.flush_steps())

    def flush_steps(self) -> Steps[None]:
        """The same, some thousands of keys in a step; nothing is left when it ends.

        Batches with a million keys may come between two steps. Their keys are chained in steps as well, but not for
        ever: after so many rounds what is left is chained in the last step.
        """
        for _ in range(_ROUNDS_MAX):
            until = self._parts_hashed + len(self._parts)
            while self._parts_hashed < until or len(self._hashed):
                self.flush_some()
                yield
            if not self._parts:
                break
        while self._noted_count or self._parts or len(self._hashed):
            self.flush_some()

    def flush_some(self) -> None:
        """Chain the oldest of the noted keys, where they are many.

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
        """Turn the oldest part of what was noted into rows of hash, physical offset and store time."""
        if self._parts:
            noted = self._parts.popleft()
            self._parts_hashed += 1
        else:
            noted, self._noted, self._noted_count = self._noted, {}, 0
        parts = [_NOTHING]
        for (topic, size), alike in noted.items():
            hashes = key_hashes(topic, alike.text, size)
            parts.append(np.stack((hashes, *alike.rows()), axis=1))
        rows = np.concatenate(parts)
        self._hashed = rows[np.argsort(rows[:, 1], kind="stable")]

    def _grow(self, now_ms: int) -> None:
        """Add a file, named by its time of creation, behind all others: also one that waits to be deleted.

        Their names say in which order they were made, to recovery as to Apache's broker: after one that was made before
        the clock was set back, or an hour that summer time repeats, the next higher number has to do.
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
        """Physical offsets of at most `count_max` records that may have that key, newest first; see `flush`.

        Only hashes are compared: whoever asked checks the key itself (docs/pitfalls.md#trap-45).
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
        """What makes all chained keys durable; may be called off the loop."""
        return [work for file in self.files if (work := file.sync_work()) is not None]

    def forget_before(self, log_start: int) -> list[Deletion]:
        """Forget files whose records are gone, but for the last; what deletes them may be called off the loop."""
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
    """`yyyyMMddHHmmssSSS` in local time, of the first or last year that has a name where a damaged record says less
    or more."""
    now_ms = min(max(now_ms, _TIME_MIN_MS), _TIME_MAX_MS)
    return datetime.fromtimestamp(now_ms / 1000).strftime("%Y%m%d%H%M%S") + f"{now_ms % 1000:03d}"  # noqa: DTZ006
