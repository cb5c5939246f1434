"""Lists the topics and queues of a store, with their offsets and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roquet.protocol.records.columns import Bools
from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.log_scanner import record_at
from roquet.storetool.read.queue_entries import Entries, QueueEntries, entries_of


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
    first_ms = last_ms = None
    if first < end:
        first_ms, last_ms = store_ms(files, entries, first), store_ms(files, entries, end - 1)
    return QueueListing(topic, queue_id, first, end, size, first_ms, last_ms)


def first_readable(entries: QueueEntries, log_start: int, end: int) -> int:
    """Return the queue offset of the first entry whose record is not deleted.

    :param log_start: the log's first physical offset.
    :param end: the queue offset to stop at; returned if there is no such entry.
    """
    for offset, found in entries.walk(entries.first, end):
        good = np.flatnonzero(are_readable(found, log_start))
        if len(good):
            return offset + int(good[0])
    return end


def are_readable(entries: Entries, log_start: int) -> Bools:
    """Return which of these entries have a record that is not deleted."""
    readable: Bools = (entries["physical"] >= log_start) & (entries["size"] != BLANK_RECORD_SIZE)
    return readable


def store_ms(files: StoreFiles, entries: QueueEntries, offset: int) -> int | None:
    """Return the store time of the record at a queue offset, or None if it cannot be read."""
    found = entries.read(offset, 1)
    record = record_at(files.log, int(found["physical"][0])) if len(found) else ""
    return None if isinstance(record, str) else record.store_ms
