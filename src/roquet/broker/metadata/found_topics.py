"""Adds topics that have messages in the store but are missing in the topic table.

They are missing if the table was copied from the master too early, or if its file was damaged.
"""

from __future__ import annotations

import logging

from roquet.broker.metadata.topics import TopicRegistry
from roquet.errors import Refused
from roquet.protocol.bodies.tables import TopicConfig
from roquet.storage.store import Store

log = logging.getLogger(__name__)


def add_found_topics(store: Store, topics: TopicRegistry, *, stored_after: int = 0) -> None:
    """Add every missing topic whose consume queues have messages, with enough queues for them.

    :param stored_after: only add topics that have messages after this physical offset.
    """
    counts: dict[str, int] = {}
    for queue in store.queues:
        if queue.topic not in topics.topics and queue.max_offset and queue.log_end > stored_after:
            counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
    for name, count in counts.items():
        log.warning(
            "topic has messages but is missing in the topic table, it is added: topic=%s queues=%d",
            name,
            count,
        )
        try:
            topics.update(TopicConfig(name, count, count))
        except Refused as error:
            log.warning(
                "topic has messages but cannot be added, consumers cannot read it:"
                " topic=%s error=%s",
                name,
                error,
            )
