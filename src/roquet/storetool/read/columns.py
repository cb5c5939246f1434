"""Columns of many records at once: the fields that checks and dumps need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.columns import Bools, Ints
from roquet.storage.dispatch.columns import read_rows
from roquet.storage.index.layout import key_hashes


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


class RowReader:
    """Converts blocks of the log to rows. A topic has the same number in all of them.

    :param verify: whether to compare each body with its checksum.
    """

    def __init__(self, *, verify: bool = True) -> None:
        self._verify = verify
        self._topics: list[str] = []
        self._numbers: dict[str, int] = {}

    def read(self, block: RecordBlock) -> RecordColumns:
        """Return the rows of a block. All its records must be valid."""
        found = read_rows(block)
        assert found is not None, "every record of the block is valid"
        is_delayed = np.zeros(len(block), np.bool_)
        for _, numbers in found.delayed:
            is_delayed[numbers] = True
        none = np.empty(0, np.int64)
        hashes = [
            key_hashes(topic, keys, len(keys) // len(numbers))
            for topic, keys, numbers in found.keys
        ]
        return RecordColumns(
            topics=self._topics,
            at=block.physical,
            size=block.sizes,
            topic=np.array([self._number(topic) for topic in found.topics], np.int64)[
                found.topic_ids
            ],
            queue_id=block.queue_ids,
            queue_offset=block.queue_offsets,
            store_ms=found.store_ms,
            tag_code=found.tag_codes,
            is_queued=found.is_queued,
            is_delayed=is_delayed,
            key_at=block.physical[
                np.concatenate([none, *(numbers for _, _, numbers in found.keys)])
            ],
            key_hash=np.concatenate([none, *hashes]),
            bad_bodies=block.changed_bodies() if self._verify else [],
        )

    def _number(self, topic: str) -> int:
        found = self._numbers.get(topic)
        if found is None:
            found = self._numbers[topic] = len(self._topics)
            self._topics.append(topic)
        return found
