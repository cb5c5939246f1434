"""Sets consumer offsets after the end of a queue back to that end.

They arise when a power failure takes the end of the log, or when only the former master had it.
"""

from __future__ import annotations

import logging

from roquet.broker.offsets.consumer_offsets import Commit, ConsumerOffsets
from roquet.storage.store import Store

log = logging.getLogger(__name__)


def clamp_offsets(offsets: ConsumerOffsets, store: Store) -> None:
    """Set offsets beyond the end of a queue back to that end; logs one line per group."""
    by_group: dict[str, list[Commit]] = {}
    for each in offsets.set_back(store.within_queue):
        by_group.setdefault(each.group, []).append(each)
    for group, commits in by_group.items():
        first = commits[0]
        log.warning(
            "consumer offsets set back to the ends of their queues:"
            " group=%s queues=%d first=%s:%d offset=%d",
            group,
            len(commits),
            first.topic,
            first.queue_id,
            first.offset,
        )
