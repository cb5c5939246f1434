"""Deletions in the store that admin tools ask for: codes 306, 316, 329.

See docs/storage/retention.md#a-topic-that-is-deleted and
docs/protocol/request-codes.md#administrators-and-slaves-to-brokers.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from roquet.broker.handlers.admin.jobs import Jobs
from roquet.broker.maintenance.cleaning import Cleaning
from roquet.broker.maintenance.queue_deletion import QueueDeletion
from roquet.broker.metadata.topics import TopicRegistry
from roquet.protocol.records.message import HALF_OP_TOPIC, SCHEDULE_TOPIC
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.store import Store
from roquet.transport.connection import Connection, Handler

_KEPT: Final = frozenset({SCHEDULE_TOPIC})
"""Topics whose expired consume queues are not deleted."""
_NEVER_UNUSED: Final = frozenset({SCHEDULE_TOPIC, HALF_OP_TOPIC})
"""Topics whose queues are not deleted, even if they are not in the topic table."""


class CleanupAdmin:
    """Deletes expired log segments, expired consume queues, and the queues of unused topics."""

    def __init__(
        self,
        store: Store,
        topics: TopicRegistry,
        cleaning: Cleaning,
        deletion: QueueDeletion,
        jobs: Jobs,
    ) -> None:
        self._store = store
        self._topics = topics
        self._cleaning = cleaning
        self._deletion = deletion
        self._jobs = jobs

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_files,
        }

    def clean_expired_queues(self, request: Command, connection: Connection) -> None:
        expired = partial(self._store.old_files.expired_queues, _KEPT)
        work = partial(self._deletion.of_expired, expired)
        self._jobs.answer_after("deletion of expired queues", work, request, connection)

    def clean_unused_topics(self, request: Command, connection: Connection) -> None:
        work = partial(self._deletion.of_topics, self._is_unused)
        self._jobs.answer_after("deletion of unused topics", work, request, connection)

    def _is_unused(self, topic: str) -> bool:
        return topic not in self._topics.topics and topic not in _NEVER_UNUSED

    def delete_expired_files(self, request: Command, _: Connection) -> Command:
        """Answer at once; the next passes of cleaning delete expired files at any hour."""
        self._cleaning.ask()
        return request.answer(ResponseCode.SUCCESS)
