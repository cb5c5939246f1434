"""The blocking pull consumer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Unpack

from roquet.client import pull_consumer
from roquet.client._consume.pull_result import PullResult
from roquet.client.config import ClientConfig, NameServers
from roquet.client.pull_consumer import PullOptions
from roquet.client.selector import Sql
from roquet.protocol.records.message import MessageQueue
from roquet.sync.blocking_user import BlockingUser, underneath

__all__ = ["PullConsumer"]


class PullConsumer(BlockingUser[pull_consumer.PullConsumer]):
    """Reads queues by offset, without membership in a group: `roquet.PullConsumer`, blocking.

    The arguments are those of `roquet.PullConsumer`.
    """

    def __init__(
        self,
        name_server: NameServers | ClientConfig | BlockingUser[Any],
        **options: Unpack[PullOptions],
    ) -> None:
        shared, owner = underneath(name_server)
        super().__init__(pull_consumer.PullConsumer(shared, **options), owner)

    def topics(self) -> list[str]:
        """The names of all topics that the name server knows, including system topics."""
        return self._call(self._client.topics)

    def own_topics(self) -> list[str]:
        """The names of the topics that are named after clusters and brokers."""
        return self._call(self._client.own_topics)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted, as the name server knows them now."""
        return self._call(self._client.queues, topic)

    def min_offset(self, queue: MessageQueue, *, of_master: bool = False) -> int:
        """The offset of the oldest message in a queue; 0 if there never was a message."""
        return self._call(self._client.min_offset, queue, of_master=of_master)

    def max_offset(self, queue: MessageQueue, *, of_master: bool = False) -> int:
        """The offset that the next message of a queue will have at the master."""
        return self._call(self._client.max_offset, queue, of_master=of_master)

    def offset_at(self, queue: MessageQueue, when: datetime | int) -> int:
        """The offset of the message whose store time is nearest to `when`."""
        return self._call(self._client.offset_at, queue, when)

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """The offset of `group` in a queue, or None if the broker has none."""
        return self._call(self._client.committed, group, queue)

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the offset of `group` in a queue, the next one to consume, forwards or backwards."""
        self._call(self._client.commit, group, queue, offset)

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        tags: str | Sql = "*",
        hold_ms: int = 0,
    ) -> PullResult:
        """Pull messages of a queue from `offset` on. See `roquet.PullConsumer.pull`."""
        return self._call(
            self._client.pull,
            queue,
            offset,
            max_messages=max_messages,
            tags=tags,
            hold_ms=hold_ms,
        )

    def pull_all(
        self,
        queue: MessageQueue,
        offsets: Sequence[int],
        *,
        max_messages: int = 32,
        tags: str | Sql = "*",
    ) -> list[PullResult]:
        """Pull from several offsets of a queue at once; return one result per offset."""
        return self._call(
            self._client.pull_all, queue, offsets, max_messages=max_messages, tags=tags
        )
