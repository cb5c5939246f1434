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
    """Deletes queues, each after a checkpoint that does not count it.

    Recovery dispatches the records after the checkpoint, and the whole log if there are fewer
    queues than the checkpoint says. Either would fill the deleted queues again.

    :param making: held while a checkpoint is made. A checkpoint that began before a deletion and
        was saved after it would count the deleted queues.
    :param slices: runs the passes over queues; a tool can ask for a pass over all queues.
    """

    def __init__(
        self, store: Store, runtime: Runtime, making: asyncio.Lock, slices: Slices
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._making = making
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
        async with self._making:
            leaving = await self._leave(lambda: self._of_topics(is_gone, among))
            for count, topic in enumerate(
                dict.fromkeys([*(queue.topic for queue in leaving), *(among or ())])
            ):
                if count:
                    await asyncio.sleep(0)
                await self._delete(topic, is_gone, leaving)

    async def _delete(
        self, topic: str, is_gone: Callable[[str], bool], leaving: dict[ConsumeQueue, int]
    ) -> None:
        """Delete a topic's queues, one per turn of the event loop: each file waits for the drive.

        Queues that got messages meanwhile are deleted at the end, with the topic.
        """
        queues = self._store.queues
        for queue in queues.of_topic(topic):
            if is_gone(topic) and 0 < queue.log_end <= leaving.get(queue, -1):
                queue.delete_oldest_first()
                await asyncio.sleep(0)
        if is_gone(topic):
            self._leave_rest(topic, leaving)
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
        """Delete expired queues. The next message in each gets queue offset 0 again.

        :param expired: finds the queues whose messages are all deleted from the log.
        :raises OSError: a file could not be written or deleted; the caller may retry.
        """
        async with self._making:
            for queue in await self._leave(expired):
                if self._store.old_files.is_expired(queue):  # no message came meanwhile
                    queue.delete_oldest_first()
                    await asyncio.sleep(0)

    async def _leave(
        self, queues: Callable[[], Steps[list[ConsumeQueue]]]
    ) -> dict[ConsumeQueue, int]:
        """Make a checkpoint that does not count some queues; repeat it while more are found.

        Makes none if there are no such queues: thousands of deletions of topics that do not exist
        would each hold up the next checkpoint.

        :param queues: finds the queues that are to be deleted.
        :returns: the queues, and for each its `log_end` when the last checkpoint began.
        """
        leaving: dict[ConsumeQueue, int] = {}
        while not leaving.keys() >= set(now := await self._slices.run(queues())):
            leaving = {queue: queue.log_end for queue in now}
            for work in await self._slices.run(self._store.checkpoint_steps(leaving)):
                await self._runtime.blocking(work)
        return leaving

    def _leave_rest(self, topic: str, leaving: dict[ConsumeQueue, int]) -> None:
        """Make one more checkpoint if the topic's queues got messages after the last one.

        Recovery would dispatch these messages again. This checkpoint runs on the event loop, so
        that nothing can be stored meanwhile.
        """
        if any(
            queue.log_end > leaving.get(queue, -1) for queue in self._store.queues.of_topic(topic)
        ):
            now = [
                queue for queue in self._store.queues if queue in leaving or queue.topic == topic
            ]
            self._store.make_checkpoint(now)
            leaving.update((queue, queue.log_end) for queue in now)
