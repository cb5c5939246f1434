"""The checkpoint file: up to when, and up to which physical offset, the store's files are durable.

See docs/storage/checkpoint.md#the-file.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from roquet.storage.files.disk import Disk

_TIMES: Final = Struct(">qqq")
_FILE_SIZE: Final = 4096
_MARGIN_MS: Final = 3000
"""Apache's recovery also goes back three seconds before the checkpoint's times."""
_MARK: Final = Struct(">qqqqqqq")
_MARK_AT: Final = 64
_CHECKSUM: Final = Struct(">I")
_CHECKSUM_AT: Final = _MARK_AT + _MARK.size
_ENTRIES: Final = Struct(">qI")
_ENTRIES_AT: Final = _CHECKSUM_AT + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class CheckpointMark:
    """A physical offset up to which log, queues and index are durable, and what identifies the log.

    At a start fewer queues or entries than the mark counts mean that files of queues were lost.
    """

    position: int
    """The physical offset."""
    last_at: int
    """Physical offset of a record shortly before `position`, by which the log is recognized."""
    last_ms: int
    """The store time of that record."""
    index_name: int
    """The newest index file's name as a number, 0 if there is no file."""
    index_count: int
    """Entries of that file, as in its header."""
    index_end_ms: int
    """Store time of its last entry, as in its header."""
    queue_count: int
    """Queues that have or had entries."""
    entry_count: int = -1
    """The sum of all queues' maximum offsets, -1 if it is not known."""

    def without(self, queues: int, entries: int) -> CheckpointMark:
        """The mark with fewer queues and entries."""
        return replace(
            self,
            queue_count=max(0, self.queue_count - queues),
            entry_count=max(-1, self.entry_count - entries),
        )


class Checkpoint:
    """The times up to which files are durable (Apache's part of the file), and our mark after them.

    Times and mark move together. `damage` says what of the file could not be read; it is empty for
    a sound or missing file.

    Invariant: records stored before `log_ms` (`queues_ms`, `index_ms`) are durable in the log
    (queues, index).
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.log_ms = self.queues_ms = self.index_ms = 0
        self.mark: CheckpointMark | None = None
        self.damage = ""

    def load(self) -> None:
        """Read the file. If it is missing or short, all times are 0: the whole log is checked."""
        found = self._disk.read(self._path)
        data = found or b""
        if len(data) >= _TIMES.size:
            self.log_ms, self.queues_ms, self.index_ms = _TIMES.unpack_from(data)
        elif found is not None:
            self.damage = f"the file has {len(data)} bytes"
        if not self._read_mark(data):
            self.damage = "its mark does not have its checksum"

    def _read_mark(self, data: bytes) -> bool:
        """Read the mark if there is one; returns False if a part of it is damaged."""
        if len(data) < _CHECKSUM_AT + _CHECKSUM.size:
            return True
        (checksum,) = _CHECKSUM.unpack_from(data, _CHECKSUM_AT)
        if checksum != crc32(data[_MARK_AT:_CHECKSUM_AT]):
            return not any(data[_MARK_AT:_ENTRIES_AT])
        count = _entry_count(data)
        self.mark = CheckpointMark(
            *(*_MARK.unpack_from(data, _MARK_AT), -1 if count is None else count)
        )
        return count is not None

    def note(self, store_ms: int, mark: CheckpointMark | None) -> None:
        """Move times and mark; `save` writes them.

        :param store_ms: store time of the last durable record, 0 to leave the times as they are.
        :param mark: None to leave the mark as it is.
        """
        if store_ms:
            self.log_ms = self.queues_ms = self.index_ms = store_ms
        self.mark = mark or self.mark

    def save(self) -> None:
        """Replace the file, durably."""
        times = _TIMES.pack(self.log_ms, self.queues_ms, self.index_ms).ljust(_MARK_AT, b"\0")
        mark = b""
        if self.mark is not None:
            *values, entry_count = astuple(self.mark)
            mark = _MARK.pack(*values)
            mark += _CHECKSUM.pack(crc32(mark))
            mark += _ENTRIES.pack(
                entry_count, crc32(mark + entry_count.to_bytes(8, "big", signed=True))
            )
        self._disk.replace(self._path, (times + mark).ljust(_FILE_SIZE, b"\0"))

    @property
    def safe_ms(self) -> int:
        """Records stored before this time (ms) are durable both in the log and in the queues."""
        return max(0, min(self.log_ms, self.queues_ms) - _MARGIN_MS)


def _entry_count(data: bytes) -> int | None:
    """The mark's `entry_count`; -1: an earlier version wrote none; None: it is damaged."""
    if not any(data[_ENTRIES_AT : _ENTRIES_AT + _ENTRIES.size]):
        return -1
    if len(data) < _ENTRIES_AT + _ENTRIES.size:
        return None
    count, checksum = _ENTRIES.unpack_from(data, _ENTRIES_AT)
    return int(count) if checksum == crc32(data[_MARK_AT : _ENTRIES_AT + 8]) else None
