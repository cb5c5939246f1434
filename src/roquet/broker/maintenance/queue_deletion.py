"""Deletes consume queues so that no recovery brings them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from roquet.common.runtime import Runtime
from roquet.common.steps import Steps, in_parts
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store
from roquet.transport.slices import Slices

_TOPICS_AT_ONCE: Final = 64


class QueueDeletion:
    """Deletes queues, but first saves a checkpoint whose queue count leaves them out.

    Recovery dispatches the records after the checkpoint, and the whole log if there are fewer
    queues than the checkpoint says. Either would fill the deleted queues again.

    :param checkpointing: held while a checkpoint is made. A checkpoint that began before a
        deletion and was saved after it would count the deleted queues.
    :param slices: runs the passes over queues; a tool can ask for a pass over all queues.
    """

    def __init__(
        self, store: Store, runtime: Runtime, checkpointing: asyncio.Lock, slices: Slices
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._checkpointing = checkpointing
        self._slices = slices

    async def of_topic(self, topic: str) -> None:
        """Delete the queues of a topic.

        :raises OSError: a file could not be written or deleted; the caller may retry.
        """
        await self.of_topics(lambda name: name == topic, [topic])

    async def of_topics(
        self, is_gone: Callable[[str], bool], among: list[str] | None = None
    ) -> None:
        """Delete the queues of deleted topics.

        :param is_gone: whether a topic is deleted; called again just before its queues are.
        :param among: the topics to look at; None for all.
        :raises OSError: a file could not be written or deleted; the caller may retry.
        """
        async with self._checkpointing:
            to_delete = await self._checkpoint_without(lambda: self._of_topics(is_gone, among))
            for count, topic in enumerate(
                dict.fromkeys([*(queue.topic for queue in to_delete), *(among or ())])
            ):
                if count:
                    await asyncio.sleep(0)
                await self._delete(topic, is_gone, to_delete)

    async def _delete(
        self, topic: str, is_gone: Callable[[str], bool], to_delete: dict[ConsumeQueue, int]
    ) -> None:
        """Delete a topic's queues, one per turn of the event loop: each file waits for the drive.

        Queues that got messages meanwhile are deleted at the end, with the topic.
        """
        queues = self._store.queues
        for queue in queues.of_topic(topic):
            is_unchanged = queue.log_end <= to_delete.get(queue, -1)  # since the checkpoint
            if is_gone(topic) and queue.log_end > 0 and is_unchanged:
                queue.delete_oldest_first()
                await asyncio.sleep(0)
        if is_gone(topic):
            self._checkpoint_if_grown(topic, to_delete)
            queues.delete_topic(topic)

    def _of_topics(
        self, is_gone: Callable[[str], bool], among: list[str] | None
    ) -> Steps[list[ConsumeQueue]]:
        queues = self._store.queues
        found = list[ConsumeQueue]()
        for part in in_parts(queues.topics if among is None else among, _TOPICS_AT_ONCE):
            for topic in part:
                if is_gone(topic):
                    found += queues.of_topic(topic)
            yield
        return found

    async def of_expired(self, expired: Callable[[], Steps[list[ConsumeQueue]]]) -> None:
        """Delete expired queues. Each is empty then: its next message gets queue offset 0 again.

        :param expired: finds the queues whose messages are all deleted from the log.
        :raises OSError: a file could not be written or deleted; the caller may retry.
        """
        async with self._checkpointing:
            for queue in await self._checkpoint_without(expired):
                if self._store.old_files.is_expired(queue):  # no message came meanwhile
                    queue.delete_oldest_first()
                    await asyncio.sleep(0)

    async def _checkpoint_without(
        self, queues: Callable[[], Steps[list[ConsumeQueue]]]
    ) -> dict[ConsumeQueue, int]:
        """Make a checkpoint that does not count some queues; repeat it while more are found.

        Makes none if there are no such queues: thousands of deletions of topics that do not exist
        would each hold up the next checkpoint.

        :param queues: finds the queues that are to be deleted.
        :returns: the queues, and for each its `log_end` when the last checkpoint began.
        """
        to_delete: dict[ConsumeQueue, int] = {}
        while True:
            found = await self._slices.run(queues())
            if to_delete.keys() >= set(found):
                return to_delete
            to_delete = {queue: queue.log_end for queue in found}
            for work in await self._slices.run(self._store.checkpoint_steps(to_delete)):
                await self._runtime.blocking(work)

    def _checkpoint_if_grown(self, topic: str, to_delete: dict[ConsumeQueue, int]) -> None:
        """Make one more checkpoint if the topic's queues got messages after the last one.

        Recovery would dispatch these messages again. This checkpoint runs on the event loop, so
        that nothing can be stored meanwhile.
        """
        if any(
            queue.log_end > to_delete.get(queue, -1) for queue in self._store.queues.of_topic(topic)
        ):
            without = [
                queue for queue in self._store.queues if queue in to_delete or queue.topic == topic
            ]
            self._store.make_checkpoint(without)
            to_delete.update((queue, queue.log_end) for queue in without)
