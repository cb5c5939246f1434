"""PURE: plans which messages a run of `archive` adds.

Invariant: each run starts in a queue where the previous run ended. It starts at a later offset only
if the master has lost messages and failOnDataLoss is false, and never at an earlier one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import Bounds, DataLoss, QueueRange, read_on
from roquet.spark._read.batch_limits import share_rows

log = logging.getLogger(__name__)


def new_rows(
    progress: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, Bounds],
    *,
    fail_on_data_loss: bool,
) -> list[QueueRange]:
    """The range of each queue that is not archived yet. New queues are archived from the beginning.

    :param progress: the next offset to archive, for queues that were archived before.
    :param bounds: from `roquet.spark._options.ranges.usable_bounds`.
    :raises roquet.spark._options.ranges.DataLoss: messages were lost before they were archived, or
        a topic was recreated.
    """
    starts = {
        queue: read_on(queue, progress.get(queue), held, fail_on_data_loss=fail_on_data_loss)
        for queue, held in sorted(bounds.items())
    }
    return [
        QueueRange(queue, start, max(start, bounds[queue].max)) for queue, start in starts.items()
    ]


@dataclass(frozen=True)
class StoredRange:
    """The messages of a queue in a store's log: their count, and their offsets [start, end)."""

    start: int
    end: int
    messages: int


def new_stored_rows(
    progress: Mapping[MessageQueue, int],
    held: Mapping[MessageQueue, StoredRange],
    *,
    may_miss: bool,
) -> list[QueueRange]:
    """As `new_rows`, for store files. They may be older than the archive; then no range is new.

    :param held: the messages of a store at or after `progress`; all messages of new queues.
    :param may_miss: whether to log missing offsets instead of raising an error.
    :raises DataLoss: offsets are missing, or one exists more than once.
    """
    return [_stored_in(queue, progress.get(queue), held[queue], may_miss) for queue in sorted(held)]


def _stored_in(
    queue: MessageQueue, at: int | None, held: StoredRange, may_miss: bool
) -> QueueRange:
    start = held.start if at is None else at
    missing = held.end - start - held.messages
    if missing < 0:
        raise DataLoss(
            f"{queue}: {held.messages} messages have the offsets {start} to {held.end - 1}: "
            "its topic was deleted and recreated, or the store is given twice. "
            "Which messages are new is unknown: archive from the broker"
        )
    if missing:
        last = held.end - 1
        if not may_miss:
            raise DataLoss(
                f"{queue}: {missing} of the next messages, offsets {start} to {last}, are not in "
                "the log. An older copy may have them; mode=PERMISSIVE archives the others"
            )
        log.warning(
            "messages missing in the log: queue=%s missing=%d first=%d last=%d",
            queue,
            missing,
            start,
            last,
        )
    return QueueRange(queue, start, held.end)


def batch_of(
    ranges: Iterable[QueueRange], until: Mapping[MessageQueue, int] | None, rows_max: int | None
) -> list[QueueRange]:
    """The part of a backlog that one change of an archive adds.

    :param until: the end offset of each queue (exclusive); other queues are left out. None: no
        bound.
    :param rows_max: maximum messages in total, but at least one of each queue. None: no bound.
    """
    parts = list(ranges)
    if until is not None:
        parts = [_up_to(each, until[each.queue]) for each in parts if each.queue in until]
    if rows_max is None:
        return parts
    counts = share_rows({each.queue: each.size for each in parts}, rows_max)
    return [_up_to(each, each.start + counts.get(each.queue, 0)) for each in parts]


def _up_to(whole: QueueRange, end: int) -> QueueRange:
    return QueueRange(whole.queue, whole.start, max(whole.start, min(whole.end, end)))


def ends(ranges: Iterable[QueueRange]) -> dict[MessageQueue, int]:
    """The next offsets to archive after these ranges."""
    return {each.queue: each.end for each in ranges}
