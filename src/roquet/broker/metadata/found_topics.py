"""Topics that have messages in the store and are in no table: it was copied too early, or its file was damaged."""

from __future__ import annotations

import logging

from roquet.broker.metadata.metadata import Metadata
from roquet.errors import Refused
from roquet.protocol.bodies.tables import TopicConfig
from roquet.storage.store import Store

log = logging.getLogger(__name__)


def add_found_topics(store: Store, metadata: Metadata, *, stored_after: int = 0) -> None:
    """Let every topic be known whose queues have messages, with as many queues as these need.

    :param stored_after: only topics that have messages behind this physical offset.
    """
    counts: dict[str, int] = {}
    for queue in store.queues:
        if queue.topic not in metadata.topics and queue.max_offset and queue.log_end > stored_after:
            counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
    for topic, count in counts.items():
        log.warning(
            "topic has messages and is in no table, it is added: topic=%s queues=%d", topic, count
        )
        try:
            metadata.update_topic(TopicConfig(topic, count, count))
        except Refused as error:
            log.warning("topic has messages and cannot be added: topic=%s error=%s", topic, error)
