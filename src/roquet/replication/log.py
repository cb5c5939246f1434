"""The interface of a commit log that replication reads from or appends to."""

from __future__ import annotations

from typing import Protocol


class ReplicatedLog(Protocol):
    """A commit log that is copied to slaves, or is a slave's copy."""

    file_size: int

    @property
    def start(self) -> int:
        """The lowest physical offset that is not deleted."""
        ...

    @property
    def end(self) -> int:
        """The physical offset after the last byte."""
        ...

    def read(self, physical: int, size_max: int) -> bytes:
        """Return up to `size_max` bytes from `physical` on, all of one segment and before `end`."""
        ...

    def replicate(self, physical: int, data: bytes | memoryview) -> None:
        """Append bytes of the master's log at the offset that they have there.

        :param physical: the log's end; if the log is empty, the start of any segment.
        """
        ...


def bytes_between(log: ReplicatedLog, start: int, end: int) -> bytes:
    """Return the log's bytes from `start` to `end` (exclusive), also across segments."""
    parts: list[bytes] = []
    while start < end:
        part = log.read(start, end - start)
        assert part, (
            f"the log has no byte at {start}, but begins at {log.start} and ends at {log.end}"
        )
        parts.append(part)
        start = start + len(part)
    return b"".join(parts)


class _VisibleEnd(Protocol):
    @property
    def visible_end(self) -> int:
        """The physical offset before which records may be read by others."""
        ...


class VisibleLog:
    """The part of the master's log that slaves and consumers may read.

    The master sends its slaves only what a crash of the master cannot take back. So after a crash
    it still has everything that its slaves have. Otherwise consumers could get from a slave a
    message whose offset the master gives to another message later.

    :param store: says where that part ends now.
    """

    def __init__(self, log: ReplicatedLog, store: _VisibleEnd) -> None:
        self._log = log
        self._store = store
        self.file_size = log.file_size

    @property
    def start(self) -> int:
        return self._log.start

    @property
    def end(self) -> int:
        return self._store.visible_end

    def read(self, physical: int, size_max: int) -> bytes:
        return self._log.read(physical, min(size_max, self.end - physical))

    def replicate(self, physical: int, data: bytes | memoryview) -> None:
        self._log.replicate(physical, data)
