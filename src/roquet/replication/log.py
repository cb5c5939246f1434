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
