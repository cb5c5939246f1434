"""PURE: which messages a run of `archive` is to add.

Keeps: runs without loss join up: each begins in a queue where the one before it ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from roquet.protocol.message import MessageQueue
from roquet.spark.ranges import Bounds, QueueRange, lost

log = logging.getLogger(__name__)


def new_rows(
    progress: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds], *, fail_on_data_loss: bool
) -> list[QueueRange]:
    """What each queue holds beyond the archive, for every queue there is; a queue that is new is taken whole.

    :param progress: the next offset to archive, for queues that were archived before.
    :raises roquet.spark.ranges.DataLoss: messages are gone that were never archived, or a topic was made anew.
    """
    return [_new_in(queue, progress.get(queue), bounds[queue], fail_on_data_loss) for queue in sorted(bounds)]


def _new_in(queue: MessageQueue, at: int | None, bounds: Bounds, fail_on_data_loss: bool) -> QueueRange:
    if at is None:
        return QueueRange(queue, bounds.min, bounds.max)
    if bounds.min <= at <= bounds.max:
        return QueueRange(queue, at, bounds.max)
    loss = lost(queue, f"offset {at}, where the archive ends", bounds)
    if fail_on_data_loss:
        raise loss
    log.warning("%s", loss)
    return QueueRange(queue, bounds.min, bounds.max)


def ends(ranges: Iterable[QueueRange]) -> dict[MessageQueue, int]:
    """The progress after these."""
    return {each.queue: each.end for each in ranges}
