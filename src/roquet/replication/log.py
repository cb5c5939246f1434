"""The commit log, as replication reads it and appends to it."""

from __future__ import annotations

from typing import Protocol

from roquet.storage.store import Store


class ReplicatedLog(Protocol):
    """A commit log that is copied to slaves."""

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


class SlaveLog(ReplicatedLog, Protocol):
    """A slave's copy of the commit log."""

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


class VisibleLog:
    """The part of the master's log that slaves and consumers may read.

    A master sends its slaves only what its own crash cannot take back, so that after a crash it
    still has everything that they have. If it sent more, consumers could get from a slave a message
    whose offset the master later gives to another one.

    :param store: says where that part ends now.
    """

    def __init__(self, store: Store) -> None:
        self._log = store.log
        self._store = store
        self.file_size = store.log.file_size

    @property
    def start(self) -> int:
        return self._log.start

    @property
    def end(self) -> int:
        return self._store.visible_end

    def read(self, physical: int, size_max: int) -> bytes:
        return self._log.read(physical, min(size_max, self.end - physical))
