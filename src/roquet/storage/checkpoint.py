"""How far each kind of file is known to be on disk, as store times in ms (store-and-ha.md 3.7)."""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final

from roquet.storage.disk import Disk

_TIMES: Final = Struct(">qqq")
_FILE_SIZE: Final = 4096
_MARGIN_MS: Final = 3000


class Checkpoint:
    """Keeps: records stored before `log_ms` (`queues_ms`, `index_ms`) are durable in files of that kind."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.log_ms = self.queues_ms = self.index_ms = 0

    def load(self) -> None:
        """Read the file; a missing or short one counts as all zero: recovery begins at the log's start."""
        data = self._disk.read(self._path)
        if data is not None and len(data) >= _TIMES.size:
            self.log_ms, self.queues_ms, self.index_ms = _TIMES.unpack_from(data)

    def note(self, store_ms: int) -> None:
        """Everything up to the record stored at `store_ms` is durable now."""
        if store_ms:
            self.log_ms = self.queues_ms = self.index_ms = store_ms

    def save(self) -> None:
        times = _TIMES.pack(self.log_ms, self.queues_ms, self.index_ms)
        self._disk.replace(self._path, times.ljust(_FILE_SIZE, b"\0"))

    @property
    def safe_ms(self) -> int:
        """Records stored before this moment are durable in log and queues alike."""
        return max(0, min(self.log_ms, self.queues_ms) - _MARGIN_MS)
