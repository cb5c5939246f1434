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
    """Deletes queues after a checkpoint that does not count them.

    A recovery dispatches what came after the checkpoint, and the whole log when there are fewer queues than the
    checkpoint says: either would fill the deleted queues anew.

    :param making: held by whoever makes a checkpoint: one that began before the deletion and is saved after it would
        count the queues.
    :param slices: in which queues are gone through; all of them, where a tool asks what is needed no more.
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

        :raises OSError: something could not be written or deleted; to be called again.
        """
        await self.of_topics(lambda name: name == topic, [topic])

    async def of_topics(
        self, is_gone: Callable[[str], bool], among: list[str] | None = None
    ) -> None:
        """Delete the queues of the topics that are gone.

        :param is_gone: asked for each topic again just before its queues are deleted.
        :param among: of these topics only.
        :raises OSError: as `of_topic`.
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
        """Delete a topic's queues, one in a turn of the loop, as each of their files waits for the drive. Those that
        are sent to meanwhile go at the end, with the topic.
        """
        queues = self._store.queues
        for queue in queues.of_topic(topic):
            if is_gone(topic) and 0 < queue.log_end <= leaving.get(queue, -1):
                queue.delete()
                await asyncio.sleep(0)
        if is_gone(topic):
            self._leave_rest(topic, leaving)
            queues.drop_topic(topic)

    def _of_topics(
        self, is_gone: Callable[[str], bool], among: list[str] | None
    ) -> Steps[list[ConsumeQueue]]:
        queues, found = self._store.queues, list[ConsumeQueue]()
        for part in in_parts(queues.topics if among is None else among, _TOPICS_AT_ONCE):
            for topic in part:
                if is_gone(topic):
                    found += queues.of_topic(topic)
            yield
        return found

    async def of_expired(self, expired: Callable[[], Steps[list[ConsumeQueue]]]) -> None:
        """Empty these queues; the next message in each has the offset 0 again.

        :param expired: those whose messages are all gone from the log.
        :raises OSError: as `of_topic`.
        """
        async with self._making:
            for queue in await self._leave(expired):
                if self._store.is_expired(queue):  # no message came meanwhile
                    queue.delete()
                    await asyncio.sleep(0)

    async def _leave(
        self, queues: Callable[[], Steps[list[ConsumeQueue]]]
    ) -> dict[ConsumeQueue, int]:
        """Make a checkpoint without them, again for as long as there are more of them after it; none where there is
        nothing to leave: thousands of deletions of what is not there would each hold up the next checkpoint.

        Gives them, and where the log ended for each when the last checkpoint began.
        """
        leaving: dict[ConsumeQueue, int] = {}
        while not leaving.keys() >= set(now := await self._slices.run(queues())):
            leaving = {queue: queue.log_end for queue in now}
            for work in await self._slices.run(self._store.checkpoint_steps(leaving)):
                await self._runtime.blocking(work)
        return leaving

    def _leave_rest(self, topic: str, leaving: dict[ConsumeQueue, int]) -> None:
        """What was stored in its queues meanwhile is behind that checkpoint: a recovery would bring it back. For that
        bit there is one more checkpoint, during which nothing can be stored.
        """
        if any(
            queue.log_end > leaving.get(queue, -1) for queue in self._store.queues.of_topic(topic)
        ):
            now = [
                queue for queue in self._store.queues if queue in leaving or queue.topic == topic
            ]
            for work in self._store.checkpoint_works(now):
                work()
            leaving.update((queue, queue.log_end) for queue in now)
