"""Lists the topics and queues of a store, with their offsets and sizes."""

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
    """One queue of a store.

    :param min_offset: queue offset of the first message.
    :param max_offset: the queue offset after the last message.
    :param file_bytes: bytes of the queue's files.
    :param first_ms: store time of the first message (ms since the epoch), None without messages;
        `last_ms` that of the last one.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    file_bytes: int
    first_ms: int | None
    last_ms: int | None

    @property
    def messages(self) -> int:
        """The number of messages from `min_offset` to `max_offset`."""
        return self.max_offset - self.min_offset


def list_queues(files: StoreFiles, topics: frozenset[str] = frozenset()) -> Iterator[QueueListing]:
    """List all queues, or those of some topics, by topic and queue id."""
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
    """Return the queue offset of the first entry whose record is not deleted.

    :param log_start: the log's first physical offset.
    :param end: the queue offset to stop at; returned if there is no such entry.
    """
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
