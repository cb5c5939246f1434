"""Reads due delayed messages, and finds their own queues by their properties."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt

from roquet.errors import UnreadableFile
from roquet.protocol.records import message as m
from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.columns import Ints
from roquet.protocol.records.layout import MAGIC
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store

log = logging.getLogger(__name__)

_SEPARATOR: Final = m.PROPERTY_SEPARATOR.encode()
_REAL_TOPIC: Final = (m.REAL_TOPIC + m.NAME_SEPARATOR).encode()
_REAL_QID: Final = (m.REAL_QID + m.NAME_SEPARATOR).encode()


def _value(data: bytes, name: bytes, begin: int, end: int) -> bytes:
    """The value of a property; empty if the property is missing.

    :param name: with its separator.
    :param begin: where in `data` the properties begin; they end before `end`.
    """
    at = data.find(name, begin, end)
    while at > begin and data[at - 1] != _SEPARATOR[0]:
        at = data.find(name, at + 1, end)
    if at < 0:
        return b""
    at += len(name)
    value_end = data.find(_SEPARATOR, at, end)
    return data[at : value_end if value_end >= 0 else end]


class DueRun:
    """The messages of consecutive entries of a delay level's queue, in their order.

    Messages that name no valid queue are logged and left out. `gone` is the number of entries whose
    messages are not in the log.

    Invariant: record i of `block` belongs in `queues[i]`; its entry has queue offset `offsets[i]`.

    :param first: queue offset of the first entry.
    :param passed_over: paths of unreadable log segments whose messages are left out.
    :raises UnreadableFile: a message is in another file that cannot be read.
    """

    def __init__(
        self,
        store: Store,
        first: int,
        entries: npt.NDArray[np.void],
        passed_over: Collection[str] = (),
    ) -> None:
        self._store = store
        physical = entries["physical"].astype(np.int64)
        sizes = entries["size"].astype(np.int64)
        file_size = store.log.file_size
        ends = physical + sizes
        is_there = (physical >= store.log.start) & (ends <= store.log.readable_to)
        is_there &= (sizes > 0) & (physical % file_size + sizes <= file_size)
        self.gone = len(entries) - int(np.count_nonzero(is_there))
        numbers = np.flatnonzero(is_there)
        if passed_over:
            numbers = np.array(
                [
                    number
                    for number in numbers
                    if self._is_read(physical[number], sizes[number], passed_over)
                ],
                int,
            )
        self.block = self._block(physical[numbers], sizes[numbers])
        found = self._queues(physical[numbers])
        self.offsets: list[int] = (numbers + first).tolist()
        if None in found:
            kept = np.array(
                [number for number, queue in enumerate(found) if queue is not None], np.int64
            )
            self.block = self._block(physical[numbers][kept], sizes[numbers][kept])
            self.offsets = (numbers[kept] + first).tolist()
        self.queues: list[ConsumeQueue] = [queue for queue in found if queue is not None]

    def _is_read(self, at: np.int64, size: np.int64, passed_over: Collection[str]) -> bool:
        try:
            self._store.log.stored(int(at), int(size))
        except UnreadableFile as error:
            if str(error.filename) not in passed_over:
                raise
            return False
        return True

    def _block(self, physical: Ints, sizes: Ints) -> RecordBlock:
        ends = np.cumsum(sizes)
        data = self._store.log.joined(physical, sizes) if len(physical) else b""
        return RecordBlock(0, data, ends - sizes, len(data))

    def _queues(self, physical: Ints) -> list[ConsumeQueue | None]:
        """The queue of each record in `block`; None if its properties name no valid one."""
        block, data = self.block, self.block.data
        if not data:
            return []
        is_sound = (
            block.shape.sound
            & (block.field("size") == block.sizes)
            & (block.field("magic") == MAGIC)
        )
        columns = (
            block.shape.properties_at.tolist(),
            block.ends.tolist(),
            is_sound.tolist(),
            physical.tolist(),
        )
        known: dict[tuple[bytes, bytes], ConsumeQueue | None] = {}
        found: list[ConsumeQueue | None] = []
        for begin, end, sound, at in zip(*columns, strict=True):
            place = (b"", b"")
            if sound:
                place = (_value(data, _REAL_TOPIC, begin, end), _value(data, _REAL_QID, begin, end))
            if place not in known:
                known[place] = self._queue(place[0].decode("utf-8", "replace"), place[1])
            queue = known[place]
            if queue is None:
                log.error(
                    "delayed message names no valid queue, it is skipped: "
                    "physical_offset=%d topic=%s queue=%s",
                    at,
                    *place,
                )
            found.append(queue)
        return found

    def _queue(self, topic: str, queue_id: bytes) -> ConsumeQueue | None:
        """The queue with this name and id; None if there can be none, or for the half topic.

        See docs/storage/delayed-messages.md#the-delivered-record.
        """
        if not m.is_legal_name(topic) or len(topic) > m.TOPIC_SIZE_MAX or topic == m.HALF_TOPIC:
            return None
        return (
            self._store.queue(topic, int(queue_id))
            if queue_id.isdigit() and len(queue_id) < 10
            else None
        )

    def drop(self, count: int) -> None:
        """Remove the first `count` messages, which were stored."""
        self.queues, self.offsets = self.queues[count:], self.offsets[count:]
        block = self.block
        if self.queues:
            begin = int(block.starts[count])
            self.block = RecordBlock(
                0, block.data[begin:], block.starts[count:] - begin, len(block.data) - begin
            )
