"""What replication needs of a commit log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from roquet.common.units import PhysicalOffset


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

    def read(self, at: PhysicalOffset, size_max: int) -> bytes:
        """Contiguous bytes of one file, never beyond the end."""
        ...

    def replicate(self, at: PhysicalOffset, data: bytes | memoryview) -> None:
        """The same bytes at the same place: the end, or the start of a file if the log is empty."""
        ...


def bytes_between(log: ReplicatedLog, start: PhysicalOffset, end: PhysicalOffset) -> bytes:
    """The log's bytes from `start` to `end`, in whatever files they are."""
    parts: list[bytes] = []
    while start < end:
        part = log.read(start, end - start)
        assert part, (
            f"the log has no byte at {start}, but begins at {log.start} and ends at {log.end}"
        )
        parts.append(part)
        start = PhysicalOffset(start + len(part))
    return b"".join(parts)


class VisibleLog:
    """The part of a log that anybody but its own broker may see.

    A master sends its slaves no more than what a failure leaves it: afterwards it has everything that they have, and
    nobody consumed from them what it would write anew.

    :param end: where that part ends now.
    """

    def __init__(self, log: ReplicatedLog, end: Callable[[], PhysicalOffset]) -> None:
        self._log = log
        self._end = end
        self.file_size = log.file_size

    @property
    def start(self) -> PhysicalOffset:
        return self._log.start

    @property
    def end(self) -> PhysicalOffset:
        return self._end()

    def read(self, at: PhysicalOffset, size_max: int) -> bytes:
        return self._log.read(at, min(size_max, self.end - at))

    def replicate(self, at: PhysicalOffset, data: bytes | memoryview) -> None:
        self._log.replicate(at, data)
