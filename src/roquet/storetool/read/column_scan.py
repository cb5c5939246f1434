"""Walks through a commit log and returns the fields that checks and dumps need, as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.columns import Bools, Ints
from roquet.storage.dispatch.columns import read_rows
from roquet.storage.index.layout import key_hashes
from roquet.storetool.files import SegmentFiles
from roquet.storetool.read.log_scanner import LogScanner


@dataclass(slots=True)
class RecordColumns:
    """Valid records in the order of the log, with one column per field.

    `key_physical` and `key_hash` have one row per message key: the record's physical offset and the
    hash.

    :param topics: topic names; the column `topic` has indexes of this list.
    :param physical: physical offsets.
    :param is_queued: whether the record has a consume queue entry.
    :param bad_bodies: row numbers of records whose body does not match its checksum.
    """

    topics: list[str]
    physical: Ints
    size: Ints
    topic: Ints
    queue_id: Ints
    queue_offset: Ints
    store_ms: Ints
    tag_code: Ints
    is_queued: Bools
    is_delayed: Bools
    """Whether the queue entry has a delivery time in place of the tag code."""
    key_physical: Ints
    key_hash: Ints
    bad_bodies: list[int]

    def __len__(self) -> int:
        return len(self.physical)

    @property
    def end(self) -> int:
        """The physical offset after the last record."""
        return int(self.physical[-1] + self.size[-1])

    def by_queue(self) -> Iterator[tuple[tuple[str, int], Ints]]:
        """Yield topic and queue id of each queue, and the row numbers of its records."""
        queued_rows = np.flatnonzero(self.is_queued)
        # One number for topic and queue id.
        queue_number = self.topic[queued_rows] << 32 | self.queue_id[queued_rows]
        order = np.argsort(queue_number, kind="stable")
        bounds = np.flatnonzero(np.diff(queue_number[order])) + 1
        for group in np.split(queued_rows[order], bounds) if len(queued_rows) else []:
            yield (self.topics[int(self.topic[group[0]])], int(self.queue_id[group[0]])), group


def columns_of(
    block: RecordBlock, topic_numbers: dict[str, int], *, verify: bool = True
) -> RecordColumns:
    """Convert a block of valid records to columns.

    :param topic_numbers: the topics so far; new ones are added, so that a topic has the same number
        in all blocks.
    :param verify: whether to compare each body with its checksum.
    """
    found = read_rows(block)
    assert found is not None, "every record of the block is valid"
    is_delayed = np.zeros(len(block), np.bool_)
    for _, row_numbers in found.delayed:
        is_delayed[row_numbers] = True
    topics = [topic_numbers.setdefault(topic, len(topic_numbers)) for topic in found.topics]
    none = np.empty(0, np.int64)
    hashes = [
        # One key per row, end to end and all of one size: the last argument is that size.
        key_hashes(topic, keys, len(keys) // len(rows))
        for topic, keys, rows in found.keys
    ]
    return RecordColumns(
        topics=list(topic_numbers),
        physical=block.physical,
        size=block.sizes,
        topic=np.array(topics, np.int64)[found.topic_ids],
        queue_id=block.queue_ids,
        queue_offset=block.queue_offsets,
        store_ms=found.store_ms,
        tag_code=found.tag_codes,
        is_queued=found.is_queued,
        is_delayed=is_delayed,
        key_physical=block.physical[np.concatenate([none, *(rows for _, _, rows in found.keys)])],
        key_hash=np.concatenate([none, *hashes]),
        bad_bodies=block.changed_bodies() if verify else [],
    )


class ColumnScan(LogScanner):
    """One walk through a log, whose records it returns as columns.

    The arguments that `LogScanner` has, too, are described there.

    :param verify: whether to compare bodies with their checksums.
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
        self._verify = verify
        self._topic_numbers: dict[str, int] = {}
        self.bad_bodies: set[int] = set()
        """Physical offsets of the records so far whose bodies do not match their checksums.

        Recovery and dispatch step over them: their queues should have a blank in their place, and
        the index no entry.
        """

    def __iter__(self) -> Iterator[RecordColumns]:
        """Yield the log's records, from the start or from where an earlier iteration stopped."""
        for block in self.blocks():
            rows = columns_of(block, self._topic_numbers, verify=self._verify)
            self.bad_bodies.update(rows.physical[rows.bad_bodies].tolist())
            yield rows
