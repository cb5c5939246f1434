"""Deletes queues of a store without a broker, in the order in which a broker does: after a
checkpoint without them.
"""

from __future__ import annotations

from collections.abc import Collection

from roquet.common.steps import finished
from roquet.storage.store import Store


def delete_topic(store: Store, topic: str) -> None:
    store.make_checkpoint(store.queues.of_topic(topic))
    store.queues.delete_topic(topic)


def delete_expired_queues(store: Store, kept: Collection[str]) -> None:
    expired = finished(store.old_files.expired_queues(kept))
    store.make_checkpoint(expired)
    for queue in expired:
        queue.delete_oldest_first()
