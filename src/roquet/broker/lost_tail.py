"""Groups that are further than their queues: a power failure took the tail, or only a former master had it.

What comes to stand there are other messages, which no group has seen.
"""

from __future__ import annotations

import logging

from roquet.broker.progress import ConsumerProgress
from roquet.storage.queues import Queues

log = logging.getLogger(__name__)


def set_back_progress(progress: ConsumerProgress, queues: Queues) -> None:
    """Let every group go on where its queues end, at the latest; of queues that are not there nothing is known."""

    def end_of(topic: str, queue_id: int) -> int | None:
        queue = queues.known(topic, queue_id)
        return None if queue is None else queue.max_offset

    for each in progress.set_back_to_ends(end_of):
        log.warning("%s goes on at %s, where queue %s of %s ends", each.group, each.offset, each.queue_id, each.topic)
