"""Rejoin: truncates a former master's log so that it can follow the new master.

Records that the former master accepted and no slave copied are at offsets where the new master has
other records. The end of the common part is found by asking the master for single records by their
physical offsets, which Apache's broker answers, too. The caller gets the records after the common
part, then they are truncated. See docs/storage/replication.md#rejoin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from roquet.broker import component_configs
from roquet.broker.config.broker import BrokerConfig
from roquet.broker.ha.replica_queries import log_range_of
from roquet.common.runtime import Runtime
from roquet.errors import ResponseError, StoreError
from roquet.protocol.bodies.ha_status import LogRange
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked
from roquet.storage.files.disk import Disk
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.holes import records
from roquet.storage.store import Store
from roquet.transport.channels import Channels

TIMEOUT_MS: Final = 10_000

IsSame = Callable[[int], Awaitable[bool]]
"""Whether the master has the same record as this log at an offset."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two logs diverge: they are equal before `at`; the log to truncate ends at `end`."""

    at: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.at


class RejoinStore:
    """The store of a stopped broker, opened to be compared with its master's log and truncated.

    :raises StoreError: the store is in use, or cannot be opened.
    """

    def __init__(self, config: BrokerConfig, runtime: Runtime, disk: Disk | None = None) -> None:
        # a slave need not have a whole log: it copies missing records from its master
        store_config = replace(component_configs.store_config(config), requires_durable_log=False)
        self._store = Store(store_config, runtime.now_ms, disk)
        self._store.open()

    async def find_divergence(self, master: str) -> Divergence:
        """Find where this log and the log of the broker at `master` diverge.

        :raises StoreError: the logs have no record in common; the message says what to do.
        :raises RoquetError, ValueError: the master does not answer, or not as expected.
        """
        log = self._store.log
        channels = Channels()
        try:
            of_master = await log_range_of(channels, master)

            async def is_same(physical: int) -> bool:
                own = log.record_at(physical)
                if own is None:
                    return False
                return await _record(channels, master, physical, of_master) == own

            return Divergence(await common_end(log, of_master, is_same), log.end)
        finally:
            await channels.close()

    def records(self, divergence: Divergence) -> Iterator[bytes]:
        """The records that are going to be truncated."""
        for _, data in records(self._store.log, divergence.at):
            yield bytes(data)

    def save(self, divergence: Divergence) -> Path | None:
        """Save the records that are going to be truncated in `lost/`, as recovery does.

        :returns: their folder, None if they could not be saved.
        """
        return self._store.save_tail(divergence.at)

    def truncate(self, divergence: Divergence) -> None:
        """Truncate the log where it diverges. This cannot be undone."""
        self._store.truncate(divergence.at)

    def close(self) -> None:
        self._store.close()


async def _record(
    channels: Channels, master: str, physical: int, of_master: LogRange
) -> bytes | None:
    if not of_master.start <= physical < of_master.end:
        return None
    request = Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(physical)})
    try:
        return bytes(checked(await channels.call(master, request, TIMEOUT_MS), master).body)
    except ResponseError:
        return None


async def common_end(log: CommitLog, of_master: LogRange, is_same: IsSame) -> int:
    """The end of the last record that both logs have.

    Two binary searches: over the first records of the files, then over the records of one file.

    :raises StoreError: the logs have no record in common.
    """
    if log.end <= of_master.start:
        raise StoreError(
            f"the log ends at {log.end}, the master's begins at {of_master.start}: delete the"
            " store, the broker copies it from its master again"
        )
    firsts = [at for start in log.file_starts if (at := _first(log, start, of_master)) is not None]
    count = await _count_same(firsts, is_same)
    if not count:
        raise StoreError(
            "the two logs have no record in common: delete the store, the broker copies it from"
            " its master again"
        )
    first = firsts[count - 1]
    in_file = takewhile(lambda record: record[0] < log.next_file(first), records(log, first))
    ends = {at: (at + len(data)) for at, data in in_file}
    return list(ends.values())[await _count_same(list(ends), is_same) - 1]


def _first(log: CommitLog, start: int, of_master: LogRange) -> int | None:
    """The offset of a file's first record at or after the start of the master's log, or None."""
    for at, _ in records(log, start):
        if at >= log.next_file(start):
            return None
        if at >= of_master.start:
            return at
    return None


async def _count_same(offsets: Sequence[int], is_same: IsSame) -> int:
    """How many of `offsets` have the same record in both logs, found by binary search.

    All offsets with the same record come before the others.
    """
    low, high = 0, len(offsets)
    while low < high:
        middle = (low + high) // 2
        if await is_same(offsets[middle]):
            low = middle + 1
        else:
            high = middle
    return low
