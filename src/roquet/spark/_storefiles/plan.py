"""Splits the log of a store into parts for Spark's tasks.

Invariant: the parts of a store are in the order of its log and begin and end at records. They cover
the log from its start to its end, except for parts that `since_ms` and `until_ms` exclude.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from roquet.errors import StoreError
from roquet.spark._options.store import StoreOptions
from roquet.spark._storefiles.chunks import QueuePlace, StorePart
from roquet.spark._storefiles.directories import StoreDirectory, places
from roquet.spark._storefiles.indexed_ranges import wanted_share
from roquet.spark._storefiles.log_end import log_end
from roquet.spark._storefiles.rows import RowChoice
from roquet.spark._storefiles.times import check_times
from roquet.storage.log.dispatch_request import DispatchRequest
from roquet.storetool.files import SegmentFiles, StoreFiles, find_files
from roquet.storetool.read.log_scanner import arrival_at, places_of_magic
from roquet.storetool.read.queue_entries import entries_of

CLOCK_STEP_MS: Final = 60_000
"""How far a broker's clock may have been set back: parts this close to a time are read, too."""
SHARE_MAX: Final = 0.5
"""If a larger share of a log is wanted, all of it is read, without its queues."""
SHARE_MIN: Final = 1 / 16
"""Bounds the size of parts: with queues a part has at most 16 times `bytes_per_partition`."""
_BYTES_PER_QUEUE: Final = 128 << 10
"""Bytes of the log that are read and filtered in the time that it takes to read one queue."""
_SEARCHED_MAX: Final = 8 << 20
"""Bytes of the log that are searched for a record that its queue confirms."""


def plan_parts(options: StoreOptions) -> list[StorePart]:
    """The parts of all stores, one for each task.

    :raises StoreError: a path has no store, or a store without a log.
    """
    return [part for place in places(options) for part in _parts_of(place, options)]


def _parts_of(place: StoreDirectory, options: StoreOptions) -> list[StorePart]:
    if not options.narrowing.allows("brokerName", place.broker_name):
        return []
    files = find_files(place.root, place.log_folders)
    if not files.log.files:
        if any(queue.files for queue in files.queues.values()):
            raise StoreError(
                f"{place.root} has queues but no commit log: name its folders in option commitLog"
            )
        return []
    found = log_end(files)
    check_times(files, place.broker_name, options, found.end)
    bytes_each, queues = _reading(files, place, options, found.end)
    cuts = _cuts(files, found.end, bytes_each)
    edges = [*(at for at, _ in cuts), found.end]
    whole = [replace(_part(place, files.log, *each), queues=queues) for each in pairwise(edges)]
    kept = [
        part
        for part, is_kept in zip(whole, _in_time([ms for _, ms in cuts], options), strict=True)
        if is_kept
    ]
    if found.damage is not None:
        last = kept.pop() if kept else _part(place, files.log, found.end, found.end)
        kept.append(
            replace(
                last,
                log=_files_between(files.log, last.start, found.damage.end),
                damages=(found.damage,),
            )
        )
    return kept


def _reading(
    files: StoreFiles, place: StoreDirectory, options: StoreOptions, end: int
) -> tuple[int, QueuePlace | None]:
    """The bytes of the log per part, and the queues if reading by queues is faster, else None.

    Each task reads each queue, which takes as long as reading `_BYTES_PER_QUEUE` of the log.
    """
    share = wanted_share(files, RowChoice(options, place.broker_name).wants, end)
    bytes_each = round(options.bytes_per_partition / max(share, SHARE_MIN))
    if share > SHARE_MAX or len(files.queues) * _BYTES_PER_QUEUE > min(
        bytes_each, end - files.log.start
    ):
        return options.bytes_per_partition, None
    return bytes_each, QueuePlace(files.root, files.queue_file_size)


def _part(place: StoreDirectory, log: SegmentFiles, start: int, end: int) -> StorePart:
    return StorePart(place.broker_name, _files_between(log, start, end), start, end)


def _files_between(log: SegmentFiles, start: int, end: int) -> SegmentFiles:
    """The log with only the files of physical offsets [start, end), which Spark sends to a task."""
    held = [
        file
        for file in log.files
        if file.start < max(end, start + 1) and start < file.start + log.file_size
    ]
    return SegmentFiles(log.folders, log.file_size, held)


def _cuts(files: StoreFiles, end: int, bytes_each: int) -> list[tuple[int, int | None]]:
    """The start of each part, and the store time (ms) of its first record; None if damaged."""
    start = files.log.start
    size = end - start
    count = max(1, round(size / bytes_each))
    first = arrival_at(files.log, start)
    found = [(start, None if isinstance(first, str) else first.store_ms)] if size else []
    searched = start
    for target in (start + size * number // count for number in range(1, count)):
        if target <= searched:
            continue
        record = _record_from(files, target)
        searched = target + _SEARCHED_MAX if record is None else record.physical
        if record is not None and record.physical < end:
            found.append((record.physical, record.store_ms))
    return found


def _record_from(files: StoreFiles, target: int) -> DispatchRequest | None:
    """The first record at or after a physical offset, preferably one that its queue points to.

    A body may contain bytes that look exactly like a record at that offset. But no queue points to
    them.
    """
    unconfirmed = None
    for file in files.log.files:
        if file.start + files.log.file_size <= target:
            continue
        for at in places_of_magic(file, max(0, target - file.start)):
            if at > target + _SEARCHED_MAX:
                return unconfirmed
            record = arrival_at(files.log, at) if at >= target else ""
            if not isinstance(record, str):
                if _is_confirmed(files, record):
                    return record
                unconfirmed = unconfirmed or record
    return unconfirmed


def _is_confirmed(files: StoreFiles, record: DispatchRequest) -> bool:
    queue = (record.topic, record.queue_id)
    if queue not in files.queues:
        return False
    entries = entries_of(files, *queue).read(record.queue_offset, 1)
    return any(
        (entry["physical"], entry["size"]) == (record.physical, record.size) for entry in entries
    )


def _in_time(begun_ms: Sequence[int | None], options: StoreOptions) -> list[bool]:
    """Which parts may have messages of the requested times, by their first store times.

    If the store times decrease, a clock was set back, and all parts are read.
    """
    known = [ms for ms in begun_ms if ms is not None]
    if len(known) < len(begun_ms) or known != sorted(known):
        return [True] * len(begun_ms)
    since = options.since_ms
    until = options.until_ms
    ended_ms = [*known[1:], None]
    return [
        (until is None or begun - CLOCK_STEP_MS < until)
        and (since is None or ended is None or ended + CLOCK_STEP_MS >= since)
        for begun, ended in zip(known, ended_ms, strict=True)
    ]
