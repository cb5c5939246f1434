"""Finds the end of a store's log, without writing to the store and without its recovery."""

from __future__ import annotations

from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE
from roquet.storetool.files import DataFile, SegmentFiles, StoreFiles, data_pieces
from roquet.storetool.read.log_scanner import Damage, LogScanner, record_at
from roquet.storetool.read.queue_entries import entries_of
from roquet.storetool.state import read_state


def log_end(files: StoreFiles) -> tuple[int, Damage | None]:
    """The end of the last valid record now, and damage after it if there should be more records.

    The log of a running broker ends at the last record in a queue, because the record after it may
    be half-written. After the end of a closed store there may be bytes of an older log
    (docs/storage/recovery.md#the-logs-end-for-readers). In other cases bytes
    after the end that are no valid record are damage, which a broker would truncate at its next
    start.
    """
    lasts = _last_entries(files)
    state = read_state(files.root)
    dispatched = max((at + size for at, size in lasts), default=0)
    sound = next((at + size for at, size in lasts if _is_record(files.log, at, size)), None)
    if sound is not None and state.is_locked:
        return sound, None
    walk = LogScanner(
        files.log, dispatched, start=_last_begun(files.log) if sound is None else sound
    )
    for _ in walk.blocks():
        pass
    if dispatched > walk.end:
        reason = f"the queues have messages up to physical offset {dispatched}, which are not there"
        return walk.end, Damage(walk.end, dispatched, walk.behind or reason)
    if walk.behind and (state.is_crashed or not lasts):
        last = max(walk.end + 1, _last_byte(files.log, walk.end))
        return walk.end, Damage(walk.end, last, walk.behind)
    return walk.end, None


def _last_entries(files: StoreFiles) -> list[tuple[int, int]]:
    """Physical offset and size of each queue's last record, the last record of the log first."""
    found: list[tuple[int, int]] = []
    for key in files.queues:
        entries = entries_of(files, *key)
        last = entries.read(entries.end() - 1, 1) if entries.files.files else ()
        found += [(int(each["physical"]), int(each["size"])) for each in last]
    return sorted(((at, size) for at, size in found if 0 < size < BLANK_RECORD_SIZE), reverse=True)


def _is_record(log: SegmentFiles, at: int, size: int) -> bool:
    record = record_at(log, at)
    return not isinstance(record, str) and record.size == size


def _last_begun(log: SegmentFiles) -> int:
    """The start of the last file that begins with a record; brokers preallocate the next file."""
    begun = (
        file.start
        for file in reversed(log.files)
        if not isinstance(record_at(log, file.start), str)
    )
    return next(begun, log.start)


def _last_byte(log: SegmentFiles, at: int) -> int:
    """The physical offset after the last byte that is not zero, in the file of `at`."""
    file = log.file_at(at)
    assert file is not None, "the scanner found bytes after the end, so there is a file"
    return file.start + _written(file, at - file.start)


def _written(file: DataFile, at: int) -> int:
    end = at
    for start, data in data_pieces(file.path, at):
        end = max(end, start + len(data.rstrip(b"\0")))
    return end
