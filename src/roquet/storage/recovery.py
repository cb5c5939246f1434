"""After a stop or a crash: where valid bytes end, what to cut, where dispatch resumes (store-and-ha.md 3.8)."""

from __future__ import annotations

import logging

from roquet.errors import CorruptRecord
from roquet.protocol.record import BLANK_MAGIC, BLANK_SIZE, check, size_and_magic
from roquet.storage.checkpoint import Checkpoint
from roquet.storage.commit_log import CommitLog
from roquet.storage.dispatch import read_arrival
from roquet.units import PhysicalOffset

_FILES_AFTER_A_STOP = 3


def scan_start(log: CommitLog, checkpoint: Checkpoint, dispatched: int, *, crashed: bool) -> PhysicalOffset:
    """Where checking begins.

    After a clean stop behind the last record that a queue points to, at the earliest at the third last file; after a
    crash at the newest file that begins with a record from before the checkpoint, else at the first.

    :param dispatched: where the last record of all queues ends.
    """
    starts = log.file_starts
    if not starts:
        return PhysicalOffset(0)
    if not crashed:
        earliest = starts[-_FILES_AFTER_A_STOP:][0]
        return PhysicalOffset(dispatched if earliest <= dispatched <= log.end else earliest)
    for start in reversed(starts):
        store_ms = _first_store_ms(log, PhysicalOffset(start))
        if store_ms and store_ms <= checkpoint.safe_ms:
            return PhysicalOffset(start)
    return PhysicalOffset(starts[0])


def _first_store_ms(log: CommitLog, start: PhysicalOffset) -> int:
    """Store time of the first record of a file, 0 where it begins with none."""
    try:
        for at, data in log.walk(start):
            return read_arrival(at, data).store_ms if at == start else 0
    except CorruptRecord:
        pass
    return 0


def valid_end(log: CommitLog, start: PhysicalOffset, *, verify: bool) -> PhysicalOffset:
    """Where the unbroken run of valid records from `start` ends.

    A record counts when its parts add up, it says the physical offset where it stands and, with `verify`, its body
    has its checksum.
    """
    end = start
    try:
        for at, data in log.walk(start):
            check(data, at, verify=verify)
            end = PhysicalOffset(at + len(data))
    except CorruptRecord as error:
        logging.getLogger(__name__).info("the log's valid bytes end at %d: %s", end, error)
    data = log.read(end, BLANK_SIZE)
    if len(data) == BLANK_SIZE and size_and_magic(data, 0)[1] == BLANK_MAGIC:
        return log.next_file(end)
    return end
