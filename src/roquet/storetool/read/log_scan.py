"""A walk through a whole commit log that gives its records as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from roquet.storetool.files import SegmentFiles
from roquet.storetool.read.columns import RowReader, Rows
from roquet.storetool.read.log_scanner import LogScanner


class LogScan(LogScanner):
    """One walk through a log.

    :param dispatched: queue entries point to records up to this physical offset, so the log must reach as far.
    :param progress: told the number of bytes that were read since the last time.
    :param verify: also compare bodies with their checksums.
    :param limit: the end of a record, where the walk ends: a running broker may have written half of what follows.
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
        """Physical offsets of the records so far whose bodies do not have their checksums. Recovery and dispatch step
        over these: a blank is what their queues should have, and the index should have nothing."""

    def __iter__(self) -> Iterator[Rows]:
        """The log's records, from the start or from where the walk was left."""
        for block in self.blocks():
            rows = self._reader.read(block)
            self.bad_bodies.update(rows.at[rows.bad_bodies].tolist())
            yield rows
