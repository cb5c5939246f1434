"""Selects the records of a block that a read wants, by columns, before bodies are decoded."""

from __future__ import annotations

import numpy as np

from roquet.protocol.records import message as m
from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.columns import Bools, Ints
from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.slices import numbers_in, slices
from roquet.spark._options.pushed_filters import EVERYTHING
from roquet.spark._options.start_end import AtTime, OffsetSpec
from roquet.spark._options.store import StoreOptions


class RowChoice:
    """Selects records that a consumer of the selected queues could receive, within their bounds.

    Prepared and rolled back records have no entry in a queue, so consumers never receive them
    (docs/storage/consume-queue.md#which-records-have-an-entry).
    """

    def __init__(self, options: StoreOptions, broker_name: str) -> None:
        self._selection = options.selection
        self._broker_name = broker_name
        self._narrowing = options.narrowing
        self._is_narrowed = options.narrowing != EVERYTHING
        self._since_ms, self._until_ms = options.since_ms, options.until_ms
        self._bounds: dict[str, list[tuple[int, OffsetSpec, OffsetSpec]]] = {}
        named = {*options.starting.named, *options.ending.named, *(options.selection.queues or ())}
        for queue in sorted(named):
            if queue.broker_name == broker_name:
                bounds = (queue.queue_id, options.starting.of(queue), options.ending.of(queue))
                self._bounds.setdefault(queue.topic, []).append(bounds)
        self._is_assigned = options.selection.queues is not None
        self._wanted: dict[bytes, bool] = {}

    def wants(self, topic: str, queue_id: int) -> bool:
        """Whether any records of a queue may be selected."""
        assigned = self._selection.queues
        is_named = assigned is None or MessageQueue(topic, self._broker_name, queue_id) in assigned
        return (
            is_named and self._narrowing.allows("queueId", queue_id) and self._has(topic.encode())
        )

    def of(self, block: RecordBlock) -> Ints:
        """The indices of the selected records of a block. A block has only valid records."""
        fits = m.is_queued(block.sys_flags)
        if self._since_ms is not None:
            fits &= block.store_ms >= self._since_ms
        if self._until_ms is not None:
            fits &= block.store_ms < self._until_ms
        if self._is_narrowed:
            fits &= self._narrowed(block)
        rows: Ints = np.arange(len(block)) if fits.all() else np.flatnonzero(fits)
        return self._of_topics(block, rows) if len(rows) else rows

    def _narrowed(self, block: RecordBlock) -> Bools:
        ids, which = np.unique(block.queue_ids, return_inverse=True)
        is_wanted = np.array(
            [self._narrowing.allows("queueId", each) for each in ids.tolist()], np.bool_
        )[which]
        offsets = block.queue_offsets
        return (
            is_wanted
            & (offsets >= self._narrowing.offset_from)
            & (offsets < self._narrowing.offset_until)
        )

    def _of_topics(self, block: RecordBlock, rows: Ints) -> Ints:
        shape = block.shape
        topics = slices(block.data, shape.topic_at[rows], shape.topic_end[rows]).dictionary_encode()
        names: list[bytes] = topics.dictionary.to_pylist()
        codes = numbers_in(topics.indices, np.int32)
        fits = np.array([self._has(name) for name in names], np.bool_)[codes]
        for code, name in enumerate(names):
            topic = name.decode("utf-8", "replace")
            if topic in self._bounds or self._is_assigned:
                of_topic = np.flatnonzero(codes == code)
                fits[of_topic] &= self._within(block, rows[of_topic], self._bounds.get(topic, []))
        return rows if fits.all() else rows[fits]

    def _has(self, name: bytes) -> bool:
        if name not in self._wanted:
            topic = name.decode("utf-8", "replace")
            is_selected = topic in self._selection.topics_among([topic], ())
            self._wanted[name] = is_selected and self._narrowing.allows("topic", topic)
        return self._wanted[name]

    def _within(
        self, block: RecordBlock, rows: Ints, bounds: list[tuple[int, OffsetSpec, OffsetSpec]]
    ) -> Bools:
        """Which records of one topic are within the bounds of their queues."""
        queue_ids = block.queue_ids[rows]
        offsets = block.queue_offsets[rows]
        store_ms = block.store_ms[rows]
        fits = np.full(len(rows), not self._is_assigned)
        for queue_id, start, end in bounds:
            is_here = queue_ids == queue_id
            fits[is_here] = True
            fits &= ~is_here | (_from(start, offsets, store_ms) & ~_from(end, offsets, store_ms))
        return fits


def _from(place: OffsetSpec, offsets: Ints, store_ms: Ints) -> Bools:
    """Which records are at `place` or later: all for earliest, none for latest."""
    match place:
        case AtTime():
            return store_ms >= place.ms
        case int():
            return offsets >= place
        case _:
            return np.full(len(offsets), place == "earliest")
