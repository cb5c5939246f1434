"""Walks through a commit log and returns its records as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from roquet.storetool.files import SegmentFiles
from roquet.storetool.read.columns import RecordColumns, RowReader
from roquet.storetool.read.log_scanner import LogScanner


class LogScan(LogScanner):
    """One walk through a log, whose records it returns as columns.

    :param dispatched: the highest physical offset that queue entries reach; the log cannot end
        before it.
    :param progress: called with the number of bytes of the log read since the last call.
    :param verify: whether to compare bodies with their checksums.
    :param limit: physical offset, the end of a record, at which the walk stops: a running broker
        may have written only a part of what follows.
    """

    def __init__(
        self,
        log: SegmentFiles,
        dispatched: int,
        progress: Callable[[int], None] = lambda size: None,
        *,
        verify: bool = True,
        limit: int | None = None,
    ) -> None:
        super().__init__(log, dispatched, progress, limit=limit)
        self._reader = RowReader(verify=verify)
        self.bad_bodies: set[int] = set()
        """Physical offsets of the records so far whose bodies do not match their checksums.

        Recovery and dispatch step over them: their queues should have a blank in their place, and
        the index no entry.
        """

    def __iter__(self) -> Iterator[RecordColumns]:
        """Yield the log's records, from the start or from where an earlier iteration stopped."""
        for block in self.blocks():
            rows = self._reader.read(block)
            self.bad_bodies.update(rows.at[rows.bad_bodies].tolist())
            yield rows
