"""The steps of opening a store before its recovery."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from roquet.errors import StoreError
from roquet.storage.checkpoint import CheckpointMark
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.lost_queues import LostQueues, lost_beginnings
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.queues.queues import Queues

_log = logging.getLogger(__name__)


def require_durable_log(log: CommitLog, mark: CheckpointMark | None, root: Path) -> None:
    """Refuse a log that ends before the checkpoint mark.

    :raises StoreError: files of the log are missing.
    """
    end = log.end  # before recovery: the end of the last file
    if mark is None or mark.position <= end:
        return
    folders = " or ".join(str(folder) for folder in log.folders)
    raise StoreError(
        f"files of the commit log are missing from {folders}: the last file ends at physical "
        f"offset {end}, the log was durable up to {mark.position}. Mount the volume or restore "
        "the files; or promote a slave; or, to start without the lost messages, delete "
        f"{root / 'checkpoint'}: new messages then get their queue offsets"
    )


def load_queues(log: CommitLog, queues: Queues, lost_queues: LostQueues) -> list[ConsumeQueue]:
    """Open the queues.

    :returns: the queues to rebuild from the whole log; they have no entries.
    """
    lost_queues.load()
    lost = queues.load()
    late = lost_beginnings(log, set(queues).difference(lost))
    lost += [
        queues.queue(*name)
        for name in sorted(lost_queues.ends.keys() - {queue.name for queue in lost})
    ]
    lost_queues.add({queue.name: 0 for queue in lost})
    for queue in lost:
        queue.drop_all()
    emptied = [queue for queue in late if queue not in lost and _is_emptied(queue, lost_queues)]
    return lost + emptied


def _is_emptied(queue: ConsumeQueue, lost_queues: LostQueues) -> bool:
    """Empty a queue whose first files are missing, so that it can be rebuilt.

    False: a file cannot be deleted, or the queue cannot be recorded as lost. The queue then stays
    in use with the entries it has.
    """
    try:
        lost_queues.add({queue.name: 0})
        queue.delete()
    except OSError as error:
        if queue.max_offset == 0:
            return True
        _log.error(
            "consume queue lacks its first messages and cannot be rebuilt: topic=%s queue=%d "
            "error=%s; remove the cause of the error and restart the broker",
            queue.topic, queue.queue_id, error,
        )  # fmt: skip
        with suppress(OSError):
            lost_queues.remove([queue.name])
        return False
    return True
