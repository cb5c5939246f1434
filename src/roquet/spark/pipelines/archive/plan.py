"""PURE: which messages a run of `archive` is to add.

Keeps: runs join up: each begins in a queue where the one before it ended. Only a master's word that messages are gone,
       and failOnDataLoss=false, let one begin elsewhere; it never goes back over what the archive holds.
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
    """What each queue holds beyond the archive, for every queue there is; a queue that is new is taken whole.

    :param progress: the next offset to archive, for queues that were archived before.
    :param bounds: as from `roquet.spark._options.ranges.settled`.
    :raises roquet.spark._options.ranges.DataLoss: messages are gone that were never archived, or a topic was made anew.
    """
    starts = {
        queue: read_on(queue, progress.get(queue), held, fail_on_data_loss=fail_on_data_loss)
        for queue, held in sorted(bounds.items())
    }
    return [
        QueueRange(queue, start, max(start, bounds[queue].max)) for queue, start in starts.items()
    ]


@dataclass(frozen=True)
class Held:
    """What a store's log has of a queue: messages with offsets from `start` up to, not including, `end`."""

    start: int
    end: int
    messages: int


def new_stored_rows(
    progress: Mapping[MessageQueue, int], held: Mapping[MessageQueue, Held], *, may_miss: bool
) -> list[QueueRange]:
    """As `new_rows`, of store files, which may as well be older than the archive: then nothing of them is new.

    :param held: what a store has from the progress on, or from anywhere on in queues without any.
    :param may_miss: offsets may be missing; they are logged.
    :raises DataLoss: some are missing, or one is there more than once.
    """
    return [_stored_in(queue, progress.get(queue), held[queue], may_miss) for queue in sorted(held)]


def _stored_in(queue: MessageQueue, at: int | None, held: Held, may_miss: bool) -> QueueRange:
    start = held.start if at is None else at
    missing = held.end - start - held.messages
    if missing < 0:
        raise DataLoss(
            f"{queue}: {held.messages} messages have the offsets {start} to {held.end - 1}: its topic was deleted and "
            "made anew, or the store is given twice. Nobody can tell which are new: archive from the broker"
        )
    if missing:
        what = f"{queue}: {missing} of the messages {start} to {held.end - 1}, which come next, are not in the log"
        if not may_miss:
            raise DataLoss(
                f"{what}. An older copy may have them; mode=PERMISSIVE takes what is there"
            )
        log.warning("%s", what)
    return QueueRange(queue, start, held.end)


def batch_of(
    ranges: Iterable[QueueRange], until: Mapping[MessageQueue, int] | None, rows_max: int | None
) -> list[QueueRange]:
    """The part of a backlog that one change of an archive takes.

    :param until: no queue is taken further than this, and no other queues; None: whatever there is.
    :param rows_max: so many messages in all, or one of each queue, if that is more.
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
    """The progress after these."""
    return {each.queue: each.end for each in ranges}
