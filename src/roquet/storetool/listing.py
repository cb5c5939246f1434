"""Which topics and queues a store has, and how much is in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.log_scanner import arrival_at
from roquet.storetool.read.queue_entries import QueueEntries, entries_of


@dataclass(frozen=True, slots=True)
class QueueListing:
    """One queue: offsets from `min_offset` up to, not with, `max_offset`; store times in ms, None without messages."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    file_bytes: int
    first_ms: int | None
    last_ms: int | None

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


def list_queues(files: StoreFiles, topics: frozenset[str] = frozenset()) -> Iterator[QueueListing]:
    """Every queue, or those of some topics, in order."""
    for topic, queue_id in sorted(files.queues):
        if not topics or topic in topics:
            yield _listing(files, topic, queue_id)


def _listing(files: StoreFiles, topic: str, queue_id: int) -> QueueListing:
    entries = entries_of(files, topic, queue_id)
    end = entries.end()
    first = first_readable(entries, files.log.start, end)
    size = sum(file.size for file in entries.files.files)
    times = (
        [_store_ms(files, entries, offset) for offset in (first, end - 1)]
        if first < end
        else [None, None]
    )
    return QueueListing(topic, queue_id, first, end, size, times[0], times[1])


def first_readable(entries: QueueEntries, log_start: int, end: int) -> int:
    """Queue offset of the first entry that points into the log; `end` where there is none."""
    for offset, found in entries.walk(entries.first, end):
        good = np.flatnonzero(
            (found["physical"] >= log_start) & (found["size"] != BLANK_RECORD_SIZE)
        )
        if len(good):
            return offset + int(good[0])
    return end


def _store_ms(files: StoreFiles, entries: QueueEntries, offset: int) -> int | None:
    found = entries.read(offset, 1)
    record = arrival_at(files.log, int(found["physical"][0])) if len(found) else ""
    return None if isinstance(record, str) else record.store_ms
