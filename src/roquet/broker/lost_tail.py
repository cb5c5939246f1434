"""Groups that are further than their queues: a power failure took the tail, or only a former master had it."""

from __future__ import annotations

import logging

from roquet.broker.progress import ConsumerProgress
from roquet.storage.store import Store

log = logging.getLogger(__name__)


def set_back_progress(progress: ConsumerProgress, store: Store) -> None:
    """Let every group go on where its queues end, at the latest."""
    for each in progress.set_back(store.within_queue):
        log.warning("%s goes on at %s, where queue %s of %s ends", each.group, each.offset, each.queue_id, each.topic)
