"""PURE: the unread messages of a stream, and the offset at which its next batch ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import Bounds, read_on
from roquet.spark._read.stream_offset import StreamOffset


@dataclass(frozen=True)
class StreamBacklog:
    """The unread messages after `start`: per queue, offsets from `firsts` to `ends` (exclusive)."""

    start: StreamOffset
    firsts: Mapping[MessageQueue, int]
    ends: Mapping[MessageQueue, int]

    @classmethod
    def since(
        cls, start: StreamOffset, bounds: Mapping[MessageQueue, Bounds], *, fail_on_data_loss: bool
    ) -> StreamBacklog:
        """The backlog after `start`. Queues that are not in `start` are read from their beginning.

        :raises roquet.spark._options.ranges.DataLoss: unread messages are lost, and
            `fail_on_data_loss` is True.
        """
        firsts = {
            queue: read_on(
                queue, start.positions.get(queue), held, fail_on_data_loss=fail_on_data_loss
            )
            for queue, held in sorted(bounds.items())
        }
        return cls(
            start, firsts, {queue: max(first, bounds[queue].max) for queue, first in firsts.items()}
        )

    @property
    def sizes(self) -> dict[MessageQueue, int]:
        return {queue: self.ends[queue] - first for queue, first in self.firsts.items()}

    def taking(self, counts: Mapping[MessageQueue, int]) -> StreamOffset:
        """The offset after reading `counts` messages of each queue; `start` if nothing changes.

        At the start of a new query the offset differs from `start` even if all counts are 0. Spark
        then runs an empty batch, which saves in the checkpoint where the query started.
        """
        before = self.start.positions
        positions = {queue: first + counts.get(queue, 0) for queue, first in self.firsts.items()}
        if positions == before and not self.start.is_first:
            return self.start
        untold = (
            queue
            for queue, first in self.firsts.items()
            if self.start.is_first or before.get(queue) != first
        )
        return StreamOffset(positions, {queue: self.firsts[queue] for queue in untold})
