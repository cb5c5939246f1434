"""Plans a read of store files: finds the stores, and splits their logs into parts for the tasks.

Invariant: the parts of a store are in the order of its log and begin and end at records. They cover
the log from its start to its end, except for parts that `since_ms` and `until_ms` exclude.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from glob import glob, has_magic
from itertools import pairwise
from pathlib import Path
from typing import Final

from roquet.errors import OptionError, StoreError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import none_so_young
from roquet.spark._options.start_end import AtTime
from roquet.spark._options.store import StoreOptions
from roquet.spark._storefiles.chunks import QueuePlace, StorePart
from roquet.spark._storefiles.indexed_ranges import wanted_share
from roquet.spark._storefiles.log_end import log_end
from roquet.spark._storefiles.rows import RowChoice
from roquet.storage.log.dispatch_request import DispatchRequest
from roquet.storetool.files import SegmentFiles, StoreFiles, find_files
from roquet.storetool.read.log_scanner import LogScanner, places_of_magic, record_at
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
_USUAL_NAME: Final = "store"
"""The default name of store directories, which says nothing about the broker."""


@dataclass(frozen=True)
class StoreDirectory:
    """One store: its root, and the folders of its log if they are not the default one below it."""

    root: Path
    log_folders: tuple[Path, ...]
    broker_name: str


def plan_parts(options: StoreOptions) -> list[StorePart]:
    """The parts of all stores, one for each task.

    :raises StoreError: a path has no store, or a store without a log.
    """
    return [part for place in _directories(options) for part in _parts_of(place, options)]


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
    end, damage = log_end(files)
    _check_times(files, place.broker_name, options, end)
    bytes_each, queues = _reading(files, place, options, end)
    cuts = _cuts(files, end, bytes_each)
    edges = [*(at for at, _ in cuts), end]
    whole = [replace(_part(place, files.log, *each), queues=queues) for each in pairwise(edges)]
    kept = [
        part
        for part, is_kept in zip(whole, _in_time([ms for _, ms in cuts], options), strict=True)
        if is_kept
    ]
    if damage is not None:
        last = kept.pop() if kept else _part(place, files.log, end, end)
        kept.append(
            replace(
                last,
                log=_files_between(files.log, last.start, damage.end),
                damages=(damage,),
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
    first = record_at(files.log, start)
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
            record = record_at(files.log, at) if at >= target else ""
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


def _directories(options: StoreOptions) -> list[StoreDirectory]:
    """The stores to read, without duplicates.

    :raises StoreError: a path matches no directory.
    :raises OptionError: commitLog or brokerName do not match the number of stores.
    """
    roots = list(dict.fromkeys(root for path in options.paths for root in _roots(path)))
    if options.commit_log and len(roots) > 1:
        raise OptionError(
            f"commitLog is for one store, path has {len(roots)}: "
            "read them separately and union the DataFrames"
        )
    folders = tuple(map(_directory, options.commit_log))
    return [
        StoreDirectory(root, folders, name)
        for root, name in zip(roots, _names(options, roots), strict=True)
    ]


def _roots(path: str) -> list[Path]:
    if not has_magic(path) or Path(path).is_dir():
        return [_directory(path)]
    found = sorted(Path(each).resolve() for each in glob(path) if Path(each).is_dir())
    if not found:
        raise StoreError(f"path: no directory matches {path}")
    return found


def _directory(path: str) -> Path:
    if not Path(path).is_dir():
        raise StoreError(f"path: {path} is no directory on this machine")
    return Path(path).resolve()


def _names(options: StoreOptions, roots: list[Path]) -> list[str]:
    given = list(options.broker_names)
    if not given:
        return [
            root.parent.name if root.name == _USUAL_NAME and root.parent.name else root.name
            for root in roots
        ]
    if len(given) == 1:
        return given * len(roots)
    if len(given) != len(roots):
        raise OptionError(
            f"brokerName: {len(given)} names for {len(roots)} stores, give one name or one for each"
        )
    return given


def _check_times(files: StoreFiles, broker_name: str, options: StoreOptions, end: int) -> None:
    """Check that each wanted queue has a message stored at or after its starting time.

    :param end: the physical offset of the log's end.
    :raises OptionError: a queue has none, and the strategy is `error`; or the store has no queues.
    """
    wants = RowChoice(options, broker_name).wants
    places = {
        MessageQueue(topic, broker_name, number): (topic, number) for topic, number in files.queues
    }
    asked = [
        (queue, options.starting.of(queue)) for queue, key in sorted(places.items()) if wants(*key)
    ]
    strict = [(queue, at.ms) for queue, at in asked if isinstance(at, AtTime) and not at.or_latest]
    if (
        not places
        and isinstance(options.starting.default, AtTime)
        and not options.starting.default.or_latest
    ):
        raise OptionError(
            f"startingOffsetsByTimestampStrategy: {files.root} has no queues, "
            "so only latest is possible"
        )
    old = {queue: ms for queue, ms in strict if _last_ms(files, places[queue]) < ms}
    for queue, ms in old.items():
        if not any(
            key == places[queue] and stored >= ms for key, stored in _not_in_queues(files, end)
        ):
            raise none_so_young(queue, ms)


def _last_ms(files: StoreFiles, key: tuple[str, int]) -> int:
    """The store time (ms) of the last message of a queue; -1 without messages."""
    entries = entries_of(files, *key)
    last = entries.read(max(0, entries.end() - 1), 1)
    record = record_at(files.log, int(last[0]["physical"])) if len(last) else ""
    return -1 if isinstance(record, str) else record.store_ms


def _not_in_queues(files: StoreFiles, end: int) -> Iterator[tuple[tuple[str, int], int]]:
    """Queue and store time of the records at the end of the log that are in no queue yet."""
    start = max(
        (entries_of(files, *key).log_end() for key in files.queues), default=files.log.start
    )
    for block in LogScanner(files.log, end, start=start, limit=end).blocks():
        shape = block.shape
        topics = [
            block.data[at:to].decode()
            for at, to in zip(shape.topic_at, shape.topic_end, strict=True)
        ]
        yield from zip(
            zip(topics, block.queue_ids.tolist(), strict=True), block.store_ms.tolist(), strict=True
        )
