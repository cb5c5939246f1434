"""PURE: what waits in the queues of a stream, and the offset that takes some of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import Bounds, read_on
from roquet.spark._read.stream_offset import StreamOffset


@dataclass(frozen=True)
class Backlog:
    """Where each queue is to be read on, and how far it could be read."""

    start: StreamOffset
    firsts: Mapping[MessageQueue, int]
    ends: Mapping[MessageQueue, int]

    @classmethod
    def since(
        cls, start: StreamOffset, bounds: Mapping[MessageQueue, Bounds], *, fail_on_data_loss: bool
    ) -> Backlog:
        """What came after `start`; queues that it does not mention are new and read from their earliest message.

        :raises roquet.spark._options.ranges.DataLoss: some are gone that were not read, and that is not allowed.
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
        """The offset after so many messages of each queue; `start` itself if that changes nothing.

        From the start of a new query that is another offset even if it takes nothing: the batch without messages that
        Spark then makes puts down in the checkpoint where the query started.
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
