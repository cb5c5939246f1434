"""How far each kind of file is known to be on disk.

See docs/storage/checkpoint.md#the-file.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from roquet.storage.files.disk import Disk

_TIMES: Final = Struct(">qqq")
_FILE_SIZE: Final = 4096
_MARGIN_MS: Final = 3000
_MARK: Final = Struct(">qqqqqqq")
_MARK_AT: Final = 64
_CHECKSUM: Final = Struct(">I")
_CHECKSUM_AT: Final = _MARK_AT + _MARK.size
_ENTRIES: Final = Struct(">qI")
_ENTRIES_AT: Final = _CHECKSUM_AT + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class CheckpointMark:
    """A place in the log: everything before it is durable in log, queues and index.

    `last_at` and `last_ms` are physical offset and store time of a record not far before it, so that another log is
    told from this one. `index_name` is the newest index file's name as a number, 0 for none; `index_count`
    and `index_end_ms` are what its header says. So many queues had entries (`queue_count`), and their ends were so much
    in all (`entry_count`, -1 where that is not known): with less, some were lost.
    """

    position: int
    last_at: int
    last_ms: int
    index_name: int
    index_count: int
    index_end_ms: int
    queue_count: int
    entry_count: int = -1


class Checkpoint:
    """Keeps: records stored before `log_ms` (`queues_ms`, `index_ms`) are durable in files of that kind.

    The times are Apache's; the mark is ours, behind what Apache writes. Both move together, with a new mark. `damage`
    says what of the file could not be read, nothing for a sound or missing one.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.log_ms = self.queues_ms = self.index_ms = 0
        self.mark: CheckpointMark | None = None
        self.damage = ""

    def load(self) -> None:
        """Read the file; a missing or short one counts as all zero: recovery begins at the log's start."""
        found = self._disk.read(self._path)
        data = found or b""
        if len(data) >= _TIMES.size:
            self.log_ms, self.queues_ms, self.index_ms = _TIMES.unpack_from(data)
        elif found is not None:
            self.damage = f"the file has {len(data)} bytes"
        if not self._read_mark(data):
            self.damage = "its mark does not have its checksum"

    def _read_mark(self, data: bytes) -> bool:
        """Tells whether all of it could be read, if there is one."""
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
        """Everything up to the record stored at `store_ms` is durable now; so is what `mark` says, if given."""
        if store_ms:
            self.log_ms = self.queues_ms = self.index_ms = store_ms
        self.mark = mark or self.mark

    def save(self) -> None:
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
        """Records stored before this moment are durable in log and queues alike."""
        return max(0, min(self.log_ms, self.queues_ms) - _MARGIN_MS)


def _entry_count(data: bytes) -> int | None:
    """What belongs to the mark before it; -1: marks of earlier versions are without it; None: it is damaged."""
    if not any(data[_ENTRIES_AT : _ENTRIES_AT + _ENTRIES.size]):
        return -1
    if len(data) < _ENTRIES_AT + _ENTRIES.size:
        return None
    count, checksum = _ENTRIES.unpack_from(data, _ENTRIES_AT)
    return int(count) if checksum == crc32(data[_MARK_AT : _ENTRIES_AT + 8]) else None
