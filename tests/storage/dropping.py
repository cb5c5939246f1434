"""Deletes queues of a store without a broker, in the order in which a broker does: after a
checkpoint without them.
"""

from __future__ import annotations

from collections.abc import Collection

from roquet.common.steps import finished
from roquet.storage.store import Store


def drop_topic(store: Store, topic: str) -> None:
    for work in store.checkpoint_works(store.queues.of_topic(topic)):
        work()
    store.queues.drop_topic(topic)


def drop_expired_queues(store: Store, kept: Collection[str]) -> None:
    expired = finished(store.old_files.expired_queues(kept))
    for work in store.checkpoint_works(expired):
        work()
    for queue in expired:
        queue.delete()
