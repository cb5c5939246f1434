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

    `key_at` and `key_hash` have one row per message key: the record's physical offset and the hash.

    :param topics: topic names; the column `topic` has indexes of this list.
    :param at: physical offsets.
    :param is_queued: whether the record has a consume queue entry.
    :param bad_bodies: row numbers of records whose body does not match its checksum.
    """

    topics: list[str]
    at: Ints
    size: Ints
    topic: Ints
    queue_id: Ints
    queue_offset: Ints
    store_ms: Ints
    tag_code: Ints
    is_queued: Bools
    is_delayed: Bools
    """Whether the queue entry has a delivery time in place of the tag code."""
    key_at: Ints
    key_hash: Ints
    bad_bodies: list[int]

    def __len__(self) -> int:
        return len(self.at)

    @property
    def end(self) -> int:
        """The physical offset after the last record."""
        return int(self.at[-1] + self.size[-1])

    def by_queue(self) -> Iterator[tuple[tuple[str, int], Ints]]:
        """Yield topic and queue id of each queue, and the row numbers of its records."""
        taking = np.flatnonzero(self.is_queued)
        number = self.topic[taking] << 32 | self.queue_id[taking]
        order = np.argsort(number, kind="stable")
        bounds = np.flatnonzero(np.diff(number[order])) + 1
        for group in np.split(taking[order], bounds) if len(taking) else []:
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
    for _, numbers in found.delayed:
        is_delayed[numbers] = True
    topics = [topic_numbers.setdefault(topic, len(topic_numbers)) for topic in found.topics]
    none = np.empty(0, np.int64)
    hashes = [
        key_hashes(topic, keys, len(keys) // len(numbers)) for topic, keys, numbers in found.keys
    ]
    return RecordColumns(
        topics=list(topic_numbers),
        at=block.physical,
        size=block.sizes,
        topic=np.array(topics, np.int64)[found.topic_ids],
        queue_id=block.queue_ids,
        queue_offset=block.queue_offsets,
        store_ms=found.store_ms,
        tag_code=found.tag_codes,
        is_queued=found.is_queued,
        is_delayed=is_delayed,
        key_at=block.physical[np.concatenate([none, *(numbers for _, _, numbers in found.keys)])],
        key_hash=np.concatenate([none, *hashes]),
        bad_bodies=block.changed_bodies() if verify else [],
    )


class LogScan(LogScanner):
    """One walk through a log, whose records it returns as columns.

    :param verify: whether to compare bodies with their checksums; the others are those of
        `LogScanner`.
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
            self.bad_bodies.update(rows.at[rows.bad_bodies].tolist())
            yield rows
