"""What replication needs of a commit log."""

from __future__ import annotations

from typing import Protocol

from roquet.units import PhysicalOffset


class ReplicatedLog(Protocol):
    """A log that can be copied, or be a copy."""

    file_size: int

    @property
    def start(self) -> PhysicalOffset:
        """The first offset that still exists."""
        ...

    @property
    def end(self) -> PhysicalOffset:
        """Where the next record goes."""
        ...

    def read(self, at: PhysicalOffset, size_max: int) -> memoryview:
        """Contiguous bytes of one file, never beyond the end."""
        ...

    def replicate(self, at: PhysicalOffset, data: bytes | memoryview) -> None:
        """The same bytes at the same place: the end, or the start of a file if the log is empty."""
        ...


def bytes_between(log: ReplicatedLog, start: PhysicalOffset, end: PhysicalOffset) -> bytes:
    """The log's bytes from `start` to `end`, in whatever files they are."""
    parts: list[bytes] = []
    while start < end:
        part = bytes(log.read(start, end - start))
        assert part, f"the log has no byte at {start}, but begins at {log.start} and ends at {log.end}"
        parts.append(part)
        start = PhysicalOffset(start + len(part))
    return b"".join(parts)


class DurablePart:
    """The part of a log that is on disk.

    A master that promises to sync before it answers sends its slaves no more than this: after a power failure it has
    everything that they have, and nobody consumed from them what it would write anew.
    """

    def __init__(self, log: SyncedLog) -> None:
        self._log = log
        self.file_size = log.file_size

    @property
    def start(self) -> PhysicalOffset:
        return self._log.start

    @property
    def end(self) -> PhysicalOffset:
        return self._log.flushed_to

    def read(self, at: PhysicalOffset, size_max: int) -> memoryview:
        return self._log.read(at, min(size_max, self.end - at))

    def replicate(self, at: PhysicalOffset, data: bytes | memoryview) -> None:
        self._log.replicate(at, data)


class SyncedLog(ReplicatedLog, Protocol):
    """A log that knows how much of it is on disk."""

    flushed_to: PhysicalOffset
